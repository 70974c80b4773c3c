package history

import (
	"math"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// unit of a plot.
type unit int

// The units.
const (
	unitShare unit = iota // of a whole that is always shown
	unitStall             // a share of time, mostly small
	unitCores
	unitBytes
	unitDiskBytes // per second
	unitLinkBytes // per second
	unitSeconds
	unitPerSecond
	unitLevel
)

func (u unit) format(v float64) string {
	switch u {
	case unitShare, unitStall:
		return view.Ratio(v)
	case unitBytes:
		return view.Bytes(v)
	case unitDiskBytes:
		return view.ByteRate(v)
	case unitLinkBytes:
		return view.BitRate(v)
	case unitSeconds:
		return view.Seconds(v)
	case unitPerSecond:
		return view.Number(v) + "/s"
	case unitCores, unitLevel:
	}
	return view.Number(v)
}

// scale is the end of an axis that has room for a value: one of few, so that two plots
// are comparable, and none so small that idling looks like work.
func (u unit) scale(highest float64) float64 {
	switch u {
	case unitShare:
		return 1
	case unitStall:
		for _, step := range []float64{0.05, 0.1, 0.25, 0.5} {
			if highest <= step {
				return step
			}
		}
		return 1
	case unitBytes:
		return math.Exp2(math.Ceil(math.Log2(max(highest, 1<<20))))
	case unitLinkBytes:
		return oneTwoFive(max(8*highest, 1e6)) / 8
	case unitDiskBytes:
		return oneTwoFive(max(highest, 1e5))
	case unitSeconds:
		return oneTwoFive(max(highest, 1e-3))
	case unitLevel:
		return 2
	case unitCores:
		return oneTwoFive(max(highest, 0.2))
	case unitPerSecond:
	}
	return oneTwoFive(max(highest, 1))
}

// oneTwoFive is the next 1, 2 or 5 times a power of ten.
func oneTwoFive(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power*(1+1e-9) {
			return step * power
		}
	}
	return 10 * power
}

// ofRule is the unit of a rule whose threshold may be drawn in such a plot.
func (u unit) ofRule() string {
	switch u {
	case unitShare, unitStall:
		return "ratio"
	case unitSeconds:
		return "seconds"
	case unitBytes, unitCores, unitDiskBytes, unitLinkBytes, unitPerSecond, unitLevel:
	}
	return "none"
}
