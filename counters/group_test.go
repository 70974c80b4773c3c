package counters

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

type counts struct {
	writes By[string]
	waits  Histograms[string]
}

func (c counts) Clone() counts { return counts{c.writes.Clone(), c.waits.Clone()} }

func TestGroup(t *testing.T) {
	t.Run("counts from any goroutine", func(t *testing.T) {
		var g Group[counts]
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				g.Change(func(c *counts) { c.writes.Add("a"); c.waits.Add("a", time.Second, []float64{1}) })
				_ = g.Counts().writes["a"]
			})
		}
		all.Wait()
		assert.Equal(t, counts{By[string]{"a": 10}, Histograms[string]{"a": {Within: []uint64{10}, Count: 10, Sum: 10 * time.Second}}}, g.Counts())
	})
	t.Run("what was read does not change", func(t *testing.T) {
		var g Group[counts]
		add := func(c *counts) { c.writes.Add("a"); c.waits.Add("a", time.Second, []float64{1}) }
		g.Change(add)
		was := g.Counts()
		g.Change(add)
		assert.Equal(t, uint64(1), was.writes["a"])
		assert.Equal(t, []uint64{1}, was.waits["a"].Within)
		assert.Equal(t, uint64(2), g.Counts().writes["a"])
	})
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{time.Second, 3 * time.Hour, 24 * time.Hour} {
		h = h.Add(d, []float64{0.5, 1, 3600, 14400})
	}
	assert.Equal(t, Histogram{Within: []uint64{0, 1, 1, 2}, Count: 3, Sum: 27*time.Hour + time.Second}, h, "each bound counts what is not longer")
}
