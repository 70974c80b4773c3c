package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/state"
)

// A state directory whose disk hangs holds up neither reader for longer than its timeout.
func TestStateDirDiskHangs(t *testing.T) {
	for name, read := range map[string]func(disk *state.Writer, dir string) error{
		"baselines": func(disk *state.Writer, dir string) error { _, err := SavedBaselines(disk, dir); return err },
		"holder":    func(disk *state.Writer, dir string) error { _, _, err := Holder(disk, dir); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, hangs, dir := new(state.Writer), make(chan struct{}), t.TempDir()
				start := time.Now()
				require.ErrorIs(t, disk.Do(0, func() error { <-hangs; return nil }), state.ErrTimeout)
				synctest.Wait() // it has begun
				require.ErrorIs(t, read(disk, dir), state.ErrTimeout)
				assert.Equal(t, stateTimeout, time.Since(start))
				close(hangs)
				synctest.Wait()
				assert.NoError(t, read(disk, dir), "it answers again, and nothing was saved")
			})
		})
	}
}
