package web

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// contentionSeries is how many devices have series, those with contention
// first. plimsoll_contention_resources has the total.
const contentionSeries = 16

// appendContention appends the series of contention. Workloads have series only
// during contention: at most ten culprits and ten sufferers of each device.
func appendContention(b []byte, s *view.State) []byte {
	all := view.Contention(s)
	if len(all) == 0 {
		return b
	}
	b = appendFamilies(b, []uint64{uint64(len(all))}, noLabels, []family[uint64]{
		{
			"plimsoll_contention_resources", gauge, "Disks, links and CPUs in use, and memory while it is under pressure; the first 16 have series, those with contention first.",
			func(b []byte, n *uint64) []byte { return appendCount(b, *n) },
		},
	})
	list := all[:min(contentionSeries, len(all))]
	b = appendFamilies(b, list, func(b []byte, c *snapshot.Contention) []byte { return append(appendContended(append(b, '{'), c), '}') }, []family[snapshot.Contention]{
		{
			"plimsoll_contention_state", gauge, "1 while a workload waits for what others do, 0 while none does but pods of the lowest class (low QoS or mover); absent while the kernel does not tell.",
			func(b []byte, c *snapshot.Contention) []byte {
				return appendContentionState(b, c.State)
			},
		},
		{
			"plimsoll_contention_coverage_ratio", gauge, "Share of the traffic that workloads account for.",
			func(b []byte, c *snapshot.Contention) []byte { return appendOptFloat(b, c.Coverage) },
		},
	})
	return appendParties(b, s, list)
}

// appendContentionState appends no 0 for an unknown state.
func appendContentionState(b []byte, s snapshot.ContentionState) []byte {
	if s == snapshot.ContentionUnknown {
		return b
	}
	return appendBool(b, s == snapshot.ContentionPresent)
}

// appendContended appends the contended resource as the last labels. Memory has no
// device.
func appendContended(b []byte, c *snapshot.Contention) []byte {
	b = appendPair(b, "resource", string(c.Resource))
	if c.Device == "" {
		return b
	}
	return appendPair(append(b, ','), "device", c.Device)
}

// partySeries is a workload on one device.
type partySeries struct {
	labels string // of the workload, without the closing brace
	on     *snapshot.Contention
	value  float64
}

func (p *partySeries) append(b []byte) []byte {
	return append(appendContended(append(append(b, p.labels...), ','), p.on), '}')
}

func appendParties(b []byte, s *view.State, list []snapshot.Contention) []byte {
	labels := partyLabels(s, list)
	var culprits, sufferers []partySeries
	for i := range list {
		c := &list[i]
		// Sufferers of a link are never known, but its culprits are.
		if c.State != snapshot.ContentionPresent && c.Resource != snapshot.SharedNetwork {
			continue
		}
		for _, p := range c.Culprits {
			culprits = append(culprits, partySeries{labels[p.Cgroup], c, p.Share})
		}
		for _, p := range c.Sufferers {
			sufferers = append(sufferers, partySeries{labels[p.Cgroup], c, p.Waited})
		}
	}
	label := func(b []byte, p *partySeries) []byte { return p.append(b) }
	value := func(b []byte, p *partySeries) []byte { return appendFloat(b, p.value) }
	b = appendFamilies(b, culprits, label, []family[partySeries]{
		{"plimsoll_contention_culprit_share_ratio", gauge, "A workload's share of the traffic in the window, during contention, on links at any time; at most 10 for each device.", value},
	})
	return appendFamilies(b, sufferers, label, []family[partySeries]{
		{"plimsoll_contention_sufferer_waited_ratio", gauge, "Share of the window in which a workload waited for what others do; at most 10 for each device.", value},
	})
}

// partyLabels are the labels of the workloads by cgroup, as in the series of
// single pods. Where two cgroups belong to one pod, both have their cgroup as
// well.
func partyLabels(s *view.State, list []snapshot.Contention) map[string]string {
	names, owners := map[string]podName{}, map[podName]int{}
	add := func(p snapshot.Party) {
		if _, known := names[p.Cgroup]; !known {
			n := nameOf(p.PodUID, p.Cgroup, s.Cluster)
			names[p.Cgroup] = n
			owners[n]++
		}
	}
	for _, c := range list {
		for _, p := range c.Culprits {
			add(p.Party)
		}
		for _, p := range c.Sufferers {
			add(p.Party)
		}
	}
	labels := make(map[string]string, len(names))
	for cgroup, n := range names {
		if owners[n] > 1 {
			n.cgroup = cgroup
		}
		labels[cgroup] = n.labels()
	}
	return labels
}
