package gate_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

func TestTicketRoundTrip(t *testing.T) {
	for text, want := range map[string]gate.Ticket{
		"*@1":            {Node: gate.AnyNode, Epoch: 1},
		"n2@7":           {Node: "n2", Epoch: 7},
		"ip-10.a.b@1234": {Node: "ip-10.a.b", Epoch: 1234},
	} {
		got, err := gate.ParseTicket(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, text, got.String())
	}
}

func TestTicketInvalid(t *testing.T) {
	for _, text := range []string{"", "*", "@1", "*@", "*@0", "*@-1", "*@+1", "*@01", "*@1 ", "n@1@2", "*@9223372036854775808"} {
		_, err := gate.ParseTicket(text)
		assert.Error(t, err, "%q", text)
	}
}

func FuzzTicket(f *testing.F) {
	f.Add("*@1")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := gate.ParseTicket(text)
		if err == nil && got.String() != text {
			t.Errorf("%q is read as %q", text, got)
		}
	})
}

func TestGateSpecJSON(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC))
	raw, err := json.Marshal(gate.Spec{RenewTime: &at, LeaseDurationSeconds: 30, Epoch: 7, Limited: true})
	require.NoError(t, err)
	assert.JSONEq(t, `{"renewTime":"2026-03-01T12:00:00.000001Z","leaseDurationSeconds":30,"epoch":7,"limited":true}`, string(raw))
	raw, err = json.Marshal(gate.Spec{Epoch: 7, Holds: map[string]metav1.Time{"n1": metav1.NewTime(at.Time)}, Steer: true})
	require.NoError(t, err)
	assert.JSONEq(t, `{"epoch":7,"holds":{"n1":"2026-03-01T12:00:00Z"},"steer":true}`, string(raw))
}

func TestGateHoldsUntil(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for progress, want := range map[time.Duration]time.Duration{-time.Hour: 30 * time.Minute, time.Hour: 90 * time.Minute} {
		s := gate.Spec{ProgressTime: &metav1.MicroTime{Time: created.Add(progress)}}
		assert.Equal(t, created.Add(want), s.HoldsUntil(created, time.Time{}))
	}
	assert.Equal(t, created.Add(30*time.Minute), new(gate.Spec).HoldsUntil(created, time.Time{}))
	for postponed, want := range map[time.Duration]time.Duration{
		-time.Hour: 90 * time.Minute, 10 * time.Hour: 630 * time.Minute, 26 * time.Hour: 25*time.Hour + 30*time.Minute,
	} {
		s := gate.Spec{ProgressTime: &metav1.MicroTime{Time: created.Add(time.Hour)}}
		assert.Equal(t, created.Add(want), s.HoldsUntil(created, created.Add(postponed)), postponed)
	}
}
