package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// newTriggers creates the PSI triggers that wake the sample loop; they follow
// the configuration.
func (a *Agent) newTriggers(c *config.Agent) *probes.Triggers {
	return &probes.Triggers{
		Paths:    probes.Paths{Procfs: c.Paths.Procfs, Cgroupfs: c.Paths.Cgroupfs},
		Settings: func() probes.TriggerSettings { return TriggerSettings(a.Config.Current()) },
		Wake:     func() { wake(a.pace.woken) },
	}
}

// runTriggers runs until ctx is done. If it fails, polling at ticks goes on.
func (a *Agent) runTriggers(ctx context.Context) error {
	if err := a.triggers.Run(ctx); err != nil {
		a.Log.Warn("PSI triggers stopped; stalls are seen at the next tick", "error", err)
	}
	return nil
}

// TriggerSettings of a configuration.
func TriggerSettings(c *config.Agent) probes.TriggerSettings {
	return probes.TriggerSettings{
		Enabled: c.Triggers.Enabled, Stall: c.Triggers.Stall, Window: c.Triggers.Window, Roots: c.Workloads.Roots,
	}
}

// triggerState is the state of the triggers, with notes about those not armed.
// Changes are logged.
func (a *Agent) triggerState(s *snapshot.Snapshot) (t *view.Triggers, notes []string) {
	state := a.triggers.State()
	if state == nil {
		return nil, nil
	}
	t = &view.Triggers{Armed: len(state.Armed), FiredTotal: state.Fired, WokenTotal: a.pace.count, WokenByTrigger: a.pace.woke, Absent: state.Absent}
	if len(state.Armed) > 0 {
		t.WindowSeconds = state.Armed[0].Window.Seconds()
	}
	notes = triggerNotes(state, s.Pressure.Totals.Absent)
	told := append([]string{triggersText(state, a.config.Triggers.Window)}, notes...)
	for _, line := range told {
		if line != "" && !slices.Contains(a.loggedTriggers, line) {
			a.Log.Info("PSI triggers", "state", line)
		}
	}
	a.loggedTriggers = told
	return t, notes
}

// triggersText is empty if none is armed.
func triggersText(s *probes.TriggerState, wanted time.Duration) string {
	if len(s.Armed) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d armed: %s", len(s.Armed), strings.Join(append([]string{"host"}, s.Cgroups()...), ", "))
	if w := s.Armed[0].Window; w != wanted {
		text += fmt.Sprintf("; over %s instead of %s: CAP_SYS_RESOURCE is missing", w, wanted)
	}
	return text
}

// triggerNotes has a line for each reason. A reason that also keeps pressure
// from being read is not repeated.
func triggerNotes(s *probes.TriggerState, unread snapshot.Absent) []string {
	var notes []string
	for _, without := range s.Reasons(unread, "cannot read pressure either") {
		notes = append(notes, "no PSI trigger, stalls are seen at the next tick: "+without)
	}
	return notes
}
