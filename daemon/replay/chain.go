package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// chain is the agent's chain of a sample and a round, without its reads and
// writes.
type chain struct {
	history       snapshot.History
	set           *plugins.Set
	outerVerdicts []plugins.Verdict // last recorded verdicts of outer plugins

	agent    *config.Agent // in a dry run
	config   evict.Config
	memory   evict.State
	before   *plugins.Levels // of the last round
	previous *plugins.Levels // of the last sample
	rose     bool            // since the last round
	roundAt  time.Duration   // time of the last round, on the monotonic clock; 0: none
	log      evict.Log

	throttles map[throttle.Target]throttle.Throttle
}

// replayedBoot stands for the boot ID of a recording.
const replayedBoot = "replay"

// newChain takes over the baselines of the chain before it; may be nil.
func newChain(c *config.Agent, warmUp bool, before *chain) *chain {
	var learned plugins.Baselines
	if before != nil {
		learned = before.set.Baselines()
	}
	ch := &chain{
		history: snapshot.History{Window: c.Window, Keep: c.History, MaxGap: c.MaxGap()},
		set:     plugins.NewSet(c.Plugins.Inner, learned), config: c.Eviction, log: evict.Log{Max: 1},
	}
	if !warmUp {
		ch.set.SkipWarmUp()
	}
	ch.config.DryRun = true // a replay cannot evict
	agent := *c
	agent.Throttle.DryRun, agent.VGDP.DryRun = true, true // nor throttle
	ch.agent = &agent
	// The agent is assumed to have been running for a long time: its rate
	// limits are full, and no rule is report-only.
	ch.memory.RateLimits = evict.RateLimits{Boot: replayedBoot, Since: -time.Hour, Node: -time.Hour}
	ch.config.ReportOnly = 0
	return ch
}

// judge is the agent's sample, with the recorded verdicts of outer plugins.
func (c *chain) judge(s *snapshot.Sample) (*snapshot.Snapshot, *plugins.Levels) {
	snapshot := c.history.Add(s)
	c.recordVerdicts(s)
	levels := c.set.Judge(snapshot).With(c.outerVerdicts)
	c.rose = c.rose || c.previous != nil && levels.Rose(c.previous, plugins.Soft)
	c.previous = levels
	return snapshot, levels
}

// undecodedPlugins names a plugin in place of those whose recorded verdicts cannot be
// decoded.
const undecodedPlugins = "outer plugins"

func (c *chain) recordVerdicts(s *snapshot.Sample) {
	if s.OuterVerdicts == nil {
		return
	}
	c.outerVerdicts = nil
	if err := json.Unmarshal(s.OuterVerdicts, &c.outerVerdicts); err != nil {
		c.outerVerdicts = []plugins.Verdict{{Plugin: undecodedPlugins, Scope: "node", Since: s.Time, Absent: "cannot decode recorded verdicts: " + err.Error()}}
	}
}

// round is the agent's round, if one is due, or what its throttle loop does between two: who is
// throttled anew, and the decision; false if it did not change.
func (c *chain) round(s *snapshot.Snapshot, levels *plugins.Levels) (throttled []Throttling, d evict.Decision, changed bool) {
	now := s.Monotonic()
	since := now - c.roundAt
	hardened := c.before != nil && levels.Rose(c.before, plugins.Hard)
	due := c.roundAt == 0 || since >= c.config.Round || c.rose && since >= evict.MinRound || hardened
	runsOut := throttle.RunsOut(s, levels)
	if !due && !runsOut {
		return nil, evict.Decision{}, false
	}
	in := evict.Input{
		Time: s.Time, Uptime: s.Monotonic(), Boot: replayedBoot, Levels: levels, Before: c.before, Config: c.config, State: c.memory, Contention: s.Contention,
		Cluster: &evict.Cluster{Pods: pods.List{Synced: true}},
	}
	if anyLevel(levels) || runsOut || len(c.throttles) > 0 {
		in.Cluster.Pods.Pods = recordedPods(s, c.config.Protect, c.memory.Terminating)
	}
	throttled = c.throttle(s, levels, in.Cluster.Pods)
	if !due { // the agent's throttle loop waits for no round
		return throttled, evict.Decision{}, false
	}
	c.roundAt, c.rose, c.before = now, false, levels
	in.Levels, in.State = evict.RecallNamed(in)
	_, in.State = evict.Mark(in)
	d, m := evict.Decide(in)
	for i, some := d.Next(); some; i, some = d.Next() {
		m, _ = m.RecordChoice(in, &d, i)
		granted := evict.Answer{Time: in.Time, Outcome: evict.Evicted, DryRun: true}
		d.RecordAnswer(i, granted)
		m = m.RecordAnswer(granted, in.Config)
		d.More(in, m)
	}
	c.memory = m
	if !c.log.Add(d) {
		return throttled, evict.Decision{}, false
	}
	d = c.log.List()[0]
	for i := range d.Candidates {
		d.Candidates[i].Answers = nil // no request was sent
	}
	return throttled, d, true
}

