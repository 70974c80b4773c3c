package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

func TestLivenessOfHungRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, err := config.Open("", func(*config.Agent) {})
		require.NoError(t, err)
		a := &Agent{Config: file}
		a.state.Store(&view.State{})
		sampled := func() error { a.lastSample.Store(time.Now().UnixNano()); return a.ready() }
		require.NoError(t, sampled(), "before the first round")
		a.roundLiveness.Record(loopRounds)
		time.Sleep(process.NotReadyAfter + file.Current().Eviction.Round + file.Current().Plugins.Deadline)
		require.NoError(t, sampled())
		time.Sleep(time.Second)
		require.ErrorContains(t, sampled(), "rounds: last pass of its loop was 39s ago")
		assert.NoError(t, a.healthy(), "its Lease says that the node lives")
		a.roundLiveness.Record(loopRounds)
		assert.NoError(t, sampled())
	})
}
