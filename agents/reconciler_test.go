package agents

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What was last seen is not shown as the present when nothing watches the agents any more.
func TestReportWithdrawnWhenDisabled(t *testing.T) {
	s := newFixture(t)
	settings := DefaultSettings()
	s.r.Settings = func() Settings { return settings }
	require.NoError(t, s.r.cache.nodes.Replace(nil, ""))
	require.NoError(t, s.r.cache.leases.Replace(nil, ""))
	s.node("a")
	s.r.round(t.Context())
	require.NotNil(t, s.r.Report())
	settings.Enabled = false
	s.r.round(t.Context())
	assert.Nil(t, s.r.Report())
	settings.Enabled = true
	s.r.round(t.Context())
	assert.Equal(t, 1, s.r.Report().Agents[Alive])
}
