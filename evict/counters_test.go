package evict

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCountersByOutcome(t *testing.T) {
	var tally Counters
	evictions, suppressed := tally.Counts()
	assert.Empty(t, evictions)
	assert.Empty(t, suppressed)
	asked := []Answer{{Outcome: Blocked}}
	d := Decision{Candidates: []Considered{
		{Plugins: []string{"memory-stall", "disk-contention"}, Code: CodePDB, Answers: asked},
		{Plugins: []string{"memory-stall"}, Code: CodeEvicted, Answers: asked},
		{Plugins: []string{"memory-stall"}, Code: CodePDB}, // waits since an earlier round
		{Plugins: []string{"memory-stall"}, Code: CodeNotNeeded},
		{Plugins: []string{"disk-contention"}, Code: CodeNotNeeded},
		{Plugins: []string{"disk-contention", "outer"}, Code: CodeEvicted, Answers: asked, For: VerdictRef{Plugin: "outer"}},
	}}
	tally.Count(&d)
	tally.Count(&d)
	evictions, suppressed = tally.Counts()
	wantEvictions := map[Result]uint64{{"memory-stall", CodePDB}: 2, {"memory-stall", CodeEvicted}: 2, {"outer", CodeEvicted}: 2}
	wantSuppressed := map[Code]uint64{CodePDB: 2, CodeNotNeeded: 4}
	assert.Equal(t, wantEvictions, evictions)
	assert.Equal(t, wantSuppressed, suppressed)
	clear(evictions)
	clear(suppressed)
	evictions, suppressed = tally.Counts()
	assert.Equal(t, wantEvictions, evictions, "what was given was a copy")
	assert.Equal(t, wantSuppressed, suppressed)
}

// Outer plugins may register under ever new names.
func TestCountersOfManyPlugins(t *testing.T) {
	var tally Counters
	for i := range 3 * maxCountedPlugins {
		for _, plugin := range []string{fmt.Sprint("p", i), "memory-stall"} {
			tally.Count(&Decision{Candidates: []Considered{{Plugins: []string{plugin}, Code: CodeEvicted, Answers: []Answer{{Outcome: Evicted}}}}})
		}
	}
	evictions, _ := tally.Counts()
	assert.Len(t, evictions, maxCountedPlugins+2)
	assert.EqualValues(t, 3*maxCountedPlugins, evictions[Result{"memory-stall", CodeEvicted}])
	assert.EqualValues(t, 2*maxCountedPlugins, evictions[Result{"other", CodeEvicted}])
}
