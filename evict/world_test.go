package evict

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// env is a made-up node with its API server, in which anything may happen.
type env struct {
	random      *rand.Rand
	others      *rand.Rand // for what other components do
	now         time.Time
	born        int
	pods        []*living
	lists       []listed // what the API server listed lately, the newest last
	connectedAt listed   // what the agent heard last
	away        bool
	config      Config
	// strict budgets block most pods.
	strict float64
	// What the plugins say of memory and disk, and the kubelet of itself.
	memory, disk [2]plugins.Level // level, pressing
	target       float64          // of memory, to be given back
	floor        bool             // memory at hard is below its floor
	rules        map[string]plugins.Rule
	absent       bool
	kubelet      []string
	marked       string
}

// living is a pod as it really is.
type living struct {
	pods.Pod
	relief, traffic  float64
	blocked, refused bool
	// migrates is how long it takes to go in its own way when its eviction is requested;
	// 0: it ends as others do. moves is when it goes so.
	migrates time.Duration
	moves    time.Time
	// ours is when we evicted it, ends when it goes, failed when the kubelet ended
	// it, gone when it went.
	ours, ends, failed, gone time.Time
	// scopes that named it when it was asked for.
	scopes []string
}

// listed is what the API server listed at a time.
type listed struct {
	time time.Time
	pods []pods.Pod
}

func newWorld(seed uint64) *env {
	w := &env{random: rand.New(rand.NewPCG(seed, 1)), others: rand.New(rand.NewPCG(seed, 2)), now: at(0), config: DefaultConfig()}
	w.config.DryRun, w.config.OptOutHard = w.chance(0.2), []string{"strict"}
	w.config.Limits = []Limits{{1, 60, 3600}, {3, 60, 3600}, {3, 5, 60}, {2, 2, 4}}[w.random.IntN(4)]
	w.config.ReportOnly = time.Duration(w.random.IntN(2)) * time.Minute
	w.target, w.rules = []float64{10, 10, 45}[w.random.IntN(3)], map[string]plugins.Rule{}
	w.strict = []float64{0.2, 0.2, 0.9}[w.random.IntN(3)]
	for range 3 + w.random.IntN(12) {
		w.bear("")
	}
	w.pass(0)
	return w
}

func (w *env) chance(p float64) bool { return w.random.Float64() < p }

func (w *env) pick(of ...string) string { return of[w.random.IntN(len(of))] }

// bear makes a pod, of a StatefulSet where it has a name already.
func (w *env) bear(name string) {
	w.born++
	p := &living{relief: float64(w.random.IntN(40)), traffic: w.random.Float64()}
	p.Pod = pod(fmt.Sprint("u", w.born), priority(int32(w.random.IntN(3))))
	p.Owner.Name = w.pick("web-1", "web-2", "db-1")
	p.LowQoS, p.OptedOut = w.chance(0.3), map[bool]string{true: "a=b"}[w.chance(0.2)]
	p.Namespace, p.Phase = w.pick("shop", "strict"), w.pick("Running", "Running", "Running", "Pending", "Succeeded")
	p.GraceSeconds = int64(w.random.IntN(60))
	p.blocked, p.refused = w.chance(w.strict), w.chance(0.05)
	if w.chance(0.15) {
		p.Protections = []pods.Protection{{Code: pods.DaemonSet, Why: "of a DaemonSet"}}
	}
	if w.others.Float64() < 0.1 {
		p.migrates = time.Duration(5+w.others.IntN(240)) * time.Second
	}
	if name != "" {
		p.Name = name
	}
	w.pods = append(w.pods, p)
}

// end deletes a pod, which goes in time, late, or long after.
func (w *env) end(p *living, grace int64) {
	if !p.TerminatesBy.IsZero() {
		return
	}
	p.TerminatesBy = w.now.Add(time.Duration(grace) * time.Second)
	p.ends = w.now.Add(time.Duration(w.random.Int64N(grace+5)) * time.Second)
	if w.chance(0.1) {
		p.ends = p.ends.Add(5 * time.Minute)
	}
}

