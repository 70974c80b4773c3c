package vgdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHoldRenewedAtHalf(t *testing.T) {
	in := Input{
		Time: noon, HoldLifetime: 10 * time.Second, Veleros: map[string]Velero{"velero": {Epoch: 7}},
		Topology: NewTopology([]Node{{Features: Features{Name: "n1"}, Agents: map[string]Agent{"velero": {Ready: true, Concurrency: 2}}}}),
		Pressure: map[string]Pressure{"n1": {Budget: new(1)}},
	}
	for left, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 4 * time.Second: 10 * time.Second, 6 * time.Second: 6 * time.Second} {
		in.Holds = map[string]time.Time{"n1": at(left)}
		assert.Equal(t, at(want), Decide(in).Holds["n1"], left)
	}
	in.HoldLifetime, in.Holds = 0, nil
	assert.Equal(t, at(HoldLifetime), Decide(in).Holds["n1"])
}

func TestTopologyHasAgent(t *testing.T) {
	f := NewTopology([]Node{{Features: Features{Name: "n1"}, Agents: map[string]Agent{"velero": {}}}})
	assert.True(t, f.HasAgent("n1", "velero"), "ready or not")
	assert.False(t, f.HasAgent("n1", "other"))
	assert.False(t, f.HasAgent("n2", "velero"))
}
