package replay

import (
	"encoding/json"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// chain is the agent's own: its sample and its round, without what they read
// and without what they write.
type chain struct {
	history probes.History
	set     *plugins.Set
	said    []plugins.Verdict // by outer plugins, as it was recorded last

	config evict.Config
	memory evict.Memory
	before *plugins.Levels // of the last round
	was    *plugins.Levels // of the last sample
	rose   bool            // since the last round
	at     time.Duration   // when that was, on the monotonic clock; 0: never
	log    evict.Log
}

// replayedBoot is the boot ID of what is played.
const replayedBoot = "replay"

// newChain goes on with what one before it has learned; nil: there was none.
func newChain(c *config.Agent, warmUp bool, before *chain) *chain {
	var learned plugins.Baselines
	if before != nil {
		learned = before.set.Usual()
	}
	ch := &chain{
		history: probes.History{Window: c.Window, Keep: c.History, MaxGap: c.MaxGap()},
		set:     plugins.NewSet(c.Plugins.Inner, learned), config: c.Eviction, log: evict.Log{Max: 1},
	}
	if !warmUp {
		ch.set.Warm()
	}
	ch.config.DryRun = true // nobody can be evicted in the past
	// The agent is taken to have run for long: its budgets are full and its rules
	// are no new ones.
	ch.memory.Budgets = evict.Budgets{Boot: replayedBoot, Since: -time.Hour, Node: -time.Hour}
	ch.config.ReportFirst = 0
	return ch
}

// judge is the agent's sample, with what outer plugins said at that time.
func (c *chain) judge(s *probes.Sample) (*probes.Snapshot, *plugins.Levels) {
	snapshot := c.history.Add(s)
	c.hear(s)
	levels := c.set.Judge(snapshot).Beside(c.said)
	c.rose = c.rose || c.was != nil && levels.Rose(c.was, plugins.Soft)
	c.was = levels
	return snapshot, levels
}

// unread is what stands for plugins whose recorded words cannot be read.
const unread = "outer plugins"

func (c *chain) hear(s *probes.Sample) {
	if s.Said == nil {
		return
	}
	c.said = nil
	if err := json.Unmarshal(s.Said, &c.said); err != nil {
		c.said = []plugins.Verdict{{Plugin: unread, Scope: "node", Since: s.Time, Absent: "cannot decode recorded verdicts: " + err.Error()}}
	}
}

// round is the agent's, at this sample if one is due; false when nothing new
// was decided.
func (c *chain) round(s *probes.Snapshot, levels *plugins.Levels) (evict.Decision, bool) {
	now := s.Monotonic()
	since := now - c.at
	hardened := c.before != nil && levels.Rose(c.before, plugins.Hard)
	if c.at > 0 && since < c.config.Round && !(c.rose && since >= evict.MinRound) && !hardened {
		return evict.Decision{}, false
	}
	c.at, c.rose = now, false
	in := evict.Input{
		Time: s.Time, Uptime: s.Monotonic(), Boot: replayedBoot, Levels: levels, Before: c.before, Config: c.config, Memory: c.memory, Contention: s.Contention,
		Cluster: &evict.Cluster{Pods: pods.List{Synced: true}},
	}
	if met(levels) {
		in.Cluster.Pods.Pods = recordedPods(s)
	}
	c.before = levels
	in.Levels, in.Memory = evict.Recall(in)
	_, in.Memory = evict.Mark(in)
	d, m := evict.Decide(in)
	for i, some := d.Next(); some; i, some = d.Next() {
		m, _ = m.Choose(in, &d, i)
		granted := evict.Answer{Time: in.Time, Outcome: evict.Evicted, DryRun: true}
		d.Answered(i, granted)
		m = m.Answered(granted, in.Config)
		d.Candidates[i].Answers = nil // nobody was asked
		d.More(in, m)
	}
	c.memory = m
	if !c.log.Add(d) {
		return evict.Decision{}, false
	}
	return c.log.List()[0], true
}

func met(l *plugins.Levels) bool {
	for _, v := range l.Verdicts {
		if v.Level > plugins.None {
			return true
		}
	}
	return false
}

// recordedPods are the pods as far as a recording knows them.
func recordedPods(s *probes.Snapshot) []pods.Pod {
	var list []pods.Pod
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.PodUID == "" {
			continue
		}
		list = append(list, recordedPod(w))
	}
	return list
}

// recordedPod is a pod as the API server told of it, or else by its UID, and of
// the lowest class where its cgroup's name tells it. Of what protects a pod only
// that it moves data is recorded.
func recordedPod(w *probes.WorkloadState) pods.Pod {
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
		p.Protections = []pods.Protection{{Code: pods.Mover, Why: "it is a data mover pod of Velero, which would not notice its eviction"}}
	}
	return p
}
