package uploads

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/names"
)

const (
	// recent loads of a volume or kind tell how long the next takes.
	recent = 7
	// leastErrors from which the errors of the past tell how wrong a prediction is.
	leastErrors = 19
	// longest that a load is expected to take.
	longest = 30 * 24 * time.Hour
	// unknown is how long a load is in the way of others of which nothing is known.
	unknown = 10 * time.Minute
)

// usual is how long loads take, learned from those that have ended.
type usual struct {
	seconds map[Volume]float64 // by volume, and by kind alone
	// ofVolume and ofKind are the errors of such predictions, as logarithms of what came by
	// what was predicted, sorted.
	ofVolume []float64
	ofKind   map[names.MoverKind][]float64
	prepares map[names.MoverKind]time.Duration
}

// learn from loads that have ended. Those with times that cannot be teach nothing.
func learn(ended []Ended) *usual {
	ended = slices.DeleteFunc(slices.Clone(ended), func(e Ended) bool {
		return e.Started.IsZero() || e.Completed.Before(e.Started) || e.Completed.Sub(e.Started) > longest
	})
	slices.SortFunc(ended, func(a, b Ended) int {
		return cmp.Or(a.Completed.Compare(b.Completed), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Volume.Volume, b.Volume.Volume), a.Started.Compare(b.Started))
	})
	u := &usual{seconds: map[Volume]float64{}, ofKind: map[names.MoverKind][]float64{}, prepares: map[names.MoverKind]time.Duration{}}
	took, prepared := map[Volume][]float64{}, map[names.MoverKind][]float64{}
	last := map[Volume]float64{}
	for i := range ended {
		e := &ended[i]
		seconds := max(1, e.Completed.Sub(e.Started).Seconds())
		if d := e.Started.Sub(e.Accepted); !e.Accepted.IsZero() && d >= 0 && d <= longest {
			prepared[e.Kind] = append(prepared[e.Kind], d.Seconds())
		}
		of := Volume{Kind: e.Kind}
		took[of] = append(took[of], seconds)
		if e.Volume == of { // it has no name
			continue
		}
		took[e.Volume] = append(took[e.Volume], seconds)
		if was := last[e.Volume]; was > 0 { // a little wider than by a median
			u.ofVolume = append(u.ofVolume, math.Log(seconds/was))
		}
		last[e.Volume] = seconds
	}
	for of, list := range took {
		u.add(of, list)
	}
	u.ofVolume = widened(u.ofVolume)
	for kind, list := range prepared {
		u.prepares[kind] = time.Duration(middle(list) * float64(time.Second))
	}
	return u
}

// add what loads of a volume or of a kind took, in seconds, the newest last.
func (u *usual) add(of Volume, took []float64) {
	if of != (Volume{Kind: of.Kind}) {
		u.seconds[of] = middle(took[max(0, len(took)-recent):])
		return
	}
	all := middle(took)
	for _, seconds := range took {
		u.ofKind[of.Kind] = append(u.ofKind[of.Kind], math.Log(seconds/all))
	}
	u.ofKind[of.Kind] = widened(u.ofKind[of.Kind])
	u.seconds[of] = all
}

// widened are errors, sorted; where they are few, half and twice as long may be.
func widened(errors []float64) []float64 {
	if len(errors) < leastErrors {
		errors = append(errors, -math.Ln2, 0, math.Ln2)
	}
	slices.Sort(errors)
	return errors
}

// middle is the median of a list that is not empty.
func middle(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// expected is how long a load takes.
type expected struct {
	mid, elapsed float64 // seconds
	// rest: mid is what is left.
	rest   bool
	errors []float64
}

// Progress tells how long a load takes from when it is a share of it, and has run for that
// long.
const (
	leastProgress = 20 // of Total is 1
	leastRun      = 30 * time.Second
)

// expect of a load; false: nothing is known of it.
func (u *usual) expect(l *Load, now time.Time) (e expected, known bool) {
	mid, errors := u.seconds[l.Volume], u.ofVolume
	if of := (Volume{Kind: l.Kind}); mid == 0 || l.Volume == of {
		mid, errors = u.seconds[of], u.ofKind[l.Kind]
	}
	e = expected{mid: cmp.Or(mid, unknown.Seconds()), errors: errors}
	if mid == 0 {
		e.errors = widened(nil)
	}
	if l.Stage != Runs || l.Since.IsZero() {
		return e, mid > 0
	}
	elapsed := max(0, now.Sub(l.Since))
	e.elapsed = elapsed.Seconds()
	if done := min(max(0, l.Done), l.Total); done > 0 && done >= l.Total/leastProgress && elapsed >= leastRun {
		e.mid, e.rest = e.elapsed*float64(l.Total-done)/float64(done), true
		return e, true
	}
	return e, mid > 0
}

// at is how much of it is left with a probability of share, from 0 to 1: of those that took
// at least as long. One that takes longer than any before is expected to take a tenth of its
// time again.
func (e *expected) at(share float64) time.Duration {
	n := len(e.errors)
	pick := func(from int) float64 {
		return e.mid * math.Exp(e.errors[from+min(n-from-1, int(share*float64(n-from)))])
	}
	if e.rest || e.elapsed == 0 {
		return span(pick(0))
	}
	longer, _ := slices.BinarySearch(e.errors, math.Log((e.elapsed+1)/e.mid))
	if longer == n {
		return span(e.elapsed * share / 5)
	}
	return span(pick(longer) - e.elapsed)
}

// span of seconds, bounded.
func span(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 1), longest.Seconds()) * float64(time.Second)).Round(time.Second)
}
