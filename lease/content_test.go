package lease_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

func TestContentRoundTrip(t *testing.T) {
	budget, grace := 2, int64(30)
	at := lease.Micro(time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC))
	want := lease.Content{
		Report:   lease.NodeReport{Pressure: map[string]string{"disk": "soft"}, DataMoverBudget: &budget, HoldUntil: &at},
		Requests: []lease.Request{{UID: "u1", Namespace: "team", Name: "batch-1", Plugin: "memory-stall", Reason: "stall 31 %", GraceSeconds: &grace, Since: at}},
		Answers:  []lease.Answer{{UID: "u1", Result: lease.Accepted, At: at}},
	}
	written := map[string]string{}
	for key, value := range map[string]any{
		lease.NodeAnnotation: want.Report, lease.EvictionsAnnotation: want.Requests, lease.AnswersAnnotation: want.Answers,
	} {
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		written[key] = string(raw)
	}
	got, err := lease.ReadContent(written)
	require.NoError(t, err)
	assert.Equal(t, `{"pressure":{"disk":"soft"},"budget":2,"holdUntil":"2026-03-01T12:00:00.123456Z"}`, written[lease.NodeAnnotation])
	assert.True(t, got.Report.HoldUntil.Equal(&at))
	assert.True(t, got.Requests[0].Since.Equal(&at))
	again, err := json.Marshal(got.Answers)
	require.NoError(t, err)
	assert.JSONEq(t, written[lease.AnswersAnnotation], string(again))
}

func TestContentEmpty(t *testing.T) {
	got, err := lease.ReadContent(nil)
	require.NoError(t, err)
	assert.Equal(t, lease.Content{}, got)
}

func TestContentUnreadableAnnotation(t *testing.T) {
	got, err := lease.ReadContent(map[string]string{
		lease.NodeAnnotation: `{"pressure":7}`, lease.AnswersAnnotation: `[{"uid":"u1","result":"gone"}]`,
	})
	require.ErrorContains(t, err, "plimsoll.dev/node-report")
	require.Len(t, got.Answers, 1)
	assert.Equal(t, lease.Gone, got.Answers[0].Result)
}
