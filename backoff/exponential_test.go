package backoff

import (
	"math"
	"math/big"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExponential(t *testing.T) {
	e := Exponential{First: 10 * time.Second, Longest: time.Minute}
	t.Run("doubles up to the longest", func(t *testing.T) {
		for times, want := range map[int]time.Duration{-1: 10, 0: 10, 1: 20, 2: 40, 3: 60, 4: 60, math.MaxInt: 60} {
			assert.Equal(t, want*time.Second, e.Doubled(times), "%d times", times)
		}
	})
	t.Run("the next is twice the last", func(t *testing.T) {
		for last, want := range map[time.Duration]time.Duration{0: 10, 5: 10, 10: 20, 29: 58, 30: 60, 31: 60, 60: 60, 100: 60} {
			assert.Equal(t, want*time.Second, e.Next(last*time.Second), "after %d s", last)
		}
	})
	t.Run("is as the exact product", func(t *testing.T) {
		require.NoError(t, quick.Check(func(first, longest int64, shift uint8, times uint8) bool {
			e := Exponential{First: time.Duration(first>>1&math.MaxInt64) >> (shift % 64), Longest: time.Duration(longest & math.MaxInt64)}
			return e.Doubled(int(times)) == exact(e, int(times))
		}, &quick.Config{MaxCount: 10000}))
	})
}

func exact(e Exponential, times int) time.Duration {
	product := new(big.Int).Lsh(big.NewInt(int64(e.First)), uint(times))
	if product.Cmp(big.NewInt(int64(e.Longest))) < 0 {
		return time.Duration(product.Int64())
	}
	return e.Longest
}
