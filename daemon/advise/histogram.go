package advise

import "math"

// histogram counts values in buckets 5 % wide, from 1e-6 on. The zero value is
// empty.
type histogram struct {
	counts [buckets]uint64
	n      uint64
	max    float64
}

const (
	buckets   = 480 // up to 10,000
	smallest  = 1e-6
	bucketFor = 0.05
)

func (h *histogram) add(v float64, some bool) {
	if !some {
		return
	}
	i := 0
	if v > smallest {
		i = min(buckets-1, int(math.Log(v/smallest)/math.Log1p(bucketFor)))
	}
	h.counts[i]++
	h.n++
	h.max = max(h.max, v)
}

// quantile is the value below which a share q of all values is, at most 5 % too
// high.
func (h *histogram) quantile(q float64) float64 {
	need := uint64(math.Ceil(q * float64(h.n)))
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen >= need && seen > 0 {
			return min(h.max, smallest*math.Pow(1+bucketFor, float64(i+1)))
		}
	}
	return h.max
}
