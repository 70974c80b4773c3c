package evict

import (
	"slices"
	"time"
)

// fallbackInterval is the interval of the token bucket for evictions without the
// controller (ViaFallback): often enough that a node survives, too seldom to
// empty a cluster whose controller is down.
const fallbackInterval = 10 * time.Minute

func fallbackBucket() tokenBucket { return tokenBucket{1, fallbackInterval} }

// mayFallBack reports whether the agent may evict the pod itself: the controller
// has left the request for it unanswered for ViaFallbackAfter, and the bucket of
// such evictions has a token.
func mayFallBack(in Input, m State, asked *Chosen) bool {
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= in.Config.ViaFallbackAfter &&
		fallbackBucket().left(m.RateLimits.Fallback, in.Uptime) > 0
}

// preferWithoutController moves a candidate that may be evicted without the controller before one
// whose request, for another pressure, was left unanswered. The unanswered one
// would otherwise block the eviction that saves the node.
func preferWithoutController(r *evaluation, list []Considered) {
	l := r.state.pending(r.Time)
	if len(list) == 0 || r.Config.DryRun || l == nil || list[0].Pod == nil || list[0].Pod.UID != l.UID ||
		r.Config.Via != ViaController || !mayFallBack(r.Input, r.state, l) || list[0].For.hardMemory() {
		return
	}
	if i := slices.IndexFunc(list, func(c Considered) bool { return c.Code == "" && c.For.hardMemory() }); i > 0 {
		first := list[i]
		copy(list[1:], list[:i])
		list[0] = first
	}
}
