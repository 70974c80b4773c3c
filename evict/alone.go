package evict

import (
	"slices"
	"time"
)

// alonePer is the interval of the token bucket for evictions without the
// controller (ViaFallback): often enough that a node survives, too seldom to
// empty a cluster whose controller is down.
const alonePer = 10 * time.Minute

func aloneBucket() bucket { return bucket{1, alonePer} }

// mayAlone reports whether the agent may evict the pod itself: the controller
// has left the request for it unanswered for ViaFallbackAfter, and the bucket of
// such evictions has a token.
func (in Input) mayAlone(m Memory, asked *Chosen) bool {
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= in.Config.ViaFallbackAfter &&
		aloneBucket().left(m.Budgets.Alone, in.Uptime) > 0
}

// yield moves a candidate that may be evicted without the controller before one
// whose request, for another pressure, was left unanswered. The unanswered one
// would otherwise block the eviction that saves the node.
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
