package evict

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Unevictable is, by outer plugin, how many of the pods that it named for its threshold
// cannot be evicted for a reason of their own: protected, blocked by a
// PodDisruptionBudget, refused. The plugin may name others in their place; what holds
// for the round, or for the plugin, is no reason to ask for more.
func Unevictable(decisions []Decision) map[string]int {
	n := map[string]int{}
	for i := range decisions {
		d := &decisions[i]
		for _, c := range d.Candidates {
			if c.Forced || !ofItsOwn(c.Code) || c.Code == CodeRateLimit && d.Code == CodeRateLimit {
				continue // the rate limit of the node is the round's, that of an owner the pod's
			}
			for _, plugin := range c.Plugins {
				n[plugin]++
			}
		}
	}
	for _, inner := range plugins.Names() {
		delete(n, inner)
	}
	return n
}

// ofItsOwn reports whether a code is about the candidate, and another one might be
// evicted in its place.
func ofItsOwn(code Code) bool {
	return !slices.Contains([]Code{
		CodeEvicted, CodeInProgress, CodeWouldEvict, CodeEnded, CodeStandalone, CodeOff, CodeSoft, CodeLatched, CodeNoCandidate, CodeStale, CodeKubelet,
		CodeReportOnly, CodeGrace, CodeRelief, CodeTaint, CodeTerminating, CodeCooldown, CodeBrake, CodeState, CodeNone,
		CodeTerminated, CodeUnknownOutcome, CodeNext, CodeRoundLimit, CodeNotNeeded, "",
	}, code)
}
