package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// watching is an agent that sees the mounts of a test as those of its host, as
// from a container of the host's process IDs.
func watching(t *testing.T, s *filesystemtest.Space, mounts ...string) *agent {
	t.Helper()
	return startAgent(t, "--path.procfs", s.Proc, "--config", configFile(t, fmt.Sprintf(
		"tick: 200ms\nwindow: 2s\nworkloads: {roots: [/plimsoll-none]}\nfilesystems: {mounts: [%s], every: 1s, timeout: 500ms}\n", strings.Join(mounts, ", "))))
}

func filesystem(s snapshot.Snapshot, point string) snapshot.Filesystem {
	for _, f := range s.Filesystems {
		if f.Mountpoint == point {
			return f
		}
	}
	return snapshot.Filesystem{}
}

// threads of the agent, as the kernel counts them.
func (a *agent) threads() int {
	a.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", a.cmd.Process.Pid))
	require.NoError(a.t, err)
	return len(list)
}

// lookFor looks at the agent for a time: the slowest answer of /metrics, the
// longest time between two samples, or since the last one.
func (a *agent) lookFor(of time.Duration) (scrape, gap time.Duration) {
	a.t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var last snapshot.Snapshot
	for start := time.Now(); time.Since(start) < of; <-poll.C {
		before := deadline.Start()
		a.mustGet("/metrics")
		scrape = max(scrape, before.Elapsed())
		now := a.snapshot()
		if n := now.Sequence - last.Sequence; last.Sequence > 0 && n > 0 {
			gap = max(gap, now.Time.Sub(last.Time)/time.Duration(n))
		}
		last = now
	}
	return scrape, max(gap, time.Since(last.Time))
}

func TestFilesystemHungAgentGoesOn(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	dead, alive := s.Fuse("dead"), s.Mount("tmpfs", "alive", "alive", "size=1m")
	a := watching(t, s, dead.Point, alive)
	start := deadline.Start()
	a.mustGet("/metrics")
	first := start.Elapsed()
	within(t, patience, "the mount is said to hang", func() error {
		f := filesystem(a.ticked(1).snapshot(), dead.Point)
		if why := f.Problem(); why != "statfs hangs" {
			return errors.New(why)
		}
		return nil
	})
	clock := deadline.Start()
	scrape, gap := a.lookFor(3 * time.Second)
	t.Logf("beside a hung mount: first scrape %s, slowest of 3s %s, longest gap between samples of 200ms %s, %d threads",
		first.Round(10*time.Microsecond), scrape.Round(10*time.Microsecond), gap.Round(time.Millisecond), a.threads())
	assert.Less(t, max(first, scrape), 5*time.Second)
	assert.Less(t, gap, clock.Stretch(2500*time.Millisecond))
	assert.Equal(t, "ok\n", a.mustGet("/-/ready"))
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_filesystem_up{mountpoint="`+dead.Point+`"} 0`)
	assert.Contains(t, a.mustGet("/"), dead.Point+": statfs hangs")
	free, ok := filesystem(a.snapshot(), alive).AvailableBytes.Get()
	assert.True(t, ok)
	assert.EqualValues(t, 1<<20, free)
	assert.Equal(t, 1, strings.Count(a.stdout.String(), "statfs hangs"), "told once: %s", a.stdout.String())

	start = deadline.Start()
	assert.Zero(t, a.end(syscall.SIGTERM))
	t.Logf("ended %s after SIGTERM", start.Passed().Round(time.Millisecond))
	assert.Less(t, start.Elapsed(), 5*time.Second)
}

func TestFilesystemHangsLater(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	m := s.Fuse("nfs")
	a := watching(t, s, m.Point)
	var f snapshot.Filesystem
	eventually(t, "it answers", func() error {
		m.Answer()
		if f = filesystem(a.ticked(1).snapshot(), m.Point); f.AgeSeconds.IsZero() {
			return errors.New(f.Problem())
		}
		return nil
	})
	assert.Equal(t, snapshot.Some[uint64](1000*4096), f.SizeBytes)
	eventually(t, "it hangs, with its last values", func() error {
		f = filesystem(a.snapshot(), m.Point)
		if age, _ := f.AgeSeconds.Get(); age < 3 {
			return fmt.Errorf("%.1f s old", age)
		}
		return nil
	})
	assert.Equal(t, "statfs hangs", f.Problem())
	assert.Equal(t, snapshot.Some[uint64](250*4096), f.AvailableBytes)
	assert.LessOrEqual(t, m.Take(), 1, "one call is out, and no second one")
	m.FreeBlocks = 10
	eventually(t, "it answers again", func() error {
		m.Answer()
		if f = filesystem(a.snapshot(), m.Point); f.Problem() != "" || f.AvailableBytes != snapshot.Some[uint64](10*4096) {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
}

func TestFilesystemFiftyHungFewThreads(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	var dead []string
	for i := range 50 {
		dead = append(dead, s.Fuse(fmt.Sprintf("dead%02d", i)).Point)
	}
	quiet := watching(t, s, s.Mount("tmpfs", "alive", "alive", "size=1m")).ticked(10).threads()
	a := watching(t, s, dead...)
	eventually(t, "eight hang and the others are not asked", func() error {
		var unasked int
		for _, f := range a.ticked(1).snapshot().Filesystems {
			if f.Problem() == "not read: statfs of 8 other mounts hangs" {
				unasked++
			}
		}
		if unasked != 42 {
			return fmt.Errorf("%d not asked", unasked)
		}
		return nil
	})
	before := a.threads()
	clock := deadline.Start()
	scrape, gap := a.lookFor(5 * time.Second)
	t.Logf("%d threads without, %d at first and %d after 5s with 50 hung mounts; slowest scrape %s, longest gap between samples of 200ms %s",
		quiet, before, a.threads(), scrape.Round(10*time.Microsecond), gap.Round(time.Millisecond))
	assert.LessOrEqual(t, a.threads(), quiet+8+4, "eight, and what the runtime keeps in reserve")
	assert.Less(t, gap, clock.Stretch(2500*time.Millisecond))
	start := deadline.Start()
	assert.Zero(t, a.end(syscall.SIGTERM))
	t.Logf("ended %s after SIGTERM", start.Passed().Round(time.Millisecond))
}

// By default the agent finds this machine's own root.
func TestFilesystemRootWatchedByDefault(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	var f snapshot.Filesystem
	eventually(t, "the root answers", func() error {
		if f = filesystem(a.ticked(1).snapshot(), "/"); f.AgeSeconds.IsZero() {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs("/", &st))
	size, ok := f.SizeBytes.Get()
	require.True(t, ok)
	assert.Equal(t, st.Blocks*uint64(st.Frsize), size)
	_, stdout, _ := run(t, "doctor", "--api.socket", filepath.Join(t.TempDir(), "none"), "--web.listen-address", "127.0.0.1:0")
	assert.Contains(t, stdout, "PASS  probe filesystems")
}

func TestDoctorHungMount(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	dead := s.Fuse("dead")
	file := configFile(t, "filesystems: {mounts: ["+dead.Point+"], timeout: 500ms}\n")
	start := time.Now()
	_, stdout, _ := run(t, "doctor", "--path.procfs", s.Proc, "--config", file, "--api.socket", filepath.Join(t.TempDir(), "none"), "--web.listen-address", "127.0.0.1:0")
	t.Logf("the doctor ended in %s", time.Since(start).Round(time.Millisecond))
	assert.Contains(t, stdout, "WARN  probe filesystems")
	assert.Contains(t, stdout, dead.Point+": statfs hangs")
}
