package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
)

func TestARoundKnowsWhoHurtsWhom(t *testing.T) {
	file, err := config.Open("", nil)
	require.NoError(t, err)
	a, s := &Agent{Config: file, movers: &movers{}}, scenes.Contended()
	a.state.Store(s)
	require.True(t, a.measured())
	in := a.look(t.Context(), nil)
	assert.Equal(t, s.Snapshot.Contention, in.Contention)
	assert.False(t, a.measured(), "each sample is used once")
}
