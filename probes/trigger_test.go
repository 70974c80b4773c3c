package probes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
)

// These tests arm triggers of this machine's kernel, in cgroups of their own,
// over the 2 s that every user may have.

func TestTriggerFires(t *testing.T) {
	w, cgroup := watchCgroup(t, "/burstable")
	assert.Equal(t, []string{cgroup, cgroup + "/burstable"}, w.State().Cgroups())
	assert.Zero(t, w.woken.Load(), "the cgroup has no process that could stall")
	w.stall(cgroup + "/burstable")
	kerneltest.Until(t, func() bool { return w.woken.Load() > 0 && w.State().Fired["cpu"] > 0 })
}

func TestTriggerRemovedCgroup(t *testing.T) {
	w, cgroup := watchCgroup(t, "")
	for range 2 {
		require.NoError(t, os.Remove(w.unified+cgroup))
		kerneltest.Until(t, func() bool { return len(w.State().Armed) == 0 })
		assert.Empty(t, openPressureFiles(t))
		assert.NotContains(t, w.State().Absent, cgroup+" cpu", "what is not there lacks nothing")
		require.NoError(t, os.Mkdir(w.unified+cgroup, 0o755))
		kerneltest.Until(t, func() bool { return len(w.State().Armed) == 1 })
	}
	assert.Zero(t, w.woken.Load(), "that a cgroup went is no stall")
	w.stall(cgroup)
	kerneltest.Until(t, func() bool { return w.woken.Load() > 0 })
}

func TestTriggerLaterCgroup(t *testing.T) {
	w, cgroup := watchCgroup(t, "")
	require.NoError(t, os.Mkdir(w.unified+cgroup+"/besteffort", 0o755))
	kerneltest.Until(t, func() bool { return len(w.State().Armed) == 2 })
	w.stall(cgroup + "/besteffort")
	kerneltest.Until(t, func() bool { return w.woken.Load() > 0 })
}

func TestTriggerPSIOffForCgroup(t *testing.T) {
	w, cgroup := watchCgroup(t, "")
	file := w.unified + cgroup + "/cgroup.pressure"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("needs a kernel that switches PSI off for one cgroup: %v", err)
	}
	require.NoError(t, os.WriteFile(file, []byte("0"), 0o600))
	kerneltest.Until(t, func() bool { return w.State().Absent[cgroup+" cpu"] == psi.WhyOffForCgroup })
	assert.Empty(t, w.State().Armed)
	require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	kerneltest.Until(t, func() bool { return len(w.State().Armed) == 1 })
	assert.NotContains(t, w.State().Absent, cgroup+" cpu")
}

func TestTriggerChangedSettings(t *testing.T) {
	w, cgroup := watchCgroup(t, "")
	longer := settingsFor(cgroup)
	longer.Window = 4 * time.Second
	w.now.Store(&longer)
	kerneltest.Until(t, func() bool {
		armed := w.State().Armed
		return len(armed) == 1 && armed[0] == Trigger{cgroup, "cpu", longer.Stall, longer.Window}
	})
	assert.Len(t, openPressureFiles(t), 1, "the file of the one before is closed")
	off := longer
	off.Enabled = false
	w.now.Store(&off)
	kerneltest.Until(t, func() bool { return len(w.State().Armed)+len(w.State().Absent) == 0 })
	assert.Empty(t, openPressureFiles(t))
}

func TestTriggersClosedAtEnd(t *testing.T) {
	w, _ := watchCgroup(t, "")
	require.NotEmpty(t, openPressureFiles(t))
	w.end()
	assert.Empty(t, openPressureFiles(t))
	assert.Empty(t, w.State().Armed)
}

// watch is running Triggers on CPU stall, which a test can cause without harm.
// Its procfs has no pressure: other work on the machine would fire the host's
// triggers.
type watch struct {
	*Triggers
	t       *testing.T
	unified string // directory of the hierarchy
	woken   atomic.Int64
	now     atomic.Pointer[TriggerSettings]
	end     func() // waits until Run is over
}

// watchCgroup makes a cgroup for all pods, and what is below it, and runs
// triggers for it.
func watchCgroup(t *testing.T, below string) (w *watch, cgroup string) {
	t.Helper()
	tree, unified := hostUnified(t)
	cgroup = strings.TrimSuffix(kerneltest.Cgroup(t, []string{unified}, below), below)
	needsPressure(t, unified+cgroup)
	w = &watch{t: t, unified: unified}
	w.now.Store(new(settingsFor(cgroup)))
	w.Triggers = &Triggers{
		Paths:     Paths{Procfs: t.TempDir(), Cgroupfs: tree},
		Settings:  func() TriggerSettings { return *w.now.Load() },
		Wake:      func() { w.woken.Add(1) },
		resources: []string{"cpu"}, every: 10 * time.Millisecond,
	}
	require.Equal(t, psi.WhyNone, w.Arm().Absent["host cpu"])
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.end = func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err)
			ended <- nil // it may be asked again
		case <-deadline.After(kerneltest.Patience):
			assert.Fail(t, "the triggers do not end")
		}
	}
	t.Cleanup(w.end)
	return w, cgroup
}

// hostUnified returns the tree of this machine's hierarchies, and of them the
// directory of cgroup v2.
func hostUnified(t *testing.T) (tree, unified string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	c, err := cgroup.Find("/proc", "", nil)
	if err != nil {
		t.Skipf("needs a cgroup file system: %v", err)
	}
	unified = c.UnifiedDir()
	if unified == "" {
		t.Skip("needs a mounted unified hierarchy")
	}
	if c.Flavour() == "v2" {
		return unified, unified
	}
	return filepath.Dir(unified), unified
}

func needsPressure(t *testing.T, cgroup string) {
	t.Helper()
	if _, err := os.Stat(cgroup + "/cpu.pressure"); err != nil {
		t.Skipf("needs PSI of cgroups: %v", err)
	}
}

func settingsFor(cgroup string) TriggerSettings {
	return TriggerSettings{Enabled: true, Stall: 100 * time.Millisecond, Window: 2 * time.Second, Roots: []string{cgroup}}
}

// stall runs two processes of the cgroup on the same CPU until the test ends.
func (w *watch) stall(cgroup string) {
	w.t.Helper()
	var mine, one unix.CPUSet
	require.NoError(w.t, unix.SchedGetaffinity(0, &mine))
	for cpu := 0; one.Count() == 0; cpu++ {
		if mine.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for range 2 {
		c := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(w.t, c.Start())
		w.t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait() // it was killed
		})
		require.NoError(w.t, unix.SchedSetaffinity(c.Process.Pid, &one))
		pid := []byte(strconv.Itoa(c.Process.Pid))
		require.NoError(w.t, os.WriteFile(w.unified+cgroup+"/cgroup.procs", pid, 0o600))
	}
}

// openPressureFiles are this process's pressure files open for writing: those
// of triggers, not of readers.
func openPressureFiles(t *testing.T) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var list []string
	for _, fd := range fds {
		file, err := os.Readlink("/proc/self/fd/" + fd.Name()) // no more there: that of the directory
		file = strings.TrimSuffix(file, " (deleted)")
		info, infoErr := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		_, flags, _ := strings.Cut(string(info), "flags:")
		flags, _, _ = strings.Cut(flags, "\n")
		mode, _ := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
		if infoErr != nil || mode&unix.O_ACCMODE == unix.O_RDONLY {
			continue
		}
		if err == nil && (strings.HasSuffix(file, ".pressure") || strings.HasPrefix(file, "/proc/pressure/")) {
			list = append(list, file)
		}
	}
	return list
}
