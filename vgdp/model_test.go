package vgdp

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is admission once more, slow and plain: nothing is kept, all is counted
// anew for each load, and the next one is looked for among all.
type model struct {
	in      Input
	granted []Load // with a ticket, by this decision
	shares  map[string]int
}

func (m *model) holds(l Load) bool {
	v := m.in.Veleros[l.Namespace]
	return l.Ticket != nil && (v.PrepareLimit > 0 || l.Ticket.Epoch == v.Epoch)
}

func (m *model) builtin(l Load) bool {
	return slices.Contains([]string{"", "velero", "velero-fs", "velero-block"}, l.Mover)
}

// all that are on their way, those of this decision too.
func (m *model) onTheirWay() (list []Load) {
	for _, l := range m.in.Loads {
		switch l.Phase {
		case Accepted, Prepared, InProgress, Canceling:
			if m.builtin(l) {
				list = append(list, l)
			}
		case "", New:
			if m.builtin(l) && !l.Direct && m.holds(l) {
				list = append(list, l)
			}
		}
	}
	return append(list, m.granted...)
}

// free tells whether a load may take one of so many slots: a backup leaves one for
// restores, unless there is a single one.
func (m *model) free(l Load, limit int) bool {
	backups, restores := 0, 0
	for _, o := range m.onTheirWay() {
		switch {
		case o.Namespace != l.Namespace || o.Phase == InProgress || o.Phase == Canceling:
		case m.restores(o):
			restores++
		default:
			backups++
		}
	}
	if backups+restores >= limit {
		return false
	}
	return m.restores(l) || limit == 1 || backups+1 < limit
}

func (m *model) restores(l Load) bool { return l.Kind == DataDownload || l.Kind == PodVolumeRestore }

// allowed on a node by pressure; -1: all that are configured.
func (m *model) allowed(node Node) int {
	configured := 0
	for _, a := range node.Agents {
		configured += a.Concurrency
	}
	p, pressed := m.in.Pressure[node.Name]
	n := configured
	switch {
	case pressed && p.HoldUntil.After(m.in.Time):
		n = 0
	case pressed && p.Budget != nil:
		n = max(1, *p.Budget)
	}
	if n >= configured {
		return -1
	}
	return n
}

// urgent: of the loads with hooks the first that find room, those on their way
// first.
func (m *model) urgent(l Load) bool {
	taken := []Load{}
	for _, o := range slices.Concat(m.hooked(m.onItsWay), m.hooked(m.couldGo)) {
		count := func(is func(t Load) bool) (n int) {
			for _, t := range taken {
				if is(t) {
					n++
				}
			}
			return n
		}
		node, namespace := func(t Load) bool { return t.Node == o.Node }, func(t Load) bool { return t.PodNamespace == o.PodNamespace }
		both := func(t Load) bool { return node(t) && namespace(t) }
		if count(node) < 2 && count(namespace) < 4 && count(both) < 1 {
			taken = append(taken, o)
		}
	}
	return slices.ContainsFunc(taken, func(t Load) bool { return t.UID == l.UID })
}

// hooked loads that are so, the oldest first.
func (m *model) hooked(are func(Load) bool) (list []Load) {
	for _, o := range m.in.Loads {
		if o.Kind == PodVolumeBackup && o.Hooks && are(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b Load) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) })
	return list
}

func (m *model) onItsWay(l Load) bool {
	return slices.ContainsFunc((&model{in: m.in}).onTheirWay(), func(o Load) bool { return o.UID == l.UID })
}

func (m *model) couldGo(l Load) bool {
	node := slices.IndexFunc(m.in.Topology.nodes, func(n Node) bool { return n.Name == l.Node })
	waits := slices.ContainsFunc(m.waiting(), func(o Load) bool { return o.UID == l.UID })
	return waits && l.NotReady == "" && !m.delayed(l) && node >= 0 && m.in.Topology.nodes[node].Agents[l.Namespace].Ready
}

// spared by pressure.
func (m *model) spared(l Load) bool {
	if l.Kind == DataDownload || l.Kind == PodVolumeRestore || m.urgent(l) {
		return true
	}
	longest := 30 * time.Minute
	if l.Timeout > 0 && l.Timeout < 2*time.Hour {
		longest = l.Timeout / 4
	}
	since := l.Note.PressureSince
	return !since.IsZero() && m.in.Time.Sub(since) >= longest
}

// later than now, when the window of its Backup opens.
func (m *model) later(l Load) bool {
	opens := l.Wanted.PostponedUntil
	if l.Wanted.Unknown {
		opens = l.Note.PostponedUntil
	}
	lasts := 4 * time.Hour
	if l.Timeout > 0 {
		lasts = l.Timeout
	}
	frozen := l.Kind == PodVolumeBackup && l.Hooks
	waits := (l.Phase == "" || l.Phase == New) && !m.restores(l) && !frozen && opens.After(m.in.Time)
	return waits && opens.Sub(l.Created) <= 25*time.Hour && !opens.Add(lasts/4).After(l.Created.Add(lasts))
}

