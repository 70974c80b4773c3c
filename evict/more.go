package evict

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// More selects further candidates beside the accepted evictions of this round, if
// these do not release enough and the limits allow it. m is the state with the
// choices of this round.
func (d *Decision) More(in Input, m State) {
	if d.accepted() == 0 || slices.ContainsFunc(d.Candidates, endsRound) {
		return
	}
	r := evaluate(in, in.State.observe(in), d.Candidates)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Code != CodeNotNeeded && c.Code != CodeNext {
			continue
		}
		if c.Code, c.Reason = r.oneMore(d, m, c); c.Code == "" {
			c.Code, c.Reason = CodeNext, "evict too if earlier evictions do not release enough"
		}
	}
}

// endsRound reports whether an answer makes the node's state unclear, so that no
// further eviction follows in this round.
func endsRound(c Considered) bool { return c.Code == CodeTerminated || c.Code == CodeUnknownOutcome }

// oneMore is why a candidate is not evicted beside those of this round.
func (r *evaluation) oneMore(d *Decision, m State, c *Considered) (Code, string) {
	if code, why := r.notNeeded(d, c); code != "" {
		return code, why
	}
	if n := r.Config.Limits.PerRound; d.accepted() >= n {
		return CodeRoundLimit, fmt.Sprintf("limit of %d evictions per round reached; left for a later round, if still needed", n)
	}
	if code, why := r.nodeRateLimit(m); code != "" {
		return code, why
	}
	if code, why := r.ownerRateLimit(m, c.Pod); code != "" {
		return code, why
	}
	return r.chooseVerdict(m, c, func(v plugins.Verdict) bool { return r.stillNeededBy(d, v, c) })
}

// stillNeededBy reports whether a verdict needs the candidate beside the evictions of
// this round.
func (r *evaluation) stillNeededBy(d *Decision, v plugins.Verdict, c *Considered) bool {
	return r.forcedBy(v, c) || r.evictableFor(v, c) && !r.covers(v, r.creditsWith(d, v))
}

// notNeeded is why a candidate is not needed beside the evictions of this round; empty
// if a verdict that names it still lacks relief.
func (r *evaluation) notNeeded(d *Decision, c *Considered) (Code, string) {
	misses := plugins.None
	for _, v := range r.Levels.Verdicts {
		switch {
		case r.forcedBy(v, c):
			return "", ""
		case r.stillNeededBy(d, v, c):
			misses = max(misses, v.Level)
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
func (r *evaluation) creditsWith(d *Decision, v plugins.Verdict) []Credit {
	all := slices.Clone(r.credits[verdictKey(v)])
	for _, g := range d.Evicted() {
		if relief, named := reliefBy(v, &g); named {
			all = append(all, Credit{Name: g.Name, UID: g.PodUID, Relief: &relief})
		}
	}
	return all
}
