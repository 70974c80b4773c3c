package agents

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// short of memory: what an agent asks for at hard, or below the floor.
func short(urgent bool) lease.Request {
	r := at(lease.LevelHard, "memory", "memory-stall")
	r.Urgent = urgent
	return r
}

// let go past a brake, so long ago, by a node of zone a.
func let(past Brake, node string, ago time.Duration) func(*Evaluation) {
	return func(g *Evaluation) {
		uid := fmt.Sprint(node, "/", len(g.PastEvictions))
		g.PastEvictions = append(g.PastEvictions, PastEviction{UID: uid, Owner: uid, Node: node, Zone: "a", Time: g.Time.Add(-ago), PastBrake: past})
	}
}

func allShort(g *Evaluation) { g.Pressed.Resources["memory"], g.Hard.Resources["memory"] = 100, 100 }

func lies(g *Evaluation) { g.Pressed.Plugins["files"], g.Hard.Plugins["files"] = 100, 100 }

func elsewhere(g *Evaluation) {
	for i := range g.PastEvictions {
		g.PastEvictions[i].Zone = "b"
	}
}

func TestBrake(t *testing.T) {
	t.Run("delays hard memory", brakeDelaysHardMemory)
	t.Run("few nodes delay no other", brakeFewNodesDelayNoOther)
	t.Run("wrong rule empties no zone", brakeWrongRuleEmptiesNoZone)
	t.Run("counts live nodes under pressure", brakeCountsLiveNodesUnderPressure)
	t.Run("holds while nodes collapse", brakeHoldsWhileNodesCollapse)
	t.Run("not ready node is no capacity", brakeNotReadyNodeIsNoCapacity)
	t.Run("passed is saved in Lease", brakePassedIsSavedInLease)
}