func (m *model) delayed(l Load) bool {
	delay := 30 * time.Second
	for range l.Note.Unused - 1 {
		delay = min(2*delay, 10*time.Minute)
	}
	return l.Note.Unused > 0 && m.in.Time.Before(l.Note.UnusedAt.Add(delay))
}

// on a node, of all Veleros and of one.
func (m *model) on(node, velero string) (used, mine int) {
	for _, o := range m.onTheirWay() {
		if o.Node == node {
			used++
			if o.Namespace == velero {
				mine++
			}
		}
	}
	return used, mine
}

// parked are those of a Velero that are prepared on a node and held by pressure.
func (m *model) parked(node Node, velero string) (n int) {
	for _, o := range m.onTheirWay() {
		let := o.Started != nil && *o.Started == Ticket{Node: node.Name, Epoch: m.in.Veleros[velero].Epoch, At: o.Started.At}
		restore := o.Kind == DataDownload || o.Kind == PodVolumeRestore
		overdue := m.in.Time.Sub(o.prepared()) >= 5*time.Minute
		if o.Node == node.Name && o.Namespace == velero && o.Phase == Prepared && m.allowed(node) >= 0 && !let && !o.canceling() && !restore && !m.urgent(o) && !overdue {
			n++
		}
	}
	return n
}

// code is why a load that is bound to its node waits; empty: it does not.
func (m *model) code(l Load) Code {
	v := m.in.Veleros[l.Namespace]
	switch {
	case l.NotReady != "":
		return CodeNotReady
	case m.later(l):
		return CodePostponed
	case m.delayed(l):
		return CodeBackoff
	}
	i := slices.IndexFunc(m.in.Topology.nodes, func(n Node) bool { return n.Name == l.Node })
	if i < 0 || !m.in.Topology.nodes[i].Agents[l.Namespace].Ready {
		return CodeUnschedulable
	}
	node := m.in.Topology.nodes[i]
	agent := node.Agents[l.Namespace]
	used, mine := m.on(l.Node, l.Namespace)
	if m.spared(l) {
		mine -= m.parked(node, l.Namespace)
	}
	switch {
	case v.PrepareLimit > 0 && !m.free(l, v.PrepareLimit):
		return CodeLimit
	case agent.PrepareLimit > 0 && !m.free(l, agent.PrepareLimit):
		return CodeAgent
	case v.PrepareLimit > 0 && mine >= agent.Concurrency:
		return CodeFull
	case m.allowed(node) >= 0 && used >= m.allowed(node) && !m.spared(l):
		return CodePressure
	}
	return ""
}

func (m *model) limited(velero string) bool {
	if m.in.Veleros[velero].PrepareLimit > 0 || m.in.Veleros[velero].Postponing {
		return true
	}
	for _, l := range m.in.Loads {
		if l.Namespace == velero && m.builtin(l) && !l.Direct && !l.Cancel && !l.Deleted && m.later(l) {
			return true
		}
	}
	return slices.ContainsFunc(m.in.Topology.nodes, func(n Node) bool {
		_, there := n.Agents[velero]
		return there && m.allowed(n) >= 0
	})
}

func (m *model) rank(l Load) int {
	rank := 1
	switch {
	case l.Priority != nil:
		rank = max(-8, min(7, int(*l.Priority)))
	case l.Kind == DataDownload || l.Kind == PodVolumeRestore:
		rank = 4
	case l.Scheduled:
		rank = 0
	}
	if m.urgent(l) {
		rank = max(rank, 3)
	}
	since := l.Created
	if l.Note.PostponedUntil.After(since) {
		since = l.Note.PostponedUntil
	}
	if l.Note.UnusedAt.After(since) {
		since = l.Note.UnusedAt
	}
	for waited := m.in.Time.Sub(since); waited >= time.Hour; waited -= time.Hour {
		rank++
	}
	return rank
}

func (m *model) ahead(a, b Load) bool {
	shareA, shareB := m.shares[a.Namespace+"/"+a.Backup], m.shares[b.Namespace+"/"+b.Backup]
	dueA, dueB := a.Wanted.LatestStart, b.Wanted.LatestStart
	late := slices.ContainsFunc(m.in.Loads, func(l Load) bool { return !l.Wanted.LatestStart.IsZero() })
	firstA, firstB := late && (m.restores(a) || m.urgent(a)), late && (m.restores(b) || m.urgent(b))
	switch {
	case m.later(a) != m.later(b):
		return m.later(b)
	case m.rank(a) != m.rank(b) && !m.later(a):
		return m.rank(a) > m.rank(b)
	case a.Note.Unused != b.Note.Unused && !m.later(a):
		return a.Note.Unused < b.Note.Unused
	case firstA != firstB:
		return firstA
	case dueA.IsZero() != dueB.IsZero() && !firstA:
		return dueB.IsZero()
	case !dueA.Equal(dueB) && !firstA:
		return dueA.Before(dueB)
	case shareA != shareB:
		return shareA < shareB
	case !a.Created.Equal(b.Created):
		return a.Created.Before(b.Created)
	}
	return a.UID < b.UID
}

