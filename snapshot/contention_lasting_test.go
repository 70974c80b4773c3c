package snapshot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitsOn is for how long /waits has been a sufferer on sda.
func waitsOn(t *testing.T, list []Contention) (seconds float64, listed bool) {
	t.Helper()
	for _, c := range list {
		for _, s := range c.Sufferers {
			if s.Cgroup == "/waits" && c.Device == "sda" {
				seconds, known := s.LastingSeconds.Get()
				require.True(t, known)
				return seconds, true
			}
		}
	}
	return 0, false
}

func TestSuffererLasting(t *testing.T) {
	waits := user{cgroup: "/waits", reads: map[string]uint64{"8:0": 100}, bytes: 4096, ioStall: 0.5}
	uses := user{cgroup: "/uses", reads: map[string]uint64{"8:0": 900}, bytes: 4096}
	node := sharing{disks: []Disk{leafDisk("sda", "8:0", 1000, 4096)}, users: []user{waits, uses}, source: IOStat, ioStall: 0.5}
	h := &History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	lasting := func(second uint64) (seconds float64, listed bool) {
		return waitsOn(t, h.Add(node.sample(second)).Contention)
	}
	_, listed := lasting(0)
	assert.False(t, listed, "a share needs two samples")
	for second := range uint64(5) {
		got, listed := lasting(second + 1)
		require.True(t, listed)
		assert.InDelta(t, float64(second), got, 1e-9)
	}
	t.Run("a gap begins anew", func(t *testing.T) {
		_, listed := lasting(20)
		assert.False(t, listed)
		got, listed := lasting(21)
		assert.True(t, listed)
		assert.Zero(t, got)
	})
	t.Run("a single window does not know it", func(t *testing.T) {
		s := h.Add(node.sample(22))
		w, _ := s.Over(time.Second)
		for _, c := range s.ContentionIn(w) {
			for _, p := range c.Sufferers {
				assert.True(t, p.LastingSeconds.IsZero())
			}
		}
	})
}
