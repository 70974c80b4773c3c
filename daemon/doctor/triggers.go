package doctor

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// triggers arms the PSI triggers for a moment. No rule needs them: without them
// a stall is seen at the next tick.
func triggers(paths probes.Paths, settings probes.TriggerSettings, s *snapshot.Sample) Row {
	const check = "PSI triggers"
	if !settings.Enabled {
		return Row{Pass, check, "off (triggers.enabled: false): stalls are seen at the next tick"}
	}
	state := probes.ProbeTriggers(paths, settings)
	finding := "none can be armed: stalls are seen at the next tick"
	if len(state.Armed) > 0 {
		where := strings.Join(append([]string{"host"}, state.Cgroups()...), ", ")
		finding = fmt.Sprintf("%d can be armed over %s: %s", len(state.Armed), state.Armed[0].Window, where)
	}
	if without := state.Reasons(s.Pressure.Absent, "see probe pressure"); len(without) > 0 {
		return Row{Warn, check, finding + "; none for " + strings.Join(without, "; ")}
	}
	if len(state.Armed) > 0 && state.Armed[0].Window != settings.Window {
		return Row{Warn, check, fmt.Sprintf("%s, not over the configured %s, which needs CAP_SYS_RESOURCE", finding, settings.Window)}
	}
	return Row{Pass, check, finding}
}
