package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestLivenessOfHungRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := config.Open("", func(*config.Agent) {})
		require.NoError(t, err)
		a := &Agent{Config: file}
		a.state.Store(&view.State{})
		sampled := func() error { a.sampled(); return a.ready() }
		require.NoError(t, sampled(), "before the first round")
		ctx, end := context.WithCancel(t.Context())
		go func() { assert.NoError(t, a.roundLoop(ctx)) }()
		time.Sleep(time.Millisecond) // the first round is due, and none ends
		end()
		synctest.Wait()
		time.Sleep(process.NotReadyAfter + file.Current().Eviction.Round + file.Current().Plugins.Deadline - time.Millisecond)
		require.NoError(t, sampled())
		assert.Zero(t, a.roundsStuck())
		time.Sleep(time.Second)
		require.ErrorContains(t, sampled(), "rounds: stuck for 39s")
		assert.NoError(t, a.healthy(), "its Lease says that the node lives")
		a.roundLiveness.Record(loopRounds, file.Current().Eviction.Round)
		assert.NoError(t, sampled())
		a.roundLiveness.Record(loopRounds, 10*time.Minute) // by a configuration that was changed since
		time.Sleep(10 * time.Minute)
		assert.Zero(t, a.roundsStuck())
		a.roundLiveness.Record(loopRounds, file.Current().Eviction.Round)
		time.Sleep(time.Minute)
		a.cluster, a.movers, a.throttles = &cluster{pods: &pods.Watcher{}, status: &lease.Status{}}, &moverBudget{}, &throttles{}
		assert.InDelta(t, 60, a.viewCluster().RoundsStuckSeconds, 0, "the page and the metrics tell it")
		assert.Zero(t, a.viewCluster().UnsavedSeconds)
		a.unsaved.Store(&unsaved{time.Now(), "read-only file system"})
		time.Sleep(time.Minute)
		assert.InDelta(t, 60, a.viewCluster().UnsavedSeconds, 0)
		assert.Equal(t, "read-only file system", a.viewCluster().UnsavedReason)
	})
}

// The page and the API tell by it how old a sample is, whatever the wall clock is set to.
func TestPublishedSampleHasMonotonicClock(t *testing.T) {
	h := newMemoryFixture(t)
	file, err := config.Open("", nil)
	require.NoError(t, err)
	a := &Agent{Config: file, config: &h.config, throttles: h.throttles, triggers: newTriggers(&h.config, file.Current, nil), throttleDue: make(chan struct{}, 1), published: make(chan struct{}, 1)}
	s := h.sample(1000, plugins.None)
	s.Snapshot.Time = time.Now().Round(0)
	a.publish(s.Snapshot, s.Levels, time.Now())
	at := a.state.Load().Sampled
	assert.True(t, at.Equal(s.Snapshot.Time))
	assert.NotEqual(t, at.Round(0), at)
}

func TestMissedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		a.miss(time.Second-1, time.Second)
		assert.Zero(t, a.missedAt)
		a.miss(3*time.Second, time.Second)
		assert.EqualValues(t, 3, a.missed.Load())
		assert.Equal(t, time.Now(), a.missedAt)
	})
}

// A clock that is set forward ends no healthy agent, and one that is set back hides none that hangs.
func TestHealthOfSetClock(t *testing.T) {
	file, err := config.Open("", func(*config.Agent) {})
	require.NoError(t, err)
	a := &Agent{Config: file}
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		a.sampled()
		// A time.Time has the seconds of the wall clock from bit 30 of its first word on.
		*(*uint64)(unsafe.Pointer(a.lastSample.Load())) -= uint64(step/time.Second) << 30
		require.NoError(t, a.healthy(), "set by %s", step)
		assert.InDelta(t, 0, a.sampleAge(), float64(time.Minute), "set by %s", step)
	}
}
