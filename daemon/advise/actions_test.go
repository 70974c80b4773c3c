package advise

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func evictedAt(seconds float64, pod string) replay.Decision {
	return replay.Decision{OffsetSeconds: seconds, Decision: evict.Decision{Candidates: []evict.Considered{
		{Code: evict.CodeWouldEvict, Pod: &pods.Pod{Namespace: "shop", Name: pod}},
		{Code: evict.CodePDB, Pod: &pods.Pod{Namespace: "shop", Name: "kept"}},
	}}}
}

func TestActions(t *testing.T) {
	report := &replay.Report{
		Decisions: []replay.Decision{evictedAt(10, "web"), evictedAt(50, "web"), evictedAt(70, "db")},
		Throttled: []replay.Throttling{
			{OffsetSeconds: 40, Name: "shop/web", Disk: "sda"},
			{OffsetSeconds: 45, Name: "shop/web", Memory: true},
			{OffsetSeconds: 60, Name: "shop/web", Disk: "sda"},
			{OffsetSeconds: 5, Name: "batch/x"},
		},
	}
	a := &Advice{Actions: actions(report)}
	assert.Equal(t, []Action{
		{Name: "shop/web", Evicted: 2, EvictedUnthrottled: 1, Throttled: map[string]uint64{"sda": 2, "memory": 1}},
		{Name: "shop/db", Evicted: 1, EvictedUnthrottled: 1, Throttled: map[string]uint64{}},
		{Name: "batch/x", Throttled: map[string]uint64{"cpu": 1}},
	}, a.Actions)
	var b bytes.Buffer
	require.NoError(t, WriteText(&b, a))
	assert.Contains(t, b.String(), `
Without a dry run:
WORKLOAD  THROTTLED            EVICTED  NOT THROTTLED BEFORE
shop/web  1 × memory, 2 × sda  2        1
shop/db                        1        1
batch/x   1 × cpu              0        0
`)
	for i := range 30 {
		report.Throttled = append(report.Throttled, replay.Throttling{Name: fmt.Sprintf("many/%02d", i)})
	}
	a.Actions, a.ActionsOmitted = actions(report), 7
	b.Reset()
	require.NoError(t, WriteText(&b, a))
	assert.Contains(t, b.String(), "\nand 13 more\n7 more actions are not counted.\n")
	assert.Empty(t, actions(&replay.Report{}))
	b.Reset()
	require.NoError(t, WriteText(&b, &Advice{}))
	assert.Contains(t, b.String(), "Without a dry run no pod would have been throttled or evicted.\n")
}
