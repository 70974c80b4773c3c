package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/store"
)

// rounds runs a loop in a bubble, and returns when each round began.
func rounds(t *testing.T, wake store.Signal, pause Pause, beside func()) (at []time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begun := time.Now()
	go beside()
	var l Loop[int]
	l.Run(ctx, wake, func(context.Context) Pause {
		at = append(at, time.Since(begun))
		return pause
	})
	return at
}

func TestLoop(t *testing.T) {
	const second = time.Second
	t.Run("without a signal the longest pause passes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			assert.Equal(t, []time.Duration{0, 4 * second, 8 * second}, rounds(t, store.NewSignal(), Pause{Longest: 4 * second}, func() {}))
		})
	})
	t.Run("a signal ends the pause, but not before the shortest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			wake := store.NewSignal()
			got := rounds(t, wake, Pause{Shortest: second, Longest: 8 * second}, func() {
				for range 3 {
					time.Sleep(200 * time.Millisecond)
					wake.Set()
				}
				time.Sleep(3400 * time.Millisecond) // 4 s after the start
				wake.Set()
			})
			assert.Equal(t, []time.Duration{0, second, 4 * second}, got)
		})
	})
	t.Run("a pause whose shortest is the longer one passes whole", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			assert.Equal(t, []time.Duration{0, 6 * second}, rounds(t, store.NewSignal(), Pause{Shortest: 6 * second, Longest: second}, func() {}))
		})
	})
	t.Run("its end waits for the watches and withdraws the report", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var l Loop[[]int]
			assert.Nil(t, l.Report())
			assert.False(t, l.Published())
			ctx, cancel := context.WithCancel(t.Context())
			ended := false
			l.Run(ctx, store.NewSignal(), func(ctx context.Context) Pause {
				l.Watch(func() { <-ctx.Done(); time.Sleep(second); ended = true })
				l.Publish(nil) // nothing to report
				assert.True(t, l.Published())
				l.Publish([]int{})
				assert.NotNil(t, l.Report())
				cancel()
				return Pause{}
			})
			assert.True(t, ended)
			assert.Nil(t, l.Report())
			assert.False(t, l.Published())
		})
	})
}