func brakeDelaysHardMemory(t *testing.T) {
	const minute, half = time.Minute, 30 * time.Second
	full := tainted(3, 2)
	again := func(g *Evaluation) {
		g.PastEvictions = []PastEviction{{UID: "p1", Node: "n", Zone: "a", Time: noon, PastBrake: BrakeCommon}}
	}
	ask := func(r lease.Request) PendingRequest { a := asking(); a.Request = r; return a }
	files := at(lease.LevelHard, "", "files")
	files.Urgent = true
	lying := short(true)
	lying.Plugin = "files"
	soft := at(lease.LevelSoft, "memory", "memory-stall")
	soft.Urgent = true
	for what, row := range map[string]struct {
		grounds *Evaluation
		ask     lease.Request
		code    Code
		past    Brake
		after   time.Duration
	}{
		"no brake stands":                            {calm(), short(false), "", "", 0},
		"a common cause, the first":                  {calm(allShort), short(false), "", BrakeCommon, 0},
		"the next one waits":                         {calm(allShort, let(BrakeCommon, "m", 9*minute+45*time.Second)), short(false), CodeCommon, "", 15 * time.Second},
		"and asks again before that":                 {calm(allShort, let(BrakeCommon, "m", 2*minute)), short(false), CodeCommon, "", half},
		"until its time is there":                    {calm(allShort, let(BrakeCommon, "m", 10*minute)), short(false), "", BrakeCommon, 0},
		"of another zone too":                        {calm(allShort, let(BrakeCommon, "m", 9*minute), elsewhere), short(false), CodeCommon, "", half},
		"who had one leaves the next to others":      {calm(allShort, let(BrakeCommon, "n", 10*minute)), short(false), CodeCommon, "", half},
		"for most of another such time":              {calm(allShort, let(BrakeCommon, "n", 18*minute)), short(false), CodeCommon, "", 30 * time.Second},
		"and then has it":                            {calm(allShort, let(BrakeCommon, "n", 20*minute)), short(false), "", BrakeCommon, 0},
		"for less of it as that is longer ago":       {calm(allShort, let(BrakeCommon, "n", 60*minute), let(BrakeCommon, "m", 14*minute+30*time.Second)), short(false), CodeCommon, "", 30 * time.Second},
		"and no more in the end":                     {calm(allShort, let(BrakeCommon, "n", 120*minute), let(BrakeCommon, "m", 10*minute)), short(false), "", BrakeCommon, 0},
		"what went by no brake does not count":       {calm(allShort, let("", "m", 0)), short(false), "", BrakeCommon, 0},
		"nor what a zone let go, in another":         {calm(allShort, full, let(BrakeZone, "m", 0), elsewhere), short(false), "", BrakeCommon, 0},
		"it does in that zone":                       {calm(allShort, full, let(BrakeZone, "m", 0)), short(false), CodeCommon, "", half},
		"nor what it let go before it had room":      {calm(allShort, let(BrakeZone, "m", 0)), short(false), "", BrakeCommon, 0},
		"a full zone waits for the other zones too":  {calm(allShort, full, let(BrakeCommon, "m", 9*minute), elsewhere), short(false), CodeCommon, "", half},
		"of what a node had its newest counts":       {calm(allShort, let(BrakeCommon, "n", 60*minute), let(BrakeCommon, "n", 20*minute)), short(false), "", BrakeCommon, 0},
		"who is asked for again comes after no one":  {calm(allShort, again), short(false), "", BrakeCommon, 0},
		"a full zone, the first":                     {calm(full), short(false), "", BrakeZone, 0},
		"and the next":                               {calm(full, let(BrakeZone, "m", 9*minute)), short(false), CodeZone, "", half},
		"a common cause took it":                     {calm(full, let(BrakeCommon, "m", 9*minute)), short(false), CodeZone, "", half},
		"another zone's does not count":              {calm(full, let(BrakeZone, "m", 9*minute), elsewhere), short(false), "", BrakeZone, 0},
		"below the floor it waits for no such one":   {calm(allShort, full, let(BrakeCommon, "m", 0), let(BrakeZone, "m", 0)), short(true), "", BrakeUrgent, 0},
		"but for one of its kind":                    {calm(allShort, full, let(BrakeUrgent, "m", 59*time.Second)), short(true), CodeCommon, "", time.Second},
		"of its zone":                                {calm(allShort, full, let(BrakeUrgent, "m", 0), elsewhere), short(true), "", BrakeUrgent, 0},
		"whichever brake stands":                     {calm(full, let(BrakeUrgent, "m", 59*time.Second)), short(true), CodeZone, "", time.Second},
		"and for so long":                            {calm(allShort, let(BrakeUrgent, "m", minute)), short(true), "", BrakeUrgent, 0},
		"those do not hold up what is not":           {calm(allShort, full, let(BrakeUrgent, "m", 0)), short(false), "", BrakeCommon, 0},
		"a budget is kept all the same":              {calm(allShort, full, went(0, ten...)), short(true), CodeCluster, "", 5 * minute},
		"memory at soft waits":                       {calm(allShort), at("soft", "memory", "memory-stall"), CodeCommon, "", half},
		"also where it says that it is urgent":       {calm(full), soft, CodeZone, "", half},
		"a disk waits":                               {calm(full), at("hard", "disk", "disk-contention"), CodeZone, "", half},
		"a plugin that names no resource waits":      {calm(full), files, CodeZone, "", half},
		"and one that says so of all nodes":          {calm(lies), files, CodeCommon, "", half},
		"also where it says that it is about memory": {calm(lies), lying, CodeCommon, "", half},
		"it keeps no other waiting":                  {calm(lies), short(false), "", "", 0},
	} {
		t.Run(what, func(t *testing.T) {
			got := row.grounds.Refuse(ask(row.ask))
			assert.Equal(t, row.code, got.Code, got.Why)
			assert.Equal(t, row.past, got.PastBrake)
			assert.Equal(t, row.after, got.RetryAfter)
			assert.Equal(t, got.Code == "", got.Why == "")
		})
	}
}

// brakedCluster is a zone whose nodes ask again and again for as long as they are pressed; each
// look is that of a new leader, who knows but what the Leases say.
type brakedCluster struct {
	now     time.Time
	agents  []Judged
	granted map[string]int
}

func newBrakedCluster(nodes int) *brakedCluster {
	p := &brakedCluster{now: noon, granted: map[string]int{}}
	for i := range nodes {
		a := made(fmt.Sprint("n", i), 0)
		a.Carried.Report.Pressure = map[string]string{"memory": lease.LevelHard}
		p.agents = append(p.agents, Judged{Agent: &a, State: Alive})
	}
	return p
}

// ask for one pod of a node.
func (p *brakedCluster) ask(node int, urgent bool) bool {
	s := DefaultSettings()
	g := NewEvaluation(p.now, s, &Judgement{Agents: p.agents}, History{ServerTime: p.now})
	g.Pods = 100_000
	a := &p.agents[node]
	r := short(urgent)
	r.UID = fmt.Sprint(a.Name, p.now.Unix())
	got := g.Refuse(PendingRequest{a, r})
	if got.Code != "" {
		return false
	}
	p.granted[a.Name]++
	note := lease.Answer{UID: r.UID, Owner: r.UID, PassedBrake: string(got.PastBrake), Result: lease.Accepted, At: lease.Micro(p.now)}
	a.Carried.Answers = Answers(p.now, s, a.Carried, []lease.Answer{note})
	return true
}

