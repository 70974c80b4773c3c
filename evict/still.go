package evict

// Still says whether a round's choice holds at a later moment, just before it
// is carried out: in has the levels and pods as they are by then. Between the
// two lie calls that may be slow, a disk among them, and nobody is evicted for
// what was so before.
func Still(in Input, d *Decision, i int) bool {
	if !in.known() {
		return false
	}
	for _, hold := range []func() (Code, string){in.holdByLevel, in.holdByAge} {
		if code, _ := hold(); code != "" {
			return false
		}
	}
	chosen := d.Candidates[i]
	p, there := byUID(in.Cluster.Pods, chosen.Pod.UID)
	if !there || !p.GoneBy.Equal(chosen.Pod.GoneBy) || len(p.Protections) > 0 {
		return false
	}
	r := sit(in, in.Memory.look(in), in.rank(in.Memory))
	if code, _ := r.spareByVerdicts(&chosen); code != "" { // by now it is not asked for
		return false
	}
	for i := range d.Candidates { // another one may have begun to end
		c := &d.Candidates[i]
		if c.Pod == nil || c.Pod.UID == p.UID || c.goes() || !c.Pod.GoneBy.IsZero() || c.Code == CodeTooSmall {
			continue
		}
		if now, there := byUID(in.Cluster.Pods, c.Pod.UID); !there || !now.GoneBy.IsZero() {
			return false
		}
	}
	return true
}

// Outdated ends a round whose choice does not hold any more.
func (d *Decision) Outdated() {
	d.end(CodeStale, "what was decided by has changed meanwhile: the next round decides anew")
}
