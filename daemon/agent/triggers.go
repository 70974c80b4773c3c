package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// newTriggers creates the PSI triggers that wake the sample loop; they follow
// the configuration.
func newTriggers(c *config.Agent, current func() *config.Agent, wake func()) *probes.Triggers {
	return &probes.Triggers{
		Paths:    probes.Paths{Procfs: c.Paths.Procfs, Cgroupfs: c.Paths.Cgroupfs},
		Settings: func() probes.TriggerSettings { return TriggerSettings(current()) },
		Wake:     wake,
	}
}

// TriggerSettings of a configuration.
func TriggerSettings(c *config.Agent) probes.TriggerSettings {
	return probes.TriggerSettings{
		Enabled: c.Triggers.Enabled, Stall: c.Triggers.Stall, Window: c.Triggers.Window, Roots: c.Workloads.Roots,
	}
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
