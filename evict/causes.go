package evict

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// causesBetween returns the verdicts that are met, and those that ended since the
// round before.
func causesBetween(before, now *plugins.Levels) []Cause {
	list := ended(before, now)
	for _, v := range now.Verdicts {
		if active(v) || levelOf(before, v) > plugins.None {
			list = append(list, causeOf(v))
		}
	}
	return list
}

func causeOf(v plugins.Verdict) Cause {
	return Cause{
		Plugin: v.Plugin, Scope: v.Scope, Level: v.Level, Since: v.Since,
		Observed: v.Observed, Operator: v.Operator, Threshold: v.Threshold, Unit: v.Unit, Reason: v.Reason, Target: v.Target,
	}
}

// Why a level ended: its plugin is no longer asked.
const (
	ReasonDisabled = "the plugin was disabled"
	// ReasonUnregistered is that of an outer plugin.
	ReasonUnregistered = "the plugin is not registered any more, or the configuration excludes it"
)

// unasked is why a plugin is no longer asked.
func unasked(plugin string) string {
	if slices.Contains(plugins.Names(), plugin) {
		return ReasonDisabled
	}
	return ReasonUnregistered
}

// ReasonNoLongerJudged is why a level ended: its plugin no longer judges that scope.
const ReasonNoLongerJudged = "its plugin no longer judges this scope, for example because the device was removed"

// ended returns the verdicts that were met and are no longer judged.
func ended(before, now *plugins.Levels) []Cause {
	if before == nil {
		return nil
	}
	var list []Cause
	for _, was := range before.Verdicts {
		if was.Level == plugins.None || slices.ContainsFunc(now.Verdicts, sameScope(was)) {
			continue
		}
		why := unasked(was.Plugin)
		if slices.ContainsFunc(now.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == was.Plugin }) {
			why = ReasonNoLongerJudged
		}
		list = append(list, Cause{Plugin: was.Plugin, Scope: was.Scope, Level: plugins.None, Since: now.Time, Reason: why})
	}
	return list
}

func levelOf(l *plugins.Levels, v plugins.Verdict) plugins.Level {
	if l == nil {
		return plugins.None
	}
	if i := slices.IndexFunc(l.Verdicts, sameScope(v)); i >= 0 {
		return l.Verdicts[i].Level
	}
	return plugins.None
}

// sameScope matches verdicts of the same plugin about the same scope.
func sameScope(v plugins.Verdict) func(plugins.Verdict) bool {
	return func(o plugins.Verdict) bool { return o.Plugin == v.Plugin && o.Scope == v.Scope }
}
