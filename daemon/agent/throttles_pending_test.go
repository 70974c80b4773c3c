package agent

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// unreadFiles are cgroup files that cannot be read, as those about a disk while a write about it
// hangs.
type unreadFiles struct{ throttle.Files }

func (unreadFiles) Get(throttle.Knob) (uint64, error) { return 0, assert.AnError }

// belowFile is a path at which nothing can be saved.
func (h *throttleFixture) belowFile() string {
	return filepath.Join(h.dir, moverPod, "io.max", "throttles.json")
}

// The first step is in force, and the second cannot be written for a minute, while others wait as
// long as before: the first is shown, and is not judged by what the floor would do.
func TestThrottleStepNotWritten(t *testing.T) {
	for what, breaks := range map[string]func(h *throttleFixture){
		"it cannot be saved":         func(h *throttleFixture) { h.throttles.file.Path = h.belowFile() },
		"the kernel does not answer": func(h *throttleFixture) { h.throttles.journal.Files = unreadFiles{h.throttles.journal.Files} },
	} {
		t.Run(what, func(t *testing.T) {
			h := newThrottleFixture(t)
			path, kernel := h.throttles.file.Path, h.throttles.journal.Files
			round := func(want string, percent int) {
				h.now = h.now.Add(time.Second)
				s := h.seen(plugins.Soft, false)
				s.Snapshot.Contention[0].State = snapshot.ContentionPresent
				s.Snapshot.Contention[0].Sufferers = []snapshot.Sufferer{{Party: snapshot.Party{Cgroup: "/service"}, Waited: 0.5, Share: snapshot.Some(0.1)}}
				h.throttles.round(s, &h.config, h.pods)
				require.Zero(t, h.throttles.list[throttle.Target{Cgroup: moverPod, Disk: "sda"}].UselessUntil)
				require.Equal(t, want, h.read())
				shown := h.throttles.shown.Load().Throttled
				require.Len(t, shown, 1)
				require.Equal(t, percent, shown[0].Percent)
				most := float64(percent) * (1000 << 20) / 100
				require.Equal(t, throttle.Rates{Read: most, Write: most}, shown[0].Limit)
			}
			round(fourOf, 80)
			breaks(h)
			for range 60 {
				round(fourOf, 80)
			}
			h.throttles.file.Path, h.throttles.journal.Files = path, kernel
			for range 10 {
				round("8:0 rbps=629145600 wbps=629145600\n", 60)
			}
			round("8:0 rbps=419430400 wbps=419430400\n", 40)
		})
	}
}

// Each save takes longer than a round waits for it, and ends well: the limit is written in the next
// round.
func TestThrottleSavedLate(t *testing.T) {
	h := newThrottleFixture(t)
	h.throttles.saveTimeout = 10 * time.Millisecond
	for range 2 {
		assert.Equal(t, "8:0 rbps=max wbps=max riops=max wiops=max\n", h.read())
		busy, answers := make(chan struct{}), make(chan struct{})
		require.ErrorIs(t, h.throttles.writer.Do(0, func() error {
			close(busy)
			<-answers
			return nil
		}), state.ErrTimeout)
		<-busy
		h.round(1, plugins.Soft)
		close(answers)
		require.NoError(t, h.throttles.writer.Flush(time.Minute))
	}
	assert.Equal(t, fourOf, h.read())
	saved, err := h.throttles.file.Load()
	require.NoError(t, err)
	assert.Equal(t, h.throttles.journal.Limits, saved.Limits)
	assert.Len(t, saved.Limits, 2)
}

// The raise of a held pod cannot be saved: it stays held, and is released in steps once it can be.
func TestMemoryRaiseNotSaved(t *testing.T) {
	h := newMemoryFixture(t)
	path := h.throttles.file.Path
	h.throttles.round(h.eats(), &h.config, h.pods)
	h.throttles.file.Path = h.belowFile()
	for second := range 230 {
		h.throttles.round(h.sample(1536, plugins.Soft), &h.config, h.pods)
		require.Equal(t, "1610616832", h.high())
		if second >= 29 {
			require.Equal(t, throttle.Rates{Memory: 1610616832}, h.throttles.shown.Load().Throttled[0].Limit)
		}
	}
	h.throttles.file.Path = path
	h.throttles.round(h.sample(1536, plugins.Soft), &h.config, h.pods)
	require.Equal(t, strconv.Itoa((1536+80/4)<<20), h.high())
	for range 119 {
		h.throttles.round(h.sample(1556, plugins.Soft), &h.config, h.pods)
		require.NotEqual(t, "max", h.high())
	}
	assert.Equal(t, strconv.Itoa((1556+80/4)<<20), h.high())
	h.throttles.round(h.sample(1556, plugins.Soft), &h.config, h.pods)
	assert.Equal(t, "max", h.high(), "2 min after the first raise")
}

// A pod goes on taking memory until its limit can be saved: the limit is no less than it holds then.
func TestMemoryLimitSavedLater(t *testing.T) {
	h := newMemoryFixture(t)
	path := h.throttles.file.Path
	h.throttles.file.Path = h.belowFile()
	h.throttles.round(h.eats(), &h.config, h.pods)
	require.Equal(t, "max", h.high())
	h.put("memory.current", strconv.Itoa(1656<<20)+"\n")
	h.throttles.file.Path = path
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Equal(t, strconv.Itoa(1656<<20), h.high())
}
