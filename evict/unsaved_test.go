package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

func TestUnsavedChoiceWaits(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 40)), disk(plugins.Hard, named("b", 30)))
	for _, urgent := range []bool{false, true} {
		in.Levels.Verdicts[0].Urgent = urgent
		d, _ := Decide(in)
		require.Len(t, d.Candidates, 2)
		for i, c := range d.Candidates {
			memory := c.Pod.UID == "a"
			assert.Equal(t, urgent && memory, d.EvictUnsaved(i, 0), "%s, urgent: %t", c.Name, urgent)
			assert.Equal(t, urgent && memory, d.EvictUnsaved(i, time.Minute-1), c.Name)
			assert.True(t, d.EvictUnsaved(i, time.Minute), c.Name)
		}
	}
}
