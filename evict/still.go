package evict

// Still says whether a round's choice holds at a later moment, just before it
// is carried out: in has the levels and pods as they are by then. Between the
// two lie calls that may be slow, a disk among them, and nobody is evicted for
// what was so before.
func Still(in Input, d *Decision, v Victim) bool {
	if in.Cluster == nil || !in.known() {
		return false
	}
	for _, hold := range []func() (Code, string){in.holdByLevel, in.holdByAge} {
		if code, _ := hold(); code != "" {
			return false
		}
	}
	p, there := byUID(in.Cluster.Pods, v.UID)
	if !there || !p.GoneBy.IsZero() || len(p.Protections) > 0 {
		return false
	}
	for i := range d.Candidates { // another one may have begun to end
		c := &d.Candidates[i]
		if c.Pod == nil || c.Pod.UID == v.UID || !c.Pod.GoneBy.IsZero() || c.Code == CodeTooSmall {
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
	d.Code, d.Reason = CodeStale, "what was decided by has changed meanwhile: the next round decides anew"
	d.rest(CodeNext, d.Code, d.Reason)
}
