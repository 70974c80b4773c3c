package judgement

import (
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// confidence of all intervals, two-sided.
const confidence = 0.95

// Rate is how many of a number were so, with the interval of Clopper and Pearson
// (Biometrika 26, 1934): exact, so that no rate is claimed more precisely than the
// number allows, also at 0 of n. Of trials that depend on each other, such as one load
// on two kernels, the true interval is wider.
type Rate struct {
	Count int `json:"count"`
	Of    int `json:"of"`
	// From and To are the interval, 0 to 1; absent of none.
	From snapshot.Opt[float64] `json:"from,omitzero"`
	To   snapshot.Opt[float64] `json:"to,omitzero"`
}

// NewRate is count of a number of independent trials.
func NewRate(count, of int) Rate {
	r := Rate{Count: count, Of: of}
	if of == 0 {
		return r
	}
	tail := (1 - confidence) / 2
	from, to := 0.0, 1.0
	if count > 0 { // where so many or more have the probability of the tail
		from = bisect(func(p float64) bool { return 1-atMost(count-1, of, p) > tail })
	}
	if count < of { // where so many or fewer have it
		to = bisect(func(p float64) bool { return atMost(count, of, p) < tail })
	}
	r.From, r.To = snapshot.Some(from), snapshot.Some(to)
	return r
}

// bisect is the probability from which a condition holds.
func bisect(holds func(p float64) bool) float64 {
	low, high := 0.0, 1.0
	for range 50 {
		if mid := (low + high) / 2; holds(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// atMost is the probability that at most k of n trials succeed, each with p.
func atMost(k, n int, p float64) float64 {
	if p <= 0 {
		return 1
	}
	if p >= 1 {
		if k >= n {
			return 1
		}
		return 0
	}
	sum := 0.0
	for i := range k + 1 {
		sum += math.Exp(logChoose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log(1-p))
	}
	return min(1, sum)
}

func logChoose(n, k int) float64 {
	whole, _ := math.Lgamma(float64(n + 1))
	in, _ := math.Lgamma(float64(k + 1))
	out, _ := math.Lgamma(float64(n - k + 1))
	return whole - in - out
}

// Times is a median of seconds with an interval of order statistics, which assumes
// nothing about how times are distributed. What never came counts as later than all
// others: a judge does not become quick by missing what is slow to see.
type Times struct {
	Of int `json:"of"`
	// Never is how many did not come.
	Never int `json:"never"`
	// Median is the lower one of an even number; absent if it never came.
	Median snapshot.Opt[float64] `json:"medianSeconds,omitzero"`
	// From and To are the interval. Without Known there are too few for one: six
	// are needed. Absent To: it has no upper end, since too many never came.
	Known bool                  `json:"intervalKnown"`
	From  snapshot.Opt[float64] `json:"from,omitzero"`
	To    snapshot.Opt[float64] `json:"to,omitzero"`
}

// NewTimes is of times that were measured, absent where they never came.
func NewTimes(all []snapshot.Opt[float64]) Times {
	t := Times{Of: len(all)}
	var came []float64
	for _, a := range all {
		if v, ok := a.Get(); ok {
			came = append(came, v)
		}
	}
	t.Never = len(all) - len(came)
	slices.Sort(came)
	nth := func(i int) snapshot.Opt[float64] { // from 0
		if i >= 0 && i < len(came) {
			return snapshot.Some(came[i])
		}
		return snapshot.Opt[float64]{}
	}
	if t.Of == 0 {
		return t
	}
	t.Median = nth((t.Of - 1) / 2)
	r := -1 // the interval is from the r-th to the r-th from the end, from 0
	for k := 0; atMost(k, t.Of, 0.5) <= (1-confidence)/2; k++ {
		r = k
	}
	if t.Known = r >= 0; t.Known {
		t.From, t.To = nth(r), nth(t.Of-1-r)
	}
	return t
}
