package evict

// Recheck rechecks a round's choice just before it is carried out: in has the levels
// and pods of that moment. Calls in between, such as saving the state to a disk,
// may be slow, and no pod is evicted for an old state.
//
// Pods that terminated meanwhile, or began to, are credited. If they cover the
// release target, the choice no longer holds, and the returned state is m with
// these credits.
//
// What only the owner of the chosen pod has changed costs that pod alone, since an owner can
// change it at any moment and must not end the round for all others: one that is protected
// now has that code, and the round goes on with the next, unless its eviction may have been
// accepted already.
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
	if !there {
		return m, false
	}
	if len(p.Protections) > 0 {
		if m.Pending(in.Time) != p.UID {
			d.Candidates[i].Code, d.Candidates[i].Reason = protection(&p)
		}
		return m, false
	}
	chosen.Pod = &p
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
	if code, _ := r.skipByPod(&chosen); code != "" { // it has ended, or ends by other means
		return m, false
	}
	if code, _ := r.skipByVerdicts(&chosen); code != "" { // no verdict asks for it any more
		return r.withCooldowns(m), false
	}
	return m, true
}
