package probes

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func age(f snapshot.Filesystem) float64 {
	a, _ := f.AgeSeconds.Get() // 0 when absent: asked only where it is not
	return a
}

// threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(list)
}

// longestRead reads for a time and returns the longest read.
func (s *mountSpace) longestRead(h *Host, of time.Duration) time.Duration {
	s.Helper()
	longest := time.Duration(0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < of; <-tick.C {
		before := deadline.Start()
		_, _ = filesystemsOf(s, h) // looked at afterwards
		longest = max(longest, before.Elapsed())
	}
	return longest
}

func TestMountHungFromStart(t *testing.T) {
	s := newMountSpace(t)
	dead := s.Fuse("dead")
	alive := s.Mount("tmpfs", "alive", "alive", "size=1m")
	h := s.host(dead.Point, alive)
	s.eventually(h, "the mount is reported as hanging", func(list []snapshot.Filesystem) bool {
		return at(list, dead.Point).Absent["statfs"] == "statfs hangs" && !at(list, alive).AgeSeconds.IsZero()
	})
	took := s.longestRead(h, time.Second)
	t.Logf("longest read beside a hung mount: %s", took)
	assert.Less(t, took, 500*time.Millisecond)

	f := at(s.says(h, dead.Point+": statfs hangs"), dead.Point)
	assert.True(t, f.AgeSeconds.IsZero(), "what never answered has no age")
	assert.True(t, f.SizeBytes.IsZero())
	assert.True(t, f.AvailableBytes.IsZero())
	assert.True(t, f.FilesFree.IsZero())
	assert.Equal(t, "fuse", f.Type)
	assert.Equal(t, "dead-server:/export", f.Device)
	s.eventually(h, "the others are asked as before", func(list []snapshot.Filesystem) bool {
		return age(at(list, alive)) < 0.5 && at(list, alive).Absent["statfs"] == ""
	})
}

func TestMountHangsLaterKeepsValues(t *testing.T) {
	s := newMountSpace(t)
	m := s.Fuse("nfs")
	h := s.host(m.Point)
	first := at(s.eventually(h, "the mount answers", func(list []snapshot.Filesystem) bool {
		m.Answer()
		return !at(list, m.Point).AgeSeconds.IsZero()
	}), m.Point)
	assert.Equal(t, snapshot.Some[uint64](1000*4096), first.SizeBytes)
	assert.Equal(t, snapshot.Some[uint64](250*4096), first.AvailableBytes, "available to users other than root")
	assert.Equal(t, snapshot.Some[uint64](500), first.Files)
	assert.Equal(t, snapshot.Some[uint64](77), first.FilesFree)

	hung := at(s.eventually(h, "it is reported as hanging", func(list []snapshot.Filesystem) bool {
		return at(list, m.Point).Absent["statfs"] == "statfs hangs"
	}), m.Point)
	assert.Equal(t, snapshot.Some[uint64](250*4096), hung.AvailableBytes)
	assert.GreaterOrEqual(t, age(hung), 0.1, "at least as old as the timeout")
	later := at(s.eventually(h, "it grows old", func(list []snapshot.Filesystem) bool {
		return age(at(list, m.Point)) > age(hung)+0.3
	}), m.Point)
	assert.Equal(t, snapshot.Some[uint64](250*4096), later.AvailableBytes)

	require.Equal(t, 1, m.Take(), "it is not asked again while a call is out")
	m.FreeBlocks = 100
	m.Answer()
	again := at(s.eventually(h, "it answers again", func(list []snapshot.Filesystem) bool {
		m.Answer()
		return at(list, m.Point).AvailableBytes == snapshot.Some[uint64](100*4096)
	}), m.Point)
	assert.Less(t, age(again), age(later))
	assert.NotContains(t, again.Absent, "statfs")
}

func TestMountFiftyHungEightThreads(t *testing.T) {
	s := newMountSpace(t)
	var dead []string
	for i := range 50 {
		dead = append(dead, s.Fuse(fmt.Sprintf("dead%02d", i)).Point)
	}
	s.longestRead(s.host(s.Dir), 50*time.Millisecond) // the runtime has the threads that it needs anyhow
	before, routines := threads(t), runtime.NumGoroutine()
	h := s.host(dead...)
	s.eventually(h, "eight hang, and no more are asked", func(list []snapshot.Filesystem) bool {
		hung, unasked := 0, 0
		for _, f := range list {
			switch f.Absent["statfs"] {
			case "statfs hangs":
				hung++
			case "not read: statfs of 8 other mounts hangs":
				unasked++
			}
		}
		return hung == 8 && unasked == 42
	})
	took := s.longestRead(h, time.Second) // a hundred periods
	after := threads(t)
	t.Logf("threads: %d before, %d with 50 hung mounts; goroutines: %d and %d; longest read %s", before, after, routines, runtime.NumGoroutine(), took)
	assert.LessOrEqual(t, after-before, maxCalls+4, "and what the runtime keeps in reserve")
	// One may be making a survey, and one that has done its last is counted until it is gone.
	deadline.Eventually(t, func() bool { return runtime.NumGoroutine()-routines <= maxCalls+1 }, 10*time.Second, time.Millisecond, "a goroutine for each call that hangs")
	assert.Less(t, took, 500*time.Millisecond)

	_, err := filesystemsOf(t, h)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "and 5 more: statfs hangs")
	assert.Contains(t, err.Error(), "and 39 more: not read: statfs of 8 other mounts hangs")
	assert.Less(t, len(err.Error()), 1000)
}

