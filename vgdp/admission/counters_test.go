package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestAWaitIsWithinEachBoundThatIsNotShorter(t *testing.T) {
	var tally Counters
	for _, d := range []time.Duration{time.Second, 3 * time.Hour, 24 * time.Hour} {
		tally.waited(vgdp.DataUpload, d)
	}
	want := Waits{Within: [12]uint64{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2}, Count: 3, Sum: 27*time.Hour + time.Second}
	assert.Equal(t, want, tally.Counts().Waits[vgdp.DataUpload])
}