// unlabelled: a recording does not have the labels of namespaces.
func unlabelled(string) string { return "" }

// throttle decides who would be throttled, and returns those that were not before.
func (c *chain) throttle(s *snapshot.Snapshot, levels *plugins.Levels, list pods.List) (began []Throttling) {
	before := c.throttles
	c.throttles = throttle.Next(before, throttle.NewInput(s, levels, c.agent.Throttleable(s, list, unlabelled), before))
	for _, t := range slices.SortedFunc(maps.Keys(c.throttles), throttle.Target.Compare) {
		was, there := before[t]
		if now := c.throttles[t]; now.InForce() && !(there && was.InForce()) {
			i := slices.IndexFunc(s.Workloads, func(w snapshot.WorkloadState) bool { return w.Cgroup == t.Cgroup })
			began = append(began, Throttling{Time: s.Time, Name: s.Workloads[i].Title(), Disk: t.Disk, Memory: t.Memory, Percent: now.Allowed(), Limit: now.Limits(), Reason: now.Why})
		}
	}
	return began
}

// another agent goes on: it had no rates at first, and no verdicts of outer plugins
// before its first round. Levels go on as if one agent had run throughout.
func (c *chain) another() {
	c.history.Break(Restarted)
	c.outerVerdicts = nil
}

func anyLevel(l *plugins.Levels) bool {
	for _, v := range l.Verdicts {
		if v.Level > plugins.None {
			return true
		}
	}
	return false
}

// recordedPods are the pods as far as the recording has them, protected by rules. terminating
// has when those that terminate were first seen to.
func recordedPods(s *snapshot.Snapshot, rules pods.Rules, terminating map[string]time.Time) []pods.Pod {
	var list []pods.Pod
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.PodUID == "" {
			continue
		}
		p := recordedPod(w, rules)
		if w.Pod != nil && w.Pod.Terminating {
			since, before := terminating[p.UID]
			if !before {
				since = s.Time
			}
			p.TerminatesBy, p.DeletionGraceSeconds = since.Add(defaultGrace), int64(defaultGrace/time.Second)
		}
		list = append(list, p)
	}
	return list
}

// defaultGrace is Kubernetes' default termination grace period, which stands for that of a
// pod: a recording does not have it.
const defaultGrace = 30 * time.Second

// recordedPod is a pod with its recorded facts, or otherwise by its UID, with
// its QoS class where the cgroup's name has it. Of what protects it a recording has that it is
// a mover, its namespace and its priority.
func recordedPod(w *snapshot.WorkloadState, rules pods.Rules) pods.Pod {
	p := pods.Pod{UID: w.PodUID, CgroupUID: w.PodUID, Namespace: "pod", Name: w.PodUID, Phase: "Running", LowQoS: w.BestEffort()}
	if p.LowQoS {
		p.QoS = "BestEffort"
	}
	known := w.Pod
	if known == nil {
		return p
	}
	p.Namespace, p.Name, p.QoS, p.LowQoS, p.Priority = known.Namespace, known.Name, known.QoS, known.LowQoS, known.Priority
	p.MemoryRequestBytes, p.CPURequestMillicores = known.MemoryRequestBytes, known.CPURequestMillicores
	if known.Mover {
		p.Protections = append(p.Protections, pods.Protection{Code: pods.Mover, Why: "it is a data mover pod of Velero, which would not notice its eviction"})
	}
	if int(known.Priority) >= rules.Priority {
		p.Protections = append(p.Protections, pods.Protection{Code: pods.Critical, Why: fmt.Sprintf("its priority %d is at or above %d", known.Priority, rules.Priority)})
	}
	if slices.Contains(rules.Namespaces, known.Namespace) {
		p.Protections = append(p.Protections, pods.Protection{Code: pods.Namespace, Why: fmt.Sprintf("namespace %s is protected", known.Namespace)})
	}
	return p
}