// pass lets time pass, and what happens in it happen.
func (w *env) pass(seconds int) {
	w.now = w.now.Add(time.Duration(seconds) * time.Second)
	for _, p := range slices.Clone(w.pods) {
		w.passFor(p)
	}
	if w.chance(0.1) {
		w.bear("")
	}
	w.change()
	l := listed{time: w.now}
	for _, p := range w.pods {
		if p.gone.IsZero() {
			l.pods = append(l.pods, p.Pod)
		}
	}
	w.lists = append(w.lists, l)
	if len(w.lists) > 4 {
		w.lists = w.lists[1:]
	}
}

// passFor is what happens to a pod.
func (w *env) passFor(p *living) {
	switch {
	case !p.gone.IsZero():
	case !p.moves.IsZero() && !p.moves.After(w.now):
		p.gone = w.now
	case !p.TerminatesBy.IsZero() && !p.ends.After(w.now):
		p.gone = w.now
		if w.chance(0.7) {
			w.bear(w.pick(p.Name, ""))
		}
	case w.chance(0.01):
		w.end(p, int64(w.random.IntN(90)))
	case w.chance(0.02): // deleted by force
		p.gone = w.now
	case w.chance(0.005) && p.failed.IsZero():
		p.Phase, p.StatusReason, p.failed = "Failed", "Evicted", w.now
		p.StatusMessage = w.pick(`Usage of EmptyDir volume "a" exceeds the limit "1Mi". `, "The node was low on resource: memory. ", "The node was low on resource: ephemeral-storage. ")
	case w.chance(0.02):
		p.blocked, p.OptedOut = !p.blocked, map[bool]string{true: "a=b"}[p.OptedOut == ""]
	case w.others.Float64() < 0.02: // another evicts it, or somebody says so
		p.EvictedElsewhere = map[bool]string{true: "annotation x"}[p.EvictedElsewhere == ""]
		if p.EvictedElsewhere != "" && w.others.Float64() < 0.5 {
			p.moves = w.now.Add(time.Duration(w.others.IntN(200)) * time.Second)
		}
	case w.chance(0.02):
		p.relief = float64(w.random.IntN(40))
	}
}

// change turns what is not about a pod.
func (w *env) change() {
	level := func() [2]plugins.Level {
		l := plugins.Level(w.random.IntN(3))
		if w.chance(0.6) {
			l = plugins.Hard
		}
		return [2]plugins.Level{l, max(plugins.None, l-plugins.Level(w.random.IntN(4)/2))}
	}
	if w.chance(0.2) {
		w.memory = level()
	}
	if w.chance(0.1) {
		w.disk = level()
	}
	if w.chance(0.1) {
		w.away = w.chance(0.3)
	}
	if w.chance(0.1) {
		w.absent, w.marked = w.chance(0.1), w.pick("", "", "", "", "conflict")
		w.config.Enabled = w.chance(0.9)
		w.kubelet = [][]string{nil, nil, nil, {"DiskPressure"}, {"MemoryPressure"}}[w.random.IntN(5)]
	}
	if w.chance(0.02) {
		w.config.DryRun = !w.config.DryRun
	}
	if w.chance(0.02) {
		w.config.DryRunPlugins = [][]string{nil, {"disk-contention"}, {"*", "-disk-contention"}}[w.random.IntN(3)]
	}
	if w.others.Float64() < 0.1 {
		w.floor = w.others.Float64() < 0.3
	}
	if w.chance(0.01) {
		w.rules["memory-stall"] = plugins.Rule{Hash: fmt.Sprint(w.now), Window: 20 * time.Second}
	}
}

// lag is how old at most a list and a cgroup may be.
const lag = 3 * time.Second