// decide is who is admitted, in order, and why the others wait.
func (m *model) decide() (admit []string, waits map[string]Code) {
	waits, m.shares = map[string]Code{}, map[string]int{}
	for _, l := range m.onTheirWay() {
		m.shares[l.Namespace+"/"+l.Backup]++
	}
	left := m.waiting()
	for len(left) > 0 {
		var l Load
		if l, left = m.first(left); m.code(l) == "" {
			admit = append(admit, l.UID)
			m.granted = append(m.granted, l)
			m.shares[l.Namespace+"/"+l.Backup]++
			continue
		}
		waits[l.UID] = m.code(l)
	}
	return admit, waits
}

func (m *model) waiting() (list []Load) {
	for _, l := range m.in.Loads {
		if (l.Phase == "" || l.Phase == New) && m.builtin(l) && !l.Direct && !m.holds(l) && !l.Cancel && !l.Deleted && m.limited(l.Namespace) {
			list = append(list, l)
		}
	}
	return list
}

// first of a list, and the others.
func (m *model) first(list []Load) (Load, []Load) {
	best := 0
	for i := range list {
		if m.ahead(list[i], list[best]) {
			best = i
		}
	}
	l := list[best]
	return l, slices.Delete(list, best, best+1)
}

// start is who of the prepared ones on tight nodes may run.
func (m *model) start() (starts []string) {
	m.shares = map[string]int{} // a place on a node is nobody's share
	for _, node := range m.in.Topology.nodes {
		running, left := m.prepared(node.Name)
		for len(left) > 0 && m.allowed(node) >= 0 {
			var l Load
			l, left = m.first(left)
			if m.full(node, l.Namespace, starts) {
				continue
			}
			long := l.PreparedAt.IsZero() || !m.in.Time.Before(l.PreparedAt.Add(5*time.Minute))
			if running < m.allowed(node) || long || m.urgent(l) || l.Kind == DataDownload || l.Kind == PodVolumeRestore {
				starts = append(starts, l.UID)
				running++
			}
		}
	}
	return starts
}

// full: as many loads of a Velero run on a node, or were let, as its node-agent
// runs.
func (m *model) full(node Node, velero string, starts []string) bool {
	n := 0
	for _, l := range m.in.Loads {
		started := l.Started != nil && l.Started.Epoch == m.in.Veleros[velero].Epoch && l.Started.Node == l.Node
		runs := l.Phase == InProgress || l.Phase == Canceling || l.Phase == Prepared && started || slices.Contains(starts, l.UID)
		if l.Node == node.Name && l.Namespace == velero && m.builtin(l) && runs {
			n++
		}
	}
	return n >= node.Agents[velero].Concurrency
}

// prepared ones of a node that may be let start, and how many run or were let.
func (m *model) prepared(node string) (running int, left []Load) {
	for _, l := range m.in.Loads {
		v, known := m.in.Veleros[l.Namespace]
		started := l.Started != nil && l.Started.Epoch == v.Epoch && l.Started.Node == l.Node
		switch {
		case l.Node != node || !known || !m.builtin(l):
		case l.Phase == InProgress, l.Phase == Canceling, l.Phase == Prepared && started:
			running++
		case l.Phase == Prepared && !l.Cancel && !l.Deleted && !m.delayed(l):
			left = append(left, l)
		}
	}
	return running, left
}

// agree says what of a decision is not as it must be.
func agree(in Input) error {
	d := Decide(in)
	m := model{in: in}
	// Tickets that go back still count, and so the model knows nothing of them.
	admit, waits := m.decide()
	var gotAdmit []string
	gotWaits := map[string]Code{}
	for _, g := range d.Admit {
		gotAdmit = append(gotAdmit, g.UID)
	}
	for _, w := range d.Waiting {
		if w.Phase == Prepared {
			continue
		}
		gotWaits[w.UID] = w.Wait.Code
		if w.Wait.Sentence() == "" {
			return fmt.Errorf("%s waits without a sentence: %s", w.UID, w.Wait.Code)
		}
	}
	if !slices.Equal(admit, gotAdmit) {
		return fmt.Errorf("admitted %v, the model %v", gotAdmit, admit)
	}
	if fmt.Sprint(waits) != fmt.Sprint(gotWaits) {
		return fmt.Errorf("waits %v, the model %v", gotWaits, waits)
	}
	starts := m.start()
	var gotStarts []string
	for _, g := range d.Start {
		gotStarts = append(gotStarts, g.UID)
	}
	if slices.Sort(starts); !slices.Equal(starts, slices.Sorted(slices.Values(gotStarts))) {
		return fmt.Errorf("starts %v, the model %v", gotStarts, starts)
	}
	return nil
}

func TestAdmissionModel(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		require.NoError(t, agree(someWorld(r, r.IntN(24))), "seed %d", seed)
	}
}

func FuzzAdmission(f *testing.F) {
	f.Add(uint64(1), uint8(10))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		if err := agree(someWorld(rand.New(rand.NewPCG(seed, 2)), int(n%60))); err != nil {
			t.Error(err)
		}
	})
}
