package evict

// Still says whether a round's choice holds at a later moment, just before it
// is carried out: in has the levels and pods as they are by then. Between the
// two lie calls that may be slow, a disk among them, and nobody is evicted for
// what was so before.
//
// Who has ended meanwhile, or begun to, counts as released by its amount. Where
// that is all that is missing the choice does not hold, and the Memory is m with
// that: it counts for no longer than what ends between two rounds.
func Still(in Input, m Memory, d *Decision, i int) (Memory, bool) {
	if !in.known() {
		return m, false
	}
	for _, hold := range []func() (Code, string){in.holdByLevel, in.holdByAge} {
		if code, _ := hold(); code != "" {
			return m, false
		}
	}
	chosen := d.Candidates[i]
	p, there := byUID(in.Cluster.Pods, chosen.Pod.UID)
	if !there || !p.GoneBy.Equal(chosen.Pod.GoneBy) || len(p.Protections) > 0 {
		return m, false
	}
	for _, c := range d.Candidates {
		if c.Pod == nil {
			continue
		}
		if _, there := byUID(in.Cluster.Pods, c.Pod.UID); !there {
			in.gone = append(in.gone, c)
		}
	}
	r := sit(in, in.Memory.look(in), in.rank(in.Memory))
	if code, _ := r.spareByVerdicts(&chosen); code != "" { // by now it is not asked for
		return r.settled(m), false
	}
	return m, true
}

// Outdated ends a round whose choice does not hold any more.
func (d *Decision) Outdated() {
	d.end(CodeStale, "pods or levels changed since the decision; the next round decides again")
}