// Two of three nodes are pressed to hard for hours, and ask all the time: the third
// has what it asks for before long.
func brakeFewNodesDelayNoOther(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		most := DefaultSettings().Evictions.BrakedPer
		if urgent {
			most = DefaultSettings().Evictions.UrgentPer
		}
		for arrives := time.Hour; arrives < time.Hour+most; arrives += most / 4 {
			p := newBrakedCluster(3)
			waited := time.Duration(-1)
			for ; waited < 0; p.now = p.now.Add(2 * time.Second) {
				since := p.now.Sub(noon.Add(arrives))
				require.Less(t, since, most+2*time.Second, "urgent: %t", urgent)
				p.ask(0, urgent)
				p.ask(1, urgent)
				if since >= 0 && p.ask(2, urgent) {
					waited = since
				}
			}
		}
	}
}

// A rule is wrong, and everywhere at once.
func brakeWrongRuleEmptiesNoZone(t *testing.T) {
	for urgent, most := range map[bool]int{false: 6, true: 60} {
		p := newBrakedCluster(20)
		for ; p.now.Before(noon.Add(time.Hour)); p.now = p.now.Add(5 * time.Second) {
			for node := range p.agents {
				p.ask(node, urgent)
			}
		}
		sum := 0
		for _, n := range p.granted {
			sum += n
		}
		t.Logf("urgent %t: %d pods in an hour, of %d nodes", urgent, sum, len(p.granted))
		assert.Greater(t, len(p.granted), 3, "each in its turn")
		assert.LessOrEqual(t, sum, most)
		assert.Positive(t, sum)
	}
}

func brakeCountsLiveNodesUnderPressure(t *testing.T) {
	pressed := func(a *Agent) { a.Carried.Report.Pressure = map[string]string{"memory": lease.LevelHard} }
	for what, row := range map[string]struct {
		change func(*Judged)
		counts bool
	}{
		"it is up and pressed":            {func(*Judged) {}, true},
		"its agent is late":               {func(a *Judged) { a.State = Late }, true},
		"its agent is silent":             {func(a *Judged) { a.State = Silent }, false},
		"its kubelet is not ready":        {func(a *Judged) { kubelet(corev1.ConditionFalse)(a.Agent) }, true},
		"its kubelet is silent":           {func(a *Judged) { kubelet(corev1.ConditionUnknown)(a.Agent) }, true},
		"both are silent":                 {func(a *Judged) { kubelet(corev1.ConditionUnknown)(a.Agent); a.State = Silent }, false},
		"nobody says that it is ready":    {func(a *Judged) { a.Node.Status.Conditions = a.Node.Status.Conditions[1:] }, true},
		"its taint outlasts its pressure": {func(a *Judged) { a.Carried.Report.Pressure = nil }, false},
	} {
		t.Run(what, func(t *testing.T) {
			j := &Judgement{}
			for i := range 10 {
				a := made(fmt.Sprint("n", i), 0, pressed)
				is := Judged{Agent: &a, State: Alive}
				if i < 7 {
					row.change(&is)
				} else {
					untainted(&a)
					a.Carried.Report.Pressure = nil
				}
				j.Agents = append(j.Agents, is)
			}
			g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon})
			assert.Equal(t, row.counts, slices.Equal(g.Common(), []string{"memory"}), "common cause")
			assert.Equal(t, row.counts, g.full("a") != "", "zone")
			assert.Equal(t, g.Agents, g.Zones["a"].Nodes, "what is not known counts on neither side")
		})
	}
}

// A threshold is bad: nodes that are pressed become not ready, one after the other.
func brakeHoldsWhileNodesCollapse(t *testing.T) {
	for down := range 5 {
		j := &Judgement{}
		for i := range 10 {
			a := made(fmt.Sprint("n", i), 0, untainted)
			if i < 4 {
				a.Carried.Report.Pressure = map[string]string{"memory": lease.LevelHard}
			}
			if i < down {
				kubelet(corev1.ConditionFalse)(&a)
			}
			j.Agents = append(j.Agents, Judged{Agent: &a, State: Alive})
		}
		g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon})
		assert.Equal(t, []string{"memory"}, g.Common(), "%d are down", down)
		assert.Equal(t, Zone{Nodes: 10, Tainted: down}, g.Zones["a"], "what is down takes no pods")
	}
}

