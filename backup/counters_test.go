package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAWaitIsWithinEachBoundThatIsNotShorter(t *testing.T) {
	var tally Counters
	for _, d := range []time.Duration{time.Second, 3 * time.Hour, 48 * time.Hour} {
		tally.waited("velero", d)
	}
	want := Waits{Within: [12]uint64{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2}, Count: 3, Sum: 51*time.Hour + time.Second}
	assert.Equal(t, want, tally.Counts().Waits["velero"])
}
