package evict

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// endsRound reports whether an answer makes the node's state unclear, so that no
// further eviction follows in this round.
func endsRound(c Considered) bool { return c.Code == CodeTerminated || c.Code == CodeUnknownOutcome }

// further is the evaluation of what is evicted beside the accepted evictions of a
// round: its decision so far, and the state with its choices.
type further struct {
	*evaluation
	decision *Decision
	chosen   State
}

// skipFurther is why a candidate is not evicted beside those of this round.
func (r further) skipFurther(c *Considered) (Code, string) {
	if code, why := r.notNeeded(c); code != "" {
		return code, why
	}
	if n := r.Config.Limits.PerRound; r.decision.accepted() >= n {
		return CodeRoundLimit, fmt.Sprintf("limit of %d evictions per round reached; left for a later round, if still needed", n)
	}
	if code, why := nodeRateLimit(r.Input, r.chosen.RateLimits); code != "" {
		return code, why
	}
	if code, why := r.ownerRateLimit(r.chosen.RateLimits, c); code != "" {
		return code, why
	}
	return r.chooseVerdict(r.chosen, c, func(v plugins.Verdict) bool { return r.stillNeededBy(v, c) })
}

// stillNeededBy reports whether a verdict needs the candidate beside the evictions of
// this round.
func (r further) stillNeededBy(v plugins.Verdict, c *Considered) bool {
	return r.forcedBy(v, c) || r.evictableFor(v, c) && !r.covers(v, r.creditsWith(v))
}

// notNeeded is why a candidate is not needed beside the evictions of this round; empty
// if a verdict that names it still lacks relief.
func (r further) notNeeded(c *Considered) (Code, string) {
	misses := plugins.None
	for _, v := range r.Levels.Verdicts {
		switch {
		case r.forcedBy(v, c):
			return "", ""
		case r.stillNeededBy(v, c):
			misses = max(misses, levelFor(v, c))
		}
	}
	switch misses {
	case plugins.Hard:
		return "", ""
	case plugins.Soft:
		return CodeRoundLimit, "soft level: at most one eviction per round"
	case plugins.None:
	}
	return CodeNotNeeded, "not needed: earlier evictions release enough; waiting for their effect"
}

// creditsWith adds the accepted evictions of this round, in a dry run too.
func (r further) creditsWith(v plugins.Verdict) []Credit {
	all := slices.Clone(r.credits[verdictKey(v)])
	for _, g := range r.decision.Evicted() {
		if relief, named := reliefBy(v, &g); named {
			all = append(all, Credit{Name: g.Name, UID: g.PodUID, Relief: &relief})
		}
	}
	return all
}
