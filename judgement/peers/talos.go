package peers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// talosNode is the clause of Talos 1.13's default triggerExpression that is about the
// whole node: memory_full_avg10 > 75.0 && time_since_trigger > duration("10s").
// Talos evaluates it every 500 ms (defaultSampleInterval; the 100 ms of the page are an
// example), a recording has a sample each second. One trigger kills one cgroup.
type talosNode struct {
	full      averages
	most      float64 // of avg10, so far
	triggered trigger
}

const (
	talosNodePercent = 75
	talosNodePause   = 10 * time.Second
)

const talosSource = "Talos 1.13.2, default of OOMConfig (https://docs.siderolabs.com/talos/v1.13/reference/configuration/runtime/oomconfig; the clause of the node was dropped later: https://github.com/siderolabs/talos/pull/13895): "

// trigger is an action that pauses after each time it was taken.
type trigger struct {
	at    time.Duration
	taken bool
}

// take reports whether the action is taken now.
func (t *trigger) take(now, pause time.Duration) bool {
	if t.taken && now-t.at <= pause {
		return false
	}
	t.at, t.taken = now, true
	return true
}

func talosWholeNode() judgement.Rule {
	return judgement.Rule{
		Name:      "Talos, node clause",
		Source:    talosSource + "memory full avg10 of the node above 75 %, 10 s after the last time",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard,
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &talosNode{} },
	}
}

func (t *talosNode) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	if !t.full.add(s.Monotonic, s.Pressure.Memory.Full) {
		return nil, lacksMemoryPSI
	}
	t.most = max(t.most, t.full.avg10)
	if t.full.avg10 > talosNodePercent && t.triggered.take(s.Monotonic, talosNodePause) {
		list = append(list, talosAnswer(s))
	}
	return list, ""
}

// Near is how near it came.
func (t *talosNode) Near() string { return fmt.Sprintf("avg10 at most %.0f %%", t.most) }

// talosWhole is the whole default triggerExpression of Talos 1.13.2: the clause of the
// node, or
//
//	multiply_qos_vectors(d_qos_memory_full_total, {System: 8.0, Podruntime: 4.0}) > 3000.0 &&
//	multiply_qos_vectors(qos_memory_full_avg10, {System: 1.0, Podruntime: 1.0}) > 5.0
//
// where System are the cgroups init and system, and Podruntime is podruntime; totals
// are in µs, and d_ is their growth in a second, which Talos takes of 500 ms and a
// recording of a sample. What a cgroup stalls is not the sum of what is in it, so that
// this needs the pressure of these cgroups themselves. Talos reads a cgroup that is not
// there as zeros: elsewhere its rule is the clause of the node, which is judged by itself.
type talosWhole struct {
	node talosNode
	of   map[string]*growth
}

// growth of the total of one cgroup.
type growth struct {
	averages
	perSecond float64 // µs
}

const (
	talosGrowth  = 3000
	talosPercent = 5
	lacksTalos   = "memory.pressure of the cgroups init, system and podruntime of Talos"
)

// talosWeights are those of the growth, by cgroup.
func talosWeights() map[string]float64 {
	return map[string]float64{"/init": 8, "/system": 8, "/podruntime": 4}
}

func talosRule() judgement.Rule {
	return judgement.Rule{
		Name:      "Talos",
		Source:    talosSource + "that, or memory full of the system and podruntime cgroups: avg10 above 5 % together while their weighted totals grow by more than 3 ms a second",
		Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard,
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge {
			return &talosWhole{of: map[string]*growth{}}
		},
	}
}

func (t *talosWhole) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	grown, avg10 := 0.0, 0.0
	for path, weight := range talosWeights() {
		i := slices.IndexFunc(s.Workloads, func(w snapshot.Workload) bool { return w.Cgroup == path })
		if i < 0 {
			return nil, lacksTalos
		}
		g := t.of[path]
		if g == nil {
			g = &growth{}
			t.of[path] = g
		}
		if !g.next(s.Monotonic, s.Workloads[i].Pressure.Memory.Full) {
			return nil, lacksTalos
		}
		grown, avg10 = grown+weight*g.perSecond, avg10+g.avg10
	}
	list, lacks = t.node.Judge(s)
	if lacks == "" && len(list) == 0 && grown > talosGrowth && avg10 > talosPercent {
		t.node.triggered.at, t.node.triggered.taken = s.Monotonic, true
		list = append(list, talosAnswer(s))
	}
	return list, lacks
}

// next takes the total of a sample; false: it lacks it.
func (g *growth) next(at time.Duration, stall snapshot.Opt[uint64]) bool {
	before, was, begun := g.total, g.at, g.begun
	if !g.add(at, stall) {
		return false
	}
	if begun && at > was {
		g.perSecond = (g.total - before) / (at - was).Seconds()
	}
	return true
}

// talosAnswer names the cgroups in the order of the default cgroupRankingExpression:
//
//	memory_max.hasValue() ? 0.0 : {Besteffort: 1.0, Burstable: 0.5, Guaranteed: 0.0,
//	Podruntime: 0.0, System: 0.0}[class] * double(memory_current.orValue(0u))
//
// One with a score of 0 is not named: where all have 0, Talos takes any of them.
func talosAnswer(s *snapshot.Sample) judgement.Answer {
	type ranked struct {
		name  string
		score float64
	}
	var all []ranked
	for i := range s.Workloads {
		if score := talosScore(&s.Workloads[i]); score > 0 {
			all = append(all, ranked{s.Workloads[i].Cgroup + " " + s.Workloads[i].PodUID, score})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(b.score, a.score) })
	a := node(plugins.Memory, plugins.Hard)
	for _, r := range all {
		a.Named = append(a.Named, r.name)
	}
	return a
}

func talosScore(w *snapshot.Workload) float64 {
	if _, limited := w.MemoryLimitBytes.Get(); limited {
		return 0
	}
	weight := 0.0
	switch {
	case w.PodUID == "":
	case strings.Contains(strings.ToLower(w.Cgroup), "besteffort"):
		weight = 1
	case strings.Contains(strings.ToLower(w.Cgroup), "burstable"):
		weight = 0.5
	}
	bytes, _ := w.MemoryBytes.Get()
	return weight * float64(bytes)
}
