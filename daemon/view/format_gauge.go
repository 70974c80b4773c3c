package view

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// TowardsThreshold is how far an observed value has gone towards its threshold: 0
// where there is no use at all, 1 where it is reached or passed, whichever direction
// is the worse one. False: one of the two is not known.
func TowardsThreshold(v *plugins.Verdict) (share float64, known bool) {
	observed, ok1 := v.Observed.Get()
	threshold, ok2 := v.Threshold.Get()
	if !ok1 || !ok2 || observed < 0 || threshold < 0 {
		return 0, false
	}
	switch v.Operator {
	case ">", ">=":
		share = part(observed, threshold)
	case "<", "<=":
		if v.Unit == "ratio" { // what is used of the whole, against what may be
			share = part(1-observed, 1-threshold)
		} else {
			share = part(threshold, observed)
		}
	default:
		return 0, false
	}
	return min(1, max(0, share)), true
}

func part(of, whole float64) float64 {
	switch {
	case whole > 0:
		return of / whole
	case of > 0:
		return 1
	}
	return 0
}
