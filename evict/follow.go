package evict

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Change updates an earlier decision with the fate of its evicted pods.
type Change struct {
	// Decision is its ID.
	Decision string
	Apply    func(*Decision)
}

// Follow returns what became of the pods that earlier rounds evicted: when each
// terminated and, after the cooldown, how far the pressure fell. Then they are
// removed from the state.
func Follow(in Input, m State) (State, []Change) {
	if !in.clusterKnown() {
		return m, nil
	}
	m = m.clone()
	var changes []Change
	ids := map[string]bool{}
	for _, l := range m.Victims {
		if !l.DryRun {
			ids[l.Decision] = true
		}
	}
	for id := range ids {
		if refused := expiredOf(m.Victims, id); len(refused) > 0 {
			changes = append(changes, Change{id, func(d *Decision) { d.notCarriedOut(refused, CodeRefused, CodeNone, in.notCarriedOut()) }})
			m.Victims = slices.DeleteFunc(m.Victims, func(l Chosen) bool { return slices.Contains(refused, l.UID) })
		}
		victims, gone, last := victimsOf(m.Victims, id)
		settled := gone == len(victims) && !in.Time.Before(last.Add(in.Config.Cooldown))
		if gone > 0 {
			changes = append(changes, Change{id, func(d *Decision) { follow(d, in, victims, settled) }})
		}
		if settled {
			m.Victims = slices.DeleteFunc(m.Victims, func(l Chosen) bool { return l.Decision == id })
		}
	}
	return m, changes
}

// victimsOf returns the victims of a decision, how many have terminated, and when the
// last one did.
func victimsOf(list []Chosen, id string) (victims []Chosen, gone int, last time.Time) {
	for _, l := range list {
		if l.Decision != id {
			continue
		}
		victims = append(victims, l)
		if !l.TerminatedAt.IsZero() {
			gone, last = gone+1, later(last, l.TerminatedAt)
		}
	}
	return victims, gone, last
}

// expiredOf returns the UIDs of a decision's victims whose eviction was in progress and was
// not carried out.
func expiredOf(list []Chosen, id string) (uids []string) {
	for _, l := range list {
		if l.Decision == id && l.Outcome == Refused {
			uids = append(uids, l.UID)
		}
	}
	return uids
}

// follow updates a decision with what became of its victims.
func follow(d *Decision, in Input, victims []Chosen, settled bool) {
	d.TerminatedAt = time.Time{}
	for _, l := range victims {
		if i := slices.IndexFunc(d.Candidates, func(c Considered) bool { return c.Pod != nil && c.Pod.UID == l.UID }); i >= 0 {
			d.Candidates[i].TerminatedAt = l.TerminatedAt
		}
		d.TerminatedAt = later(d.TerminatedAt, l.TerminatedAt)
	}
	if slices.ContainsFunc(victims, func(l Chosen) bool { return l.TerminatedAt.IsZero() }) {
		d.TerminatedAt = time.Time{}
	}
	if !settled {
		return
	}
	d.After = nil
	for _, c := range d.Causes {
		if i := slices.IndexFunc(in.Levels.Verdicts, c.isOf); i >= 0 {
			d.After = append(d.After, c.after(in.Levels.Verdicts[i]))
		}
	}
}

func (c Cause) isOf(v plugins.Verdict) bool { return c.Plugin == v.Plugin && c.Scope == v.Scope }

// after is the same comparison of the same rule now: a verdict shows its soft rule
// once the hard one has ended.
func (c Cause) after(v plugins.Verdict) Cause {
	now := causeOf(v)
	if c.Threshold == now.Threshold && c.Operator == now.Operator {
		return now
	}
	threshold, _ := c.Threshold.Get() // absent is equal to nothing below
	now.Observed, now.Operator, now.Threshold, now.Unit = snapshot.Opt[float64]{}, c.Operator, c.Threshold, c.Unit
	for _, e := range v.Evidence {
		if e.Rule == c.Level && e.Operator == c.Operator && e.Threshold == threshold && e.Unit == c.Unit {
			now.Observed = e.Observed
		}
	}
	return now
}
