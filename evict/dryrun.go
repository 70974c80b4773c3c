package evict

import (
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Split divides a round into the plugins in force and those in a dry run, whose
// verdicts neither mark nor evict and do not delay an eviction. A part without
// verdicts is left out, unless it had some in the round before.
func Split(in Input) []Input {
	if in.Config.DryRun {
		return []Input{in}
	}
	forReal, dry := in, in
	dry.Config.DryRun = true
	dry.exclude = func(v plugins.Verdict) bool { return !in.Config.isDryRun(v) }
	forReal.exclude = func(v plugins.Verdict) bool { return in.Config.isDryRun(v) }
	for _, part := range []*Input{&forReal, &dry} {
		part.Before = part.WithLevels(in.Before).Levels
		*part = part.WithLevels(in.Levels)
	}
	if len(dry.Levels.Verdicts) == 0 && (dry.Before == nil || len(dry.Before.Verdicts) == 0) {
		return []Input{forReal}
	}
	return []Input{forReal, dry}
}

func (c *Config) isDryRun(v plugins.Verdict) bool {
	return v.Beside == plugins.BesideReport || IsDryRun(c.DryRunPlugins, v.Plugin)
}

// AllDryRun reports that no plugin is in force: by dryRun, or by a list that has all of them.
func (c *Config) AllDryRun() bool {
	left := slices.ContainsFunc(c.DryRunPlugins, func(name string) bool { return strings.HasPrefix(name, "-") })
	return c.DryRun || slices.Contains(c.DryRunPlugins, "*") && !left
}

// IsDryRun reports whether a list of "*", "name" and "-name" includes a plugin.
func IsDryRun(list []string, plugin string) bool {
	return slices.Contains(list, plugin) || slices.Contains(list, "*") && !slices.Contains(list, "-"+plugin)
}
