package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRulesHashOwnConfiguration(t *testing.T) {
	before := Rules(Default())
	assert.Len(t, before, len(Inners(Default())))
	for _, p := range Inners(Default()) {
		assert.Contains(t, before, p.Name())
	}
	assert.Equal(t, before, Rules(Default()), "a restart with the same configuration")
	c := Default()
	c.MemoryStall.Hard.Available = 0.05
	after := Rules(c)
	assert.NotEqual(t, before["memory-stall"].Hash, after["memory-stall"].Hash)
	assert.Equal(t, before["disk-contention"], after["disk-contention"])
	assert.True(t, before["memory-stall"].Default)
	assert.False(t, after["memory-stall"].Default)
	assert.True(t, after["disk-contention"].Default)
	c.CPUSuppression.Enabled = true
	assert.False(t, Rules(c)["cpu-suppression"].Default, "a fresh install has it switched off")
	c = Default()
	c.WarmUp = time.Hour
	assert.Equal(t, before, Rules(c), "how long a node warms up is no rule's own")
}

func TestRulesWindowIsLongestTime(t *testing.T) {
	c := Default()
	assert.Equal(t, 30*time.Second, Rules(c)["memory-stall"].Window, "soft takes longer than hard")
	assert.Equal(t, time.Minute, Rules(c)["disk-contention"].Window)
	c.CPUSuppression.Enabled, c.CPUSuppression.For = true, time.Hour
	assert.Equal(t, time.Hour, Rules(c)["cpu-suppression"].Window)
	c.MemoryStall.Hard.Window, c.MemoryStall.ClearFor = time.Hour, 2*time.Hour
	assert.Equal(t, time.Hour, Rules(c)["memory-stall"].Window, "how long it takes to be left does not count")
	for name, r := range Rules(c) {
		assert.NotEmpty(t, r.Hash, name)
	}
}
