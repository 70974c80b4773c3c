package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// podChurn repeatedly creates and removes pods of this host's cgroups under the
// same names, while a busy process moves through them.
type podChurn struct {
	dirs   []string
	top    string
	pods   int
	rounds int
	busy   int          // the process
	made   atomic.Int64 // pods so far
	stop   atomic.Bool
}

func (c *podChurn) pod(i int) string { return fmt.Sprintf("%s/pod%04d", c.top, i) }

// run creates all pods, moves the process into every fourth, and removes all.
func (c *podChurn) run() error {
	for n := 0; n < c.rounds && !c.stop.Load(); n++ {
		if err := c.each(c.make); err != nil {
			return err
		}
		if err := c.enter(""); err != nil {
			return err
		}
		if err := c.each(c.remove); err != nil {
			return err
		}
	}
	return nil
}

func (c *podChurn) each(do func(i int) error) error {
	for i := range c.pods {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

func (c *podChurn) make(i int) error {
	for _, dir := range c.dirs {
		if err := os.MkdirAll(dir+c.pod(i)+"/c0ffee", 0o755); err != nil {
			return err
		}
	}
	c.made.Add(1)
	if i%4 == 0 {
		return c.enter(c.pod(i) + "/c0ffee")
	}
	return nil
}

func (c *podChurn) enter(cgroup string) error {
	for _, dir := range c.dirs {
		if err := os.WriteFile(dir+cgroup+"/cgroup.procs", []byte(strconv.Itoa(c.busy)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// remove waits until the kernel has let go of the process that was there.
func (c *podChurn) remove(i int) error {
	for _, dir := range c.dirs {
		for _, cgroup := range []string{dir + c.pod(i) + "/c0ffee", dir + c.pod(i)} {
			err := unix.Rmdir(cgroup)
			for end := time.Now().Add(kerneltest.Patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = unix.Rmdir(cgroup) {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				return fmt.Errorf("remove %s: %w", cgroup, err)
			}
		}
	}
	return nil
}

// busyProcess computes until the test ends.
func busyProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", "sh", "-c", "while :; do :; done")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return cmd.Process.Pid
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

// A value of a cgroup must never be of another one with the same path, and no
// open file of it may outlive it.
func TestCgroupChurn(t *testing.T) {
	c := hostCgroups(t)
	before := openFiles(t)
	top := makeCgroup(t, c, "/kubepods")
	kerneltest.Delegate(c.dirs, top)
	load := &podChurn{dirs: c.dirs, top: top, pods: 300, rounds: 4, busy: busyProcess(t)}
	ended := make(chan error, 1)
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		ended <- load.run()
	}()

	started, reads, most := time.Now(), 0, 0
	sums := map[string]*uint64{} // CPU of each cgroup that was met, by identity
	for at := time.Hour; !over.Load(); at += time.Minute {
		workloads, err := c.Read(at)
		require.NoError(t, err)
		reads++
		most = max(most, openFiles(t))
		checkChurned(t, workloads, top, time.Since(started), sums)
		load.stop.Store(t.Failed())
	}
	require.NoError(t, <-ended)
	var total uint64
	for _, cpu := range sums {
		total += *cpu
	}
	assert.LessOrEqual(t, total, uint64(time.Since(started).Microseconds()), "one process was computing")
	for _, w := range mustRead(t, c) {
		assert.False(t, strings.HasPrefix(w.Cgroup, top+"/"), "%s is gone", w.Cgroup)
	}
	left := openFiles(t)
	c.Close()
	t.Logf("%d reads, %d pods made, %d met; files open: %d before, %d at most, %d when all were gone, %d when closed",
		reads, load.made.Load(), len(sums), before, most, left, openFiles(t))
	assert.NotEmpty(t, sums)
	assert.LessOrEqual(t, most, before+maxKept+100)
	assert.LessOrEqual(t, openFiles(t), before+10)
}

// checkChurned compares the values of the pods with what is possible.
func checkChurned(t *testing.T, workloads []snapshot.Workload, top string, elapsed time.Duration, sums map[string]*uint64) {
	t.Helper()
	met := map[string]bool{}
	for i := range workloads {
		w := &workloads[i]
		if !strings.HasPrefix(w.Cgroup, top+"/pod") {
			continue
		}
		assert.False(t, met[w.Cgroup], "%s stands twice", w.Cgroup)
		met[w.Cgroup] = true
		assert.Equal(t, snapshot.KindPod, w.Kind)
		for name, why := range w.Absent {
			known := why == whyBlkioInactive || name == nameNetwork || strings.HasPrefix(why, "no cgroup of this path in the ")
			assert.True(t, known, "%s: %s: %s", w.Cgroup, name, why)
		}
		assert.Empty(t, w.Pressure.Absent, w.Cgroup)
		if memory, ok := w.MemoryBytes.Get(); ok {
			assert.Less(t, memory, uint64(16<<20), w.Cgroup)
		}
		used, ok := w.CPUMicroseconds.Get()
		if !ok {
			continue // it is not made, or not removed, in all hierarchies
		}
		id := fmt.Sprintf("%s %d", w.Cgroup, w.Inode)
		if sums[id] == nil {
			sums[id] = new(uint64)
		}
		assert.GreaterOrEqual(t, used, *sums[id], "%s went back", id)
		assert.LessOrEqual(t, used, uint64(elapsed.Microseconds()), id)
		*sums[id] = used
		if n, err := strconv.Atoi(w.Cgroup[len(w.Cgroup)-4:]); assert.NoError(t, err) && n%4 != 0 {
			assert.Zero(t, used, "%s never had a process", w.Cgroup)
		}
	}
}
