package vgdp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shopRepository is maintained each hour, the last time so long ago.
func shopRepository(ago time.Duration, change ...func(*Repository)) Repository {
	r := Repository{
		Namespace: "velero", Name: "shop-default-kopia", Key: RepositoryKey{"shop", "default"},
		FrequencyText: "1h0m0s", Frequency: time.Hour, Last: noon.Add(-ago),
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// postponedBy is a frequency of ours in the spec.
func postponedBy(set string) func(*Repository) {
	return func(r *Repository) {
		r.Postponed = &Postponed{Was: r.FrequencyText, Set: set}
		r.FrequencyText = set
		r.Frequency, _ = time.ParseDuration(set)
	}
}

func spec(text string) func(*Repository) {
	return func(r *Repository) {
		r.FrequencyText = text
		r.Frequency, _ = time.ParseDuration(text)
	}
}

func TestMaintenance(t *testing.T) {
	const inUse = "Backup nightly is running"
	for name, c := range map[string]struct {
		is   Repository
		why  string
		off  bool
		here bool   // off, for its Velero
		want string // what is written; empty: nothing
	}{
		"not due, in use":                                {is: shopRepository(58 * time.Minute), why: inUse},
		"due, not in use":                                {is: shopRepository(2 * time.Hour)},
		"due soon, in use":                               {is: shopRepository(59 * time.Minute), why: inUse, want: "1h29m0s was 1h0m0s"},
		"due, in use":                                    {is: shopRepository(2 * time.Hour), why: inUse, want: "2h30m0s was 1h0m0s"},
		"due, in use, switched off":                      {is: shopRepository(2 * time.Hour), why: inUse, off: true},
		"the last step is shorter":                       {is: shopRepository(6*time.Hour + 50*time.Minute), why: inUse, want: "7h0m0s was 1h0m0s"},
		"postponed for as long as possible":              {is: shopRepository(7 * time.Hour), why: inUse},
		"never maintained":                               {is: shopRepository(0, func(r *Repository) { r.Last = time.Time{} }), why: inUse},
		"no frequency yet":                               {is: shopRepository(time.Hour, spec("")), why: inUse},
		"a frequency of 0":                               {is: shopRepository(time.Hour, spec("0s")), why: inUse},
		"postponed far enough":                           {is: shopRepository(90*time.Minute, postponedBy("1h50m0s")), why: inUse},
		"postponed, to be renewed":                       {is: shopRepository(100*time.Minute, postponedBy("1h50m0s")), why: inUse, want: "2h10m0s was 1h0m0s"},
		"postponed to the latest":                        {is: shopRepository(6*time.Hour+55*time.Minute, postponedBy("7h0m0s")), why: inUse},
		"postponed to the latest, but for half a second": {is: shopRepository(6*time.Hour+55*time.Minute, spec("1h0m0.5s"), postponedBy("7h0m0s")), why: inUse},
		"postponed too long":                             {is: shopRepository(7*time.Hour, postponedBy("7h0m0s")), why: inUse, want: "1h0m0s"},
		"postponed, not in use any more":                 {is: shopRepository(90*time.Minute, postponedBy("1h50m0s")), want: "1h0m0s"},
		"postponed, was done all the same":               {is: shopRepository(time.Minute, postponedBy("1h50m0s")), why: inUse, want: "1h0m0s"},
		"postponed, switched off":                        {is: shopRepository(90*time.Minute, postponedBy("1h50m0s")), why: inUse, off: true, want: "1h0m0s"},
		"due, in use, its Velero is switched off":        {is: shopRepository(2 * time.Hour), why: inUse, here: true},
		"postponed, its Velero is switched off":          {is: shopRepository(90*time.Minute, postponedBy("1h50m0s")), why: inUse, here: true, want: "1h0m0s"},
		"a user changed it meanwhile":                    {is: shopRepository(90*time.Minute, postponedBy("1h50m0s"), spec("12h")), want: "stays"},
		"a user did, and it is due":                      {is: shopRepository(90*time.Minute, postponedBy("1h50m0s"), spec("10m")), why: inUse, want: "2h0m0s was 10m"},
		"a note that lengthens it":                       {is: shopRepository(90*time.Minute, func(r *Repository) { r.Postponed = &Postponed{Was: "9000h", Set: "1h0m0s"} }), want: "stays"},
		"a note that is none":                            {is: shopRepository(90*time.Minute, func(r *Repository) { r.Postponed = &Postponed{} }), want: "stays"},
		"a note of another frequency":                    {is: shopRepository(90*time.Minute, func(r *Repository) { r.Postponed = &Postponed{Was: "x", Set: "1h0m0s"} }), want: "stays"},
	} {
		t.Run(name, func(t *testing.T) {
			m := Maintenances{Enabled: !c.off, Off: map[string]bool{"velero": c.here}, Repositories: []Repository{c.is}}
			if c.why != "" {
				m.Use("velero", c.is.Key, c.why)
			}
			d := m.Decide(noon)
			if c.want == "" {
				assert.Empty(t, d.Writes)
				return
			}
			require.Len(t, d.Writes, 1)
			w := d.Writes[0]
			is := w.Text
			if w.Text == "" {
				is = "stays"
			}
			if w.Postponed != nil {
				assert.Equal(t, w.Text, w.Postponed.Set)
				assert.Equal(t, inUse, w.Why)
				is += " was " + w.Postponed.Was
			}
			assert.Equal(t, c.want, is)
		})
	}
}

func TestMaintenanceNodes(t *testing.T) {
	other := func(r *Repository) { r.Namespace, r.Last = "other", noon.Add(-3*time.Hour) }
	late, quiet := shopRepository(2*time.Hour), shopRepository(time.Minute)
	both := []Repository{late, shopRepository(0, other)}
	for name, c := range map[string]struct {
		repositories []Repository
		pressed      []string
		running      []MaintenancePod
		nodes        int
		inUse        string // the repositories of a Velero
		want         string
		away         []string
	}{
		"a calm cluster":                    {repositories: both, nodes: 2},
		"one node is under pressure":        {repositories: []Repository{late}, pressed: []string{"n1"}, nodes: 2, away: []string{"n1"}},
		"all are":                           {repositories: []Repository{late}, pressed: []string{"n1", "n2"}, nodes: 2, want: "velero: no node is available: 2 of 2 are under pressure (node n1: disk soft)"},
		"all are, and it is not due":        {repositories: []Repository{quiet}, pressed: []string{"n1", "n2"}, nodes: 2},
		"no node is known":                  {repositories: both, pressed: []string{"n1"}},
		"two Veleros, one node":             {repositories: both, nodes: 1, want: "velero: maintenances run, or are next, on all 1 nodes"},
		"one is in use, and needs no node":  {repositories: both, inUse: "other", nodes: 1, want: "other: in use"},
		"one runs on the only node":         {repositories: both, running: []MaintenancePod{{"velero", "n1"}}, nodes: 1, want: "other: maintenances run, or are next, on all 1 nodes"},
		"one runs, a node is left":          {repositories: both, running: []MaintenancePod{{"velero", "n1"}}, nodes: 2, away: []string{"n1"}},
		"one runs on a node under pressure": {repositories: []Repository{late}, running: []MaintenancePod{{"velero", "n1"}}, pressed: []string{"n1"}, nodes: 1, want: "velero: no node is available: 1 of 1 are under pressure (node n1: disk soft)"},
		"one is not scheduled yet":          {repositories: []Repository{late}, running: []MaintenancePod{{"velero", ""}}, nodes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := Maintenances{Enabled: true, Repositories: c.repositories, Running: c.running, Pressed: map[string]string{}}
			if c.inUse != "" {
				m.Use(c.inUse, late.Key, "in use")
			}
			for i := range c.nodes {
				m.Nodes = append(m.Nodes, fmt.Sprintf("n%d", i+1))
			}
			for _, node := range c.pressed {
				m.Pressed[node] = "disk soft"
			}
			d := m.Decide(noon)
			said := ""
			for _, p := range d.Postponed {
				said += p.Namespace + ": " + p.Why
			}
			assert.Equal(t, c.want, said)
			assert.Equal(t, c.away, d.Away)
			m.Enabled = false
			assert.Equal(t, MaintenanceDecision{}, m.Decide(noon), "switched off")
		})
	}
}

func TestMaintenanceInUse(t *testing.T) {
	shop := RepositoryKey{"shop", "default"}
	uses := func(l *Load) { l.Repository = shop }
	m := Maintenances{}
	m.AddInUse([]Load{
		load("new", DataUpload, uses), load("b", PodVolumeBackup, uses, in(Prepared)), load("a", DataDownload, uses, in(InProgress)),
		load("ended", DataUpload, uses, in(Completed)), load("unknown", DataUpload, in(InProgress)),
		load("stuck", DataUpload, in(Accepted), func(l *Load) { l.Repository.VolumeNamespace, l.Created = "old", at(-5*time.Hour) }),
	}, noon)
	assert.Equal(t, map[string]map[RepositoryKey]string{"velero": {shop: "DataDownload a is on its way"}}, m.InUse)
	m.Use("velero", shop, "Backup nightly is running")
	assert.Equal(t, "Backup nightly is running", m.InUse["velero"][shop], "always the same of several")
}

func TestRepositoryRelease(t *testing.T) {
	is := shopRepository(time.Hour)
	assert.Nil(t, is.Release(), "nothing is ours")
	is = shopRepository(time.Hour, postponedBy("1h50m0s"))
	assert.Equal(t, "1h0m0s", is.Release().HandedBack())
	is = shopRepository(time.Hour, postponedBy("1h50m0s"), spec("12h"))
	assert.Equal(t, "12h", is.Release().HandedBack(), "a user's stays")
}

// maintained is a cluster in which Velero does what its source says: it looks at each
// repository every 5 min and when its spec has changed, and waits for the Job that it
// starts before it looks at another.
type maintained struct {
	*rand.Rand
	now   time.Time
	m     Maintenances
	away  map[string]time.Time
	looks map[string]time.Time // when Velero looks at a repository next
	runs  map[string]*maintenanceRun
	began []maintenanceRun
}

type maintenanceRun struct {
	of         Repository
	node       string
	begin, end time.Time
}

const veleroLooks = 5 * time.Minute

func newMaintained(seed uint64) *maintained {
	c := &maintained{
		Rand: rand.New(rand.NewPCG(seed, 7)), now: noon,
		away: map[string]time.Time{}, looks: map[string]time.Time{}, runs: map[string]*maintenanceRun{},
	}
	c.m = Maintenances{Enabled: true, Pressed: map[string]string{}}
	for i := range 1 + c.IntN(3) {
		c.m.Nodes = append(c.m.Nodes, fmt.Sprintf("n%d", i+1))
	}
	for _, namespace := range []string{"other", "velero"}[c.IntN(2):] {
		for i := range 1 + c.IntN(3) {
			every := time.Duration(20+c.IntN(100)) * time.Minute
			r := Repository{
				Namespace: namespace, Name: fmt.Sprintf("%s-%d", namespace, i), Key: RepositoryKey{fmt.Sprint(i), "default"},
				Frequency: every, FrequencyText: every.String(), Last: noon.Add(-time.Duration(c.IntN(60)) * time.Minute),
			}
			c.m.Repositories = append(c.m.Repositories, r)
			c.looks[r.Name] = noon.Add(time.Duration(c.IntN(300)) * time.Second)
		}
	}
	return c
}

// round of the controller.
func (c *maintained) round() {
	d := c.m.Decide(c.now)
	c.away = map[string]time.Time{}
	for _, node := range d.Away {
		c.away[node] = c.now.Add(30 * time.Second)
	}
	for _, w := range d.Writes {
		w.Repository.Postponed = w.Postponed
		if w.Text != "" {
			w.FrequencyText = w.Text
			w.Frequency, _ = time.ParseDuration(w.Text)
			c.looks[w.Name] = c.now
		}
	}
}

// velero of a namespace looks at the repositories whose turn it is, until it starts a Job.
func (c *maintained) velero(namespace string) {
	for i := range c.m.Repositories {
		r := &c.m.Repositories[i]
		if r.Namespace != namespace || c.runs[namespace] != nil || c.now.Before(c.looks[r.Name]) {
			continue
		}
		c.looks[r.Name] = c.now.Add(veleroLooks)
		if !c.now.After(r.Last.Add(r.Frequency)) {
			continue
		}
		run := &maintenanceRun{of: *r, node: c.place(), begin: c.now, end: c.now.Add(time.Duration(1+c.IntN(25)) * time.Minute)}
		c.runs[namespace] = run
		c.began = append(c.began, *run)
		c.m.Running = append(c.m.Running, MaintenancePod{namespace, run.node})
	}
}

// place is a node that the policy leaves.
func (c *maintained) place() string {
	var possible []string
	for _, node := range c.m.Nodes {
		if !c.now.Before(c.away[node]) {
			possible = append(possible, node)
		}
	}
	return possible[c.IntN(len(possible))]
}

// step is 10 s.
func (c *maintained) step() {
	c.now = c.now.Add(10 * time.Second)
	for namespace, run := range c.runs {
		if run != nil && !c.now.Before(run.end) {
			c.runs[namespace] = nil
			c.m.Running = slices.DeleteFunc(c.m.Running, func(p MaintenancePod) bool { return p.Namespace == namespace })
			for i := range c.m.Repositories {
				if r := &c.m.Repositories[i]; r.Name == run.of.Name {
					r.Last = c.now
				}
			}
		}
	}
	for _, namespace := range []string{"other", "velero"} {
		c.round()
		c.velero(namespace)
	}
}

// toss makes nodes come under pressure and repositories come to be used, and end that, at
// random.
func (c *maintained) toss(using map[RepositoryKey]bool) {
	if node := c.m.Nodes[c.IntN(len(c.m.Nodes))]; c.IntN(120) == 0 {
		if c.m.Pressed[node] = "disk soft"; c.IntN(2) == 0 {
			delete(c.m.Pressed, node)
		}
	}
	if key := (RepositoryKey{fmt.Sprint(c.IntN(3)), "default"}); c.IntN(240) == 0 {
		if using[key] = true; c.IntN(2) == 0 {
			delete(using, key)
		}
	}
	c.m.InUse = nil
	for key := range using {
		c.m.Use("other", key, "in use")
		c.m.Use("velero", key, "in use")
	}
}

// inTime tells whether a maintenance began before it could not be postponed any more.
func (run *maintenanceRun) inTime() bool { return run.begin.Sub(run.of.due()) < MaxPostpone }

// mayBegin is why a maintenance must not have begun now; empty: it may.
func (c *maintained) mayBegin(run *maintenanceRun) string {
	switch {
	case run.begin.Before(run.of.due()):
		return "before it is due"
	case !run.inTime():
		return ""
	case c.m.InUse[run.of.Namespace][run.of.Key] != "":
		return "beside a Backup"
	case c.m.Pressed[run.node] != "":
		return "on a node under pressure"
	}
	for namespace, other := range c.runs {
		if namespace != run.of.Namespace && other != nil && other.node == run.node && other.inTime() {
			return "beside another one on its node"
		}
	}
	return ""
}

// What holds over hours in which nodes come under pressure and Backups run, as they like.
func TestMaintenanceDay(t *testing.T) {
	for seed := range uint64(6) {
		c := newMaintained(seed)
		using := map[RepositoryKey]bool{}
		for range 14 * 360 {
			c.toss(using)
			before := len(c.began)
			c.step()
			for i := range c.began[before:] {
				run := &c.began[before+i]
				require.Empty(t, c.mayBegin(run), "seed %d: %s on %s at %s", seed, run.of.Name, run.node, run.begin)
			}
		}
		require.NotEmpty(t, c.began)
	}
}

// A controller that ends at any moment leaves no maintenance postponed for longer than a
// step, and nothing else than a somewhat longer frequency.
func TestMaintenanceWithoutController(t *testing.T) {
	for seed := range uint64(12) {
		c := newMaintained(seed)
		own := map[string]time.Duration{}
		for i := range c.m.Repositories {
			r := &c.m.Repositories[i]
			c.m.Use(r.Namespace, r.Key, "Backup nightly is running")
			own[r.Name] = r.Frequency
		}
		for range c.IntN(8 * 360) {
			c.step()
		}
		for i := range c.m.Repositories {
			r := &c.m.Repositories[i]
			c.isSoonDue(t, r, own[r.Name])
		}
	}
}

// isSoonDue: without a controller a repository is due a step later at most, and its own
// frequency can be handed back.
func (c *maintained) isSoonDue(t *testing.T, r *Repository, own time.Duration) {
	t.Helper()
	latest := c.now
	if due := r.Last.Add(own); due.After(latest) {
		latest = due
	}
	assert.False(t, r.Last.Add(r.Frequency).After(latest.Add(PostponeStep)), "%s is due more than a step later", r.Name)
	assert.LessOrEqual(t, r.Frequency, own+MaxPostpone)
	if w := r.Release(); w != nil {
		assert.Equal(t, own.String(), w.HandedBack())
	} else {
		assert.Equal(t, own, r.Frequency)
	}
}

// Whatever an annotation says, handing back never makes a frequency longer, nor one that is
// none.
func FuzzPostponed(f *testing.F) {
	f.Add("1h", "2h", "2h")
	f.Add("-1h", "2h", "2h0m0s")
	f.Fuzz(func(t *testing.T, was, set, is string) {
		r := shopRepository(time.Hour, spec(is))
		r.Postponed = &Postponed{Was: was, Set: set}
		w := r.Release()
		if w == nil {
			t.Fatal("the annotation stays")
		}
		d, err := time.ParseDuration(w.HandedBack())
		if w.Text != "" && (err != nil || d <= 0 || d >= r.Frequency) {
			t.Errorf("%q is handed back as %q", is, w.Text)
		}
	})
}
