package probes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestTriggersOfHostArmed(t *testing.T) {
	if _, err := os.Stat("/proc/pressure/memory"); err != nil {
		t.Skipf("needs PSI: %v", err)
	}
	s := ProbeTriggers(Paths{Procfs: "/proc", Cgroupfs: t.TempDir()}, TriggerSettings{Enabled: true, Stall: 150 * time.Millisecond, Window: time.Second})
	stall, window := 300*time.Millisecond, 2*time.Second
	if mayHaveAnyWindow(t) {
		stall, window = 150*time.Millisecond, time.Second
	}
	assert.Equal(t, []Trigger{{"", "memory", stall, window}, {"", "io", stall, window}}, s.Armed)
	assert.Equal(t, map[string]uint64{"memory": 0, "io": 0}, s.Fired, "what is armed counts from 0")
	assert.Empty(t, s.Absent)
	assert.Empty(t, openPressureFiles(t), "a trial leaves nothing armed")
}

// mayHaveAnyWindow says whether this process has CAP_SYS_RESOURCE.
func mayHaveAnyWindow(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(b), "\nCapEff:\t")
	require.True(t, found)
	var set uint64
	_, err = fmt.Sscanf(rest, "%x", &set)
	require.NoError(t, err)
	return set&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestTriggerUnprivilegedWindow(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 2 * time.Second, time.Second: 2 * time.Second, 2500 * time.Millisecond: 4 * time.Second,
		9 * time.Second: 10 * time.Second,
	} {
		u := Trigger{Stall: window / 4, Window: window}.unprivileged()
		assert.Equal(t, Trigger{Stall: want / 4, Window: want}, u)
	}
	assert.Equal(t, "some 150000 1000000", Trigger{Stall: 150 * time.Millisecond, Window: time.Second}.spec())
}

// However many cgroups the configuration names, the kernel gets no more threads.
func TestTriggersAtMostTwelveGroups(t *testing.T) {
	_, unified := hostUnified(t)
	top := kerneltest.Cgroup(t, []string{unified}, "")
	needsPressure(t, unified+top)
	var roots []string
	for i := range 6 {
		root := fmt.Sprintf("%s/pods%d", top, i)
		roots = append(roots, root)
		for _, below := range []string{"burstable", "besteffort"} {
			require.NoError(t, os.MkdirAll(unified+root+"/"+below, 0o755))
		}
	}
	s := ProbeTriggers(Paths{Procfs: "/proc"}, TriggerSettings{Enabled: true, Stall: time.Second, Window: 10 * time.Second, Roots: roots})
	assert.Len(t, s.Cgroups(), 12-1)
	assert.Len(t, s.Armed, 2*12)
	assert.Equal(t, []string{"", ""}, []string{s.Armed[0].Cgroup, s.Armed[1].Cgroup}, "the host comes before all others")
	assert.Len(t, s.Absent, 2*(1+6*3-12))
	for where, why := range s.Absent {
		assert.Equal(t, whyTooManyTriggers, why, where)
	}
}

func TestTriggerReasons(t *testing.T) {
	host := triggerPlace{resource: "memory", file: "/proc/pressure/memory"}
	off, without := filepath.Join(t.TempDir(), "off"), t.TempDir()
	require.NoError(t, os.Mkdir(off, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(off, "cgroup.pressure"), []byte("0\n"), 0o600))
	of := func(dir string) triggerPlace {
		return triggerPlace{cgroup: "/kubepods", resource: "io", file: filepath.Join(dir, "io.pressure")}
	}
	said := map[string]error{}
	for _, c := range []struct {
		at   triggerPlace
		err  error
		want string
	}{
		{host, unix.EOPNOTSUPP, psi.WhySwitchedOff},
		{host, unix.ENOENT, psi.WhyNone},
		{of(off), unix.ENOENT, psi.WhyOffForCgroup},
		{host, unix.EPERM, whyTriggersForbidden},
		{host, unix.EROFS, whyTriggersReadOnly},
		{host, errNoKernelFile, whyNoKernelFile},
		{host, unix.EINVAL, "open it: invalid argument"},
	} {
		got := c.at.reason(fmt.Errorf("open it: %w", c.err))
		assert.Equal(t, c.want, got)
		assert.NotContains(t, said, got)
		said[got] = c.err
	}
	assert.Equal(t, psi.WhyNone, of(without).reason(unix.ENOENT), "a cgroup without the files, not switched off")
	assert.Equal(t, whyTriggersForbidden, of(off).reason(unix.EACCES))
	assert.Empty(t, of(filepath.Join(without, "gone")).reason(unix.ENOENT))
	assert.Empty(t, of(off).reason(unix.ENODEV), "removed between open and write")
}

// A procfs of plain files, such as a copy, is not written to, and a pipe does
// not block.
func TestTriggersOnlyOnKernelFiles(t *testing.T) {
	proc := t.TempDir()
	require.NoError(t, os.Mkdir(proc+"/pressure", 0o755))
	const text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
	require.NoError(t, os.WriteFile(proc+"/pressure/memory", []byte(text), 0o600))
	require.NoError(t, unix.Mkfifo(proc+"/pressure/io", 0o600))
	s := ProbeTriggers(Paths{Procfs: proc, Cgroupfs: proc}, TriggerSettings{Enabled: true, Stall: time.Second, Window: 2 * time.Second})
	assert.Empty(t, s.Armed)
	assert.Equal(t, snapshot.Absent{"host memory": whyNoKernelFile, "host io": whyNoKernelFile}, s.Absent)
	b, err := os.ReadFile(proc + "/pressure/memory")
	require.NoError(t, err)
	assert.Equal(t, text, string(b))
}

func TestTriggerReasonsGrouped(t *testing.T) {
	s := TriggerState{Absent: snapshot.Absent{"host memory": psi.WhyNone, "host io": psi.WhyNone, "/kubepods io": psi.WhyOffForCgroup}}
	assert.Equal(t, []string{"/kubepods io: " + psi.WhyOffForCgroup, "host io, host memory: " + psi.WhyNone}, s.Reasons(nil, ""))
	assert.Equal(t, []string{"/kubepods io: " + psi.WhyOffForCgroup, "host io, host memory: as said"},
		s.Reasons(snapshot.Absent{"cpu": psi.WhyNone}, "as said"))
	assert.Empty(t, (&TriggerState{}).Reasons(nil, ""))
}
