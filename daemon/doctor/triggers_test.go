package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
)

const triggersCheck = "PSI triggers"

func triggered(t *testing.T) Examination {
	p := patient(t)
	p.Paths.Cgroupfs = t.TempDir() // the host alone, whatever pods run here
	p.Triggers = probes.TriggerSettings{Enabled: true, Stall: 300 * time.Millisecond, Window: 2 * time.Second}
	return p
}

func TestDoctorTriggersArmed(t *testing.T) {
	if _, err := os.Stat("/proc/pressure/io"); err != nil {
		t.Skipf("needs PSI: %v", err)
	}
	p := triggered(t)
	assert.Equal(t, Row{Pass, triggersCheck, "2 can be armed over 2s: host"}, row(t, p.Examine(t.Context()), triggersCheck))

	p.Triggers.Window = time.Second
	r := row(t, p.Examine(t.Context()), triggersCheck)
	if r.Result == Warn { // this user may not have such a window
		assert.Equal(t, "2 can be armed over 2s: host, not over the configured 1s, which needs CAP_SYS_RESOURCE", r.Finding)
		return
	}
	assert.Equal(t, Row{Pass, triggersCheck, "2 can be armed over 1s: host"}, r)
}

func TestDoctorTriggersOff(t *testing.T) {
	p := triggered(t)
	p.Triggers.Enabled = false
	r := row(t, p.Examine(t.Context()), triggersCheck)
	assert.Equal(t, Pass, r.Result)
	assert.Contains(t, r.Finding, "triggers.enabled")
}

// Without PSI neither pressure can be read nor a trigger armed; what to do
// about it is said once.
func TestDoctorTriggersWithoutPSI(t *testing.T) {
	p := triggered(t)
	p.Paths.Procfs = t.TempDir()
	for _, f := range []string{"stat", "meminfo"} {
		b, err := os.ReadFile(filepath.Join("/proc", f))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(p.Paths.Procfs, f), b, 0o644))
	}
	rows := p.Examine(t.Context())
	assert.Equal(t, Row{
		Warn, triggersCheck,
		"none can be armed: stalls are seen at the next tick; none for host io, host memory: see probe pressure",
	}, row(t, rows, triggersCheck))
	cures := 0
	for _, r := range rows {
		if strings.Contains(r.Finding, "psi=1") {
			cures++
		}
	}
	assert.Equal(t, 1, cures, "%v", rows)
}
