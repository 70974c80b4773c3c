package evict

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// withdrawn is why an EvictionRequest does not stand any more.
const withdrawn = "the EvictionRequest is withdrawn: no rule that may evict asks for it any more"

// Withdrawals returns the EvictionRequests to withdraw, in order: those of pods that are gone,
// that count as refused, or whose eviction relieves nothing any more. The latter are no
// victims in the returned state, and the changes tell so in their decisions.
func Withdrawals(in Input, m State) (State, []Victim, []Change) {
	if len(m.Requests) == 0 {
		return m, nil, nil
	}
	m = m.clone()
	var list []Victim
	var changes []Change
	for uid, v := range m.Requests {
		i := slices.IndexFunc(m.Victims, func(l Chosen) bool { return l.UID == uid && l.stands() })
		if i >= 0 && m.Victims[i].stillRequested(in) {
			continue
		}
		list = append(list, v)
		if i >= 0 && in.Config.Via == ViaRequest {
			changes = append(changes, Change{m.Victims[i].Decision, func(d *Decision) {
				d.notCarriedOut([]string{uid}, CodeEnded, CodeEnded, withdrawn)
			}})
			m.Victims = slices.Delete(m.Victims, i, i+1)
		}
	}
	slices.SortFunc(list, func(a, b Victim) int { return cmp.Compare(a.UID, b.UID) })
	return m, list, changes
}

// stands reports whether a pod may still be evicted by its EvictionRequest.
func (l *Chosen) stands() bool {
	return !l.DryRun && l.TerminatedAt.IsZero() && (l.Outcome == "" || l.Outcome == UnknownOutcome || l.Outcome == InProgress)
}

// stillRequested reports whether a pod's eviction is still wanted: it was forced, or a
// threshold that it was chosen for is still met, and pods are evicted for its plugin. One
// whose plugin may yet do so is left as it is: it ends by inProgressUntil at the latest.
func (l *Chosen) stillRequested(in Input) bool {
	if in.Config.Via != ViaRequest || in.Config.DryRun || !in.Config.Enabled {
		return false
	}
	return len(l.Met) == 0 || slices.ContainsFunc(l.Met, func(key string) bool {
		i := slices.IndexFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool { return verdictKey(v) == key })
		if i < 0 {
			return in.standingUnknown(pluginOf(key))
		}
		v := in.Levels.Verdicts[i]
		return v.MetLevel > plugins.None && (in.standingUnknown(v.Plugin) || in.excluded(v) == "" && !in.Config.isDryRun(v))
	})
}