func TestMountBehindHungAskedLater(t *testing.T) {
	s := newMountSpace(t)
	var dead []*filesystemtest.Fuse
	names := []string{s.Mount("tmpfs", "z", "z", "size=64k")}
	for i := range maxCalls {
		dead = append(dead, s.Fuse(fmt.Sprintf("dead%d", i)))
		names = append(names, dead[i].Point)
	}
	last := s.Fuse("last") // behind the others by its name, and before z
	h := s.host(append(names, last.Point)...)
	s.eventually(h, "z is not asked", func(list []snapshot.Filesystem) bool {
		return at(list, names[0]).Absent["statfs"] == "not read: statfs of 8 other mounts hangs"
	})
	for _, f := range dead {
		f.Abort()
	}
	list := s.eventually(h, "z is asked, and the others have answered", func(list []snapshot.Filesystem) bool {
		for _, f := range dead {
			if !strings.HasPrefix(at(list, f.Point).Absent["statfs"], "statfs: ") { // an error is an answer
				return false
			}
		}
		return !at(list, names[0]).AgeSeconds.IsZero()
	})
	assert.NotContains(t, at(list, names[0]).Absent, "statfs")
}

func TestMountCloseWaitsForAnswersOnly(t *testing.T) {
	s := newMountSpace(t)
	dead := s.Fuse("dead")
	h := s.host(dead.Point)
	s.eventually(h, "it hangs", func(list []snapshot.Filesystem) bool { return at(list, dead.Point).Absent["statfs"] == whyHangs })
	start := deadline.Start()
	h.Close()
	t.Logf("closed in %s beside a hung mount", start.Passed())
	assert.Less(t, start.Elapsed(), 5*time.Second)

	before := runtime.NumGoroutine()
	h = s.host(s.Mount("tmpfs", "alive", "alive", "size=1m"))
	_, err := filesystemsOf(t, h)
	require.NoError(t, err)
	h.Close()
	h.Close()
	// A goroutine that has done its last is counted until it is gone.
	deadline.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, 10*time.Second, time.Millisecond, "nothing runs on")
	surveyed := h.filesystems.surveyed
	_, err = h.filesystems.read(time.Now().Add(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, surveyed, h.filesystems.surveyed, "nothing starts after the end")
}
