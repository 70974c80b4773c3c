package evict

// Recheck rechecks a round's choice just before it is carried out: in has the levels
// and pods of that moment. Calls in between, such as saving the state to a disk,
// may be slow, and no pod is evicted for an old state.
//
// Pods that terminated meanwhile, or began to, are credited. If they cover the
// release target, the choice no longer holds, and the returned state is m with
// these credits.
func Recheck(in Input, m State, d *Decision, i int) (State, bool) {
	if !in.clusterKnown() {
		return m, false
	}
	for _, hold := range []func() (Code, string){in.holdByLevel, in.holdByAge} {
		if code, _ := hold(); code != "" {
			return m, false
		}
	}
	chosen := d.Candidates[i]
	p, there := byUID(in.Cluster.Pods, chosen.Pod.UID)
	if !there || !p.TerminatesBy.Equal(chosen.Pod.TerminatesBy) || p.EvictedElsewhere != chosen.Pod.EvictedElsewhere || len(p.Protections) > 0 {
		return m, false
	}
	for _, c := range d.Candidates {
		if c.Pod == nil {
			continue
		}
		if _, there := byUID(in.Cluster.Pods, c.Pod.UID); !there {
			in.terminated = append(in.terminated, c)
		}
	}
	now := in.State.observe(in)
	r := evaluate(in, now, rank(in, now))
	if code, _ := r.skipByVerdicts(&chosen); code != "" { // no verdict asks for it any more
		return r.withCooldowns(m), false
	}
	return m, true
}