// Nodes without pressure that are not ready are no room for what is evicted.
func brakeNotReadyNodeIsNoCapacity(t *testing.T) {
	j := &Judgement{}
	for i := range 10 {
		a := made(fmt.Sprint("n", i), 0, untainted)
		if i < 4 {
			kubelet(corev1.ConditionUnknown)(&a)
		}
		j.Agents = append(j.Agents, Judged{Agent: &a, State: Alive})
	}
	g := NewEvaluation(noon, DefaultSettings(), j, History{ServerTime: noon})
	assert.Equal(t, Zone{Nodes: 6}, g.Zones["a"])
	assert.Equal(t, 10, g.Agents)
}

// What went past a brake stands in the Lease for as long as it counts, and a
// restart of the controller forgets none.
func brakePassedIsSavedInLease(t *testing.T) {
	s := newFixture(t)
	s.node("n", "web", "db")
	for _, name := range []string{"x", "y"} {
		s.node(name)
	}
	for name := range s.leases {
		require.NoError(t, s.r.cache.nodes.Update(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}))
		s.beat(name, map[string]string{lease.NodeAnnotation: `{"pressure":{"memory":"hard"}}`})
	}
	ask := func(app string) lease.Answer {
		r := short(false)
		r.UID, r.Name, r.Since = app, app, lease.Micro(noon.Add(time.Duration(len(s.written))*time.Second))
		s.asks("n", r)
		s.r.round(t.Context())
		list := s.answers("n")
		i := slices.IndexFunc(list, func(a lease.Answer) bool { return answersRequest(a, r) })
		require.GreaterOrEqual(t, i, 0, "%+v", list)
		return list[i]
	}
	first := ask("web")
	require.Equal(t, lease.Accepted, first.Result, first.Reason)
	assert.Equal(t, "common", first.PassedBrake)
	require.NotEmpty(t, s.written)
	assert.Contains(t, s.written[0], `"past":"common"`, "also in the note, before it is asked for")
	require.Len(t, s.r.journal.evictions, 1)
	assert.Equal(t, PastEviction{UID: "web", Owner: "shop/ReplicaSet/web", Node: "n", Zone: "a", Time: s.r.journal.evictions[0].Time, PastBrake: BrakeCommon}, s.r.journal.evictions[0])
	s.r.journal = newJournal() // of a new leader
	next := ask("db")
	assert.Equal(t, string(CodeCommon), next.Code)
	assert.Equal(t, 30, next.RetryAfterSeconds)
	assert.Contains(t, next.Reason, "3 of 3 nodes have hard pressure on memory")
	assert.Contains(t, next.Reason, "next eviction for memory at hard in ")
	old := lease.Answer{UID: "old", Owner: "o", Result: lease.Accepted, PassedBrake: "common", At: lease.Micro(noon.Add(-119 * time.Minute))}
	plain := old
	plain.UID, plain.PassedBrake = "plain", ""
	var kept []string
	for _, a := range Answers(noon, DefaultSettings(), lease.Content{Answers: []lease.Answer{old, plain}}, nil) {
		kept = append(kept, a.UID)
	}
	assert.Equal(t, []string{"old"}, kept)
	s.r.journal.evictions = []PastEviction{{UID: "old", Time: noon.Add(-119 * time.Minute), PastBrake: BrakeCommon}, {UID: "plain", Time: noon.Add(-119 * time.Minute)}}
	s.r.journal.prune(noon, noon, DefaultSettings(), &Judgement{})
	require.Len(t, s.r.journal.evictions, 1)
	assert.Equal(t, "old", s.r.journal.evictions[0].UID)
}

// An agent that is told when to ask again asks neither much earlier nor much later.
func TestRefusalRetryAfter(t *testing.T) {
	assert.Equal(t, time.Minute, calm(went(9*time.Minute, "shop/ReplicaSet/web")).RefusePod(asking(), pod()).RetryAfter)
	assert.Zero(t, calm(func(g *Evaluation) { g.FullDisruption = true }).Refuse(asking()).RetryAfter)
	s := newFixture(t)
	s.node("n", "web")
	s.answer = func() evict.Answer { return evict.Answer{Outcome: evict.Blocked, RetryAfter: 6500 * time.Millisecond} }
	s.asks("n", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	s.r.round(t.Context())
	require.Len(t, s.answers("n"), 1)
	assert.Equal(t, lease.Blocked, s.answers("n")[0].Result)
	assert.Equal(t, 7, s.answers("n")[0].RetryAfterSeconds)
}
