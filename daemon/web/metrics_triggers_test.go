package web

import (
	"bytes"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

func TestMetricsTriggers(t *testing.T) {
	s := fullState()
	s.Agent.Triggers = &view.Triggers{Armed: 8, FiredTotal: map[string]uint64{"memory": 3, "io": 0}, WokenTotal: 2}
	value := func(family string) float64 { return valuesOf(t, s, family, "")[""] }
	assert.InDelta(t, 8, value("plimsoll_pressure_triggers_armed"), 0)
	assert.InDelta(t, 2, value("plimsoll_triggered_samples_total"), 0)
	assert.Equal(t, map[string]float64{"memory": 3, "io": 0}, valuesOf(t, s, "plimsoll_pressure_triggers_fired_total", "resource"))
	problems, err := promlint.New(bytes.NewReader(appendTriggers(nil, s.Agent.Triggers))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)

	s.Agent.Triggers = &view.Triggers{}
	families := parseMetrics(t, appendMetrics(nil, s))
	assert.Contains(t, families, "plimsoll_pressure_triggers_armed", "none is a fact")
	assert.NotContains(t, families, "plimsoll_pressure_triggers_fired_total")
	s.Agent.Triggers = nil
	assert.NotContains(t, parseMetrics(t, appendMetrics(nil, s)), "plimsoll_pressure_triggers_armed", "plimsoll top arms none")
}
