package evict

import (
	"slices"
	"time"
)

// alonePer is how often one pod goes without the controller, where that is
// allowed: enough that a node survives, too little to empty a cluster whose
// controller is away.
const alonePer = 10 * time.Minute

func aloneBucket() bucket { return bucket{1, alonePer} }

// mayAlone: the controller, which was asked for this pod and for nobody else in
// its place, has not answered for long enough, and one may go without it.
func (in Input) mayAlone(m Memory, asked *Chosen) bool {
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= in.Config.ViaFallbackAfter &&
		aloneBucket().left(m.Budgets.Alone, in.Uptime) > 0
}

// yield puts who may go without the controller before a pod that it was asked
// for in vain for another pressure: that one would else hold up what saves the
// node.
func (r *sitting) yield(list []Considered) {
	if len(list) == 0 || r.Config.DryRun || list[0].Pod == nil || list[0].Pod.UID != r.memory.Pending(r.Time) ||
		r.Config.Via != ViaController || !r.mayAlone(r.memory, r.memory.last()) || list[0].Asked.forMemory() {
		return
	}
	if i := slices.IndexFunc(list, func(c Considered) bool { return c.Code == "" && c.Asked.forMemory() }); i > 0 {
		first := list[i]
		copy(list[1:], list[:i])
		list[0] = first
	}
}
