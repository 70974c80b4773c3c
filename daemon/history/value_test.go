package history

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValue(t *testing.T) {
	for name, row := range map[string]struct{ is, want float64 }{
		"zero": {0, 0}, "one": {1, 1}, "a power of two": {1 << 30, 1 << 30}, "less than is kept": {1e-9, 0},
		"more than is kept": {math.Inf(1), 1.75e13}, "minus zero": {math.Copysign(0, -1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, known := decode(encode(row.is))
			require.True(t, known)
			assert.InEpsilon(t, 1+row.want, 1+v, 0.008)
		})
	}
	for name, is := range map[string]float64{"not a number": math.NaN(), "negative": -1} {
		t.Run(name, func(t *testing.T) {
			_, known := decode(encode(is))
			assert.False(t, known, "no measurement is that")
		})
	}
	_, known := decode(maxCode + 1)
	assert.False(t, known)
}

func FuzzValue(f *testing.F) {
	for _, v := range []float64{0, 0.1, 1e-7, 0.999, 250e-6, 12345678, 1e13} {
		f.Add(v, v*1.01)
	}
	f.Fuzz(func(t *testing.T, a, b float64) {
		if math.IsNaN(a) || math.IsNaN(b) || a < 0 || b < 0 {
			return
		}
		if a > b {
			a, b = b, a
		}
		require.LessOrEqual(t, encode(a), encode(b), "what is more stays more, or the same")
		v, known := decode(encode(a))
		require.True(t, known)
		if a >= 1e-7 && a <= 1e13 {
			require.InEpsilon(t, a, v, 1.0/127)
		}
		require.Equal(t, encode(a), encode(v))
	})
}