// cluster is what the agent sees: a list that may be seconds old, or as old as
// the API server is away.
func (w *env) cluster() *Cluster {
	c := &Cluster{Unmarked: w.marked, Node: Node{KubeletPressure: w.kubelet}}
	if w.away {
		c.Pods = pods.List{Pods: w.connectedAt.pods, Synced: !w.connectedAt.time.IsZero()}
		c.Node.ReadError = "away"
		if w.chance(0.7) { // it is noticed by the watch too
			c.Pods.StaleSince, c.Node.ReadError = w.connectedAt.time.Add(1), w.pick("", "away")
		}
		return c
	}
	newest := len(w.lists) - 1
	for newest > 0 && w.now.Sub(w.lists[newest-1].time) <= lag && !w.lists[newest-1].time.Before(w.connectedAt.time) && w.chance(0.5) {
		newest--
	}
	w.connectedAt = w.lists[newest]
	c.Pods = pods.List{Pods: w.connectedAt.pods, Synced: true}
	return c
}

// verdicts are what the plugins see, which is the truth about cgroups.
func (w *env) verdicts() []plugins.Verdict {
	memory, disk := pressing(), disk(w.disk[0])
	memory.Target = snapshot.Some(w.target)
	memory.Level, memory.MetLevel, disk.MetLevel = w.memory[0], w.memory[1], w.disk[1]
	disk.Whole = snapshot.Some(1.0)
	memory.Urgent = w.floor && memory.MetLevel == plugins.Hard
	if w.absent {
		memory.Absent = "no PSI"
	}
	for _, p := range w.pods {
		if !p.gone.IsZero() && w.now.Sub(p.gone) > lag {
			continue
		}
		if p.TerminatesBy.IsZero() || w.chance(0.5) { // who is ending gives back memory before it is gone
			memory.Candidates = append(memory.Candidates, named(p.UID, p.relief))
		}
		if w.chance(0.3) {
			c := named(p.UID, p.traffic)
			c.Unit = "ratio"
			disk.Candidates = append(disk.Candidates, c)
		}
	}
	memory.Candidates = append(memory.Candidates, named("nobody", 99), plugins.Candidate{Cgroup: "/big.service", Name: "big.service", Relief: 99})
	w.random.Shuffle(len(memory.Candidates), func(i, j int) {
		memory.Candidates[i], memory.Candidates[j] = memory.Candidates[j], memory.Candidates[i]
	})
	return []plugins.Verdict{memory, disk}
}

// evict is the API server: it does what it is asked for, and may not say so.
func (w *env) evict(v Victim, dryRun bool) Answer {
	a := Answer{Time: w.now, Outcome: UnknownOutcome, Text: "no answer", DryRun: dryRun}
	arrives := !w.away || w.chance(0.2)
	i := slices.IndexFunc(w.pods, func(p *living) bool { return p.UID == v.UID && p.gone.IsZero() })
	switch {
	case !arrives:
		return a
	case i < 0:
		a.Outcome = NotFound
	case !w.pods[i].TerminatesBy.IsZero(): // budgets do not count for who is ending
		a.Outcome = Evicted
	case w.pods[i].refused:
		a.Outcome = Refused
	case w.pods[i].blocked:
		a.Outcome = Blocked
		a.RetryAfter = time.Duration(w.random.IntN(3)*w.random.IntN(400)) * time.Second
	case w.pods[i].migrates > 0:
		a.Outcome = InProgress
		if !dryRun {
			w.migrate(w.pods[i])
		}
	default:
		a.Outcome = Evicted
		if !dryRun {
			w.pods[i].ours = w.now
			w.end(w.pods[i], v.GraceSeconds)
		}
	}
	if w.away || w.chance(0.1) {
		a.Outcome, a.RetryAfter = UnknownOutcome, 0
	}
	return a
}

// migrate lets a pod go in its own way, which some component marks on it. It is ours when
// it goes before a lost answer is given up.
func (w *env) migrate(p *living) {
	if p.moves.IsZero() {
		p.moves = w.now.Add(p.migrates)
	}
	if w.others.Float64() < 0.5 {
		p.EvictedElsewhere = "annotation x"
	}
	if p.moves.Sub(w.now) < 50*time.Second {
		p.ours = w.now
	}
}
