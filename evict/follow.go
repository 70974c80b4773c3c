package evict

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Follow says what has become of the victim of an earlier round: when it was
// gone, and once the node had time to settle, how far the pressure fell. change
// is what to say of the decision with that ID, nil when there is nothing. m is
// the memory of the whole round, which may have chosen the next victim.
func Follow(in Input, m Memory) (after Memory, id string, change func(*Decision)) {
	l := in.Memory.look(in).Last
	if l == nil || l.DryRun || l.Settled || l.GoneAt.IsZero() {
		return m, "", nil
	}
	gone := l.GoneAt
	if in.Time.Before(gone.Add(in.Config.Settle)) {
		return m, l.Decision, func(d *Decision) { d.GoneAt = gone }
	}
	if m.Last != nil && m.Last.Decision == l.Decision {
		m = m.clone()
		m.Last.Settled = true
	}
	return m, l.Decision, func(d *Decision) {
		d.GoneAt, d.After = gone, nil
		for _, c := range d.Causes {
			if i := slices.IndexFunc(in.Levels.Verdicts, c.isOf); i >= 0 {
				d.After = append(d.After, c.after(in.Levels.Verdicts[i]))
			}
		}
	}
}

func (c Cause) isOf(v plugins.Verdict) bool { return c.Plugin == v.Plugin && c.Scope == v.Scope }

// after is what the same comparison of the same rule says now: a verdict shows
// its softer rule once the harder one is over.
func (c Cause) after(v plugins.Verdict) Cause {
	now := causeOf(v)
	if c.Threshold == now.Threshold && c.Operator == now.Operator {
		return now
	}
	threshold, _ := c.Threshold.Get() // absent is equal to nothing below
	now.Observed, now.Operator, now.Threshold, now.Unit = probes.Opt[float64]{}, c.Operator, c.Threshold, c.Unit
	for _, e := range v.Evidence {
		if e.Rule == c.Level && e.Operator == c.Operator && e.Threshold == threshold && e.Unit == c.Unit {
			now.Observed = e.Observed
		}
	}
	return now
}
