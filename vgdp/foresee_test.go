package vgdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func exhaustedIn(seconds float64) snapshot.Opt[snapshot.Exhaustion] {
	return snapshot.Some(snapshot.Exhaustion{Kind: snapshot.ExhaustsMemory, Seconds: seconds, EarliestSeconds: seconds / 2, LatestSeconds: 2 * seconds, OverSeconds: 30})
}

func TestBudgetForesees(t *testing.T) {
	p := NodePressure{Configured: 4, Running: 2}
	next := func(b Budget, second int, in snapshot.Opt[snapshot.Exhaustion]) Budget {
		p.Time, p.Exhaustion = at(time.Duration(second)*time.Second), in
		return b.Next(p)
	}
	t.Run("soon exhausted holds starts and leaves the limit", func(t *testing.T) {
		b := next(Budget{}, 0, exhaustedIn(60))
		assert.Zero(t, b.Limit)
		told := b.Pressure(at(0))
		require.NotNil(t, told)
		assert.Nil(t, told.Budget)
		assert.Equal(t, at(HoldStep), told.HoldUntil)
		assert.Equal(t, "memory is about to be exhausted: no memory available in about 60 s (30 s to 2 min, if it shrinks as in the last 30 s)", told.Why)
		assert.Zero(t, b.Hold, "no hold after it is longer")
		assert.Nil(t, next(b, 10, snapshot.Opt[snapshot.Exhaustion]{}).Pressure(at(10*time.Second)))
	})
	t.Run("later, or not at all, holds nothing", func(t *testing.T) {
		assert.Equal(t, Budget{ClearSince: at(0), Changed: at(0), Decayed: at(0)}, next(Budget{}, 0, exhaustedIn(121)))
		assert.Equal(t, Budget{ClearSince: at(0), Changed: at(0), Decayed: at(0)}, next(Budget{}, 0, snapshot.Opt[snapshot.Exhaustion]{}))
	})
	t.Run("a pod that bends it holds two minutes of seven at most", func(t *testing.T) {
		held := func(every int) (held int) {
			var b Budget
			for s := range 4 * 420 {
				e := snapshot.Opt[snapshot.Exhaustion]{}
				if s%every == 0 {
					e = exhaustedIn(5)
				}
				if b = next(b, s, e); b.Pressure(at(time.Duration(s)*time.Second)) != nil {
					held++
				}
			}
			return held
		}
		most := 4*int(MaxStartHold.Seconds()) + 10
		for _, every := range []int{1, 9, 60, 300, 420} {
			got := held(every)
			assert.LessOrEqual(t, got, most, "every %d s", every)
			assert.Positive(t, got)
		}
		assert.LessOrEqual(t, held(1), int((MaxStartHold + HoldStep).Seconds()), "one that never ends holds once")
	})
	t.Run("a longer hold stays", func(t *testing.T) {
		b := next(Budget{HoldUntil: at(time.Minute), Why: "disk"}, 0, exhaustedIn(5))
		assert.Equal(t, at(time.Minute), b.HoldUntil)
		assert.Equal(t, "disk", b.Why)
	})
	t.Run("under pressure and unknown, nothing is foreseen", func(t *testing.T) {
		p := NodePressure{Time: at(0), Configured: 4, Running: 2, Exhaustion: exhaustedIn(5), Level: plugins.Soft, Why: "disk"}
		assert.Zero(t, Budget{}.Next(p).Foreseen)
		p.Level, p.Absent = plugins.None, "warming up"
		assert.Zero(t, Budget{}.Next(p))
	})
	t.Run("a clock that was set back ends it", func(t *testing.T) {
		b := next(Budget{}, 3600, exhaustedIn(5))
		assert.Equal(t, Budget{ClearSince: at(0), Changed: at(0), Decayed: at(0)}, next(b, 0, snapshot.Opt[snapshot.Exhaustion]{}))
	})
}
