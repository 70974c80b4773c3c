package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestTriggersAbsentLoggedOnce(t *testing.T) {
	proc := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(proc, "pressure"), 0o755))
	for _, f := range []string{"memory", "io"} {
		require.NoError(t, os.WriteFile(filepath.Join(proc, "pressure", f), nil, 0o600))
	}
	var log bytes.Buffer
	a := &Agent{Log: slog.New(slog.NewTextHandler(&log, nil)), config: new(config.Default())}
	a.triggers = &probes.Triggers{
		Paths:    probes.Paths{Procfs: proc, Cgroupfs: proc},
		Settings: func() probes.TriggerSettings { return TriggerSettings(a.config) },
	}
	s := &snapshot.Snapshot{}
	view, notes := a.triggerState(s)
	assert.Nil(t, view, "not tried yet")
	assert.Empty(t, notes)
	a.triggers.Arm()
	for range 3 {
		view, notes = a.triggerState(s)
		assert.Zero(t, view.Armed)
		assert.Len(t, view.Absent, 2)
		assert.Len(t, notes, 1, "both have the same reason")
		assert.Contains(t, notes[0], "host io, host memory: ")
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	assert.Contains(t, log.String(), notes[0])
}

// With pressure itself absent the reason stands there.
func TestTriggersAbsentWithoutPSI(t *testing.T) {
	why := snapshot.Absent{"memory": "no PSI: boot with psi=1", "io": "no PSI: boot with psi=1"}
	s := &probes.TriggerState{Absent: snapshot.Absent{"host memory": why["memory"], "host io": why["io"], "/kubepods io": "off"}}
	notes := triggerNotes(s, why)
	require.Len(t, notes, 2)
	assert.Contains(t, notes[0], "host io, host memory: cannot read pressure either")
	assert.Contains(t, notes[1], "/kubepods io: off")
	assert.Contains(t, strings.Join(triggerNotes(s, nil), "\n"), "psi=1")
}

func TestTriggersText(t *testing.T) {
	s := &probes.TriggerState{}
	assert.Empty(t, triggersText(s, time.Second))
	for _, cgroup := range []string{"", "/kubepods/burstable", "/kubepods"} {
		for _, r := range []string{"memory", "io"} {
			s.Armed = append(s.Armed, probes.Trigger{Cgroup: cgroup, Resource: r, Window: 2 * time.Second})
		}
	}
	assert.Equal(t, "6 armed: host, /kubepods, /kubepods/burstable", triggersText(s, 2*time.Second))
	assert.Equal(t, "6 armed: host, /kubepods, /kubepods/burstable; over 2s instead of 1s: CAP_SYS_RESOURCE is missing", triggersText(s, time.Second))
}
