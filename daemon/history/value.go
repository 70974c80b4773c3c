package history

import "math"

// A value is kept in 16 bits: an exponent of 2 and six bits of mantissa, so that it is
// right to 0.8 %. 0 is unknown and 1 is zero; the rest counts up from the smallest
// value, so that values near each other have codes near each other.
const (
	unknown  uint16 = 0
	zero     uint16 = 1
	smallest uint16 = 2

	mantissaBits = 6
	lowestExp    = -24 // 60 ns, of a time in seconds
	highestExp   = 43  // 17 TB
	maxCode      = smallest + (highestExp-lowestExp+1)<<mantissaBits - 1

	// of a float64
	floatShift = 52 - mantissaBits
	lowestBits = (1023 + lowestExp) << mantissaBits
)

// encode rounds to the nearest code. What no measurement can be, negative or no
// number, is unknown.
func encode(v float64) uint16 {
	switch {
	case math.IsNaN(v) || v < 0:
		return unknown
	case v == 0: // and minus zero
		return zero
	}
	bits := (math.Float64bits(v) + 1<<(floatShift-1)) >> floatShift
	if bits < lowestBits {
		return zero
	}
	return uint16(min(bits-lowestBits+uint64(smallest), uint64(maxCode)))
}

// decode returns the value of a code, and whether there is one.
func decode(code uint16) (float64, bool) {
	switch {
	case code == unknown || code > maxCode:
		return 0, false
	case code == zero:
		return 0, true
	}
	return math.Float64frombits((uint64(code-smallest) + lowestBits) << floatShift), true
}
