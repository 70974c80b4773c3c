package durations

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Estimate of how long a Backup takes. Its zero value is not known.
type Estimate struct {
	// Mid is the median. From Low to High it takes with a probability of 90 %.
	Low, Mid, High time.Duration
	// Failures of Runs, the newest ones.
	Failures, Runs int
	// Why it is not known yet; empty: it is known.
	Why string

	// errors of the predictions of all Schedules, sorted: how long the tail is.
	errors []float64
}

// Known tells whether there is an estimate.
func (e Estimate) Known() bool { return e.High > 0 }

const (
	// leastRuns from which a prediction is made.
	leastRuns = 3
	// recent is how many of the newest runs predict the next: few, so that it follows what
	// grows, and many enough that one outlier does not move the median.
	recent = 7
	// leastErrors from which an interval of 90 % exists: with fewer, each end would be
	// beyond the largest error.
	leastErrors = 19
	// tail is the probability beyond each end of the interval.
	tail = 0.05
	// scaled bounds how far sizes scale a prediction: part of each run does not depend on
	// its size.
	scaled = 4
)

// Next is the Estimate of the next run of a Schedule, of this kind and size where they are
// known (Unknown, 0), that begins then (zero: at any time of the day).
func (h *History) Next(schedule string, kind Kind, bytes int64, begins time.Time) Estimate {
	s := h.schedules[schedule]
	switch {
	case s == nil && len(h.schedules) >= maxSchedules:
		return Estimate{Why: fmt.Sprintf("only the runs of %d schedules are kept, and none of its schedule", maxSchedules)}
	case s == nil:
		return Estimate{Why: "no Backup of its schedule has ended yet"}
	}
	e := Estimate{Failures: len(s.Failed), Runs: len(s.Runs) + len(s.Failed)}
	mid := predict(s.Runs, kind, float64(bytes)/(1<<20), begins.Unix())
	if mid == 0 {
		e.Why = fmt.Sprintf("an estimate needs %d good Backups of its schedule, and there are %d", leastRuns, len(s.Runs))
		return e
	}
	errors := s.learned()
	if len(errors) < leastErrors {
		errors = h.all()
	}
	if len(errors) < leastErrors {
		e.Why = fmt.Sprintf("an interval needs %d good Backups of all schedules, not counting the first %d of each, and there are %d", leastErrors, leastRuns, len(errors))
		return e
	}
	n := float64(len(errors) + 1)
	low := errors[max(0, int(math.Floor(n*tail))-1)]
	high := errors[min(len(errors)-1, int(math.Ceil(n*(1-tail)))-1)]
	e.errors = h.all()
	e.Low, e.Mid, e.High = span(mid*math.Exp(min(0, low))), span(mid), span(mid*math.Exp(max(0, high)))
	return e
}

// span of seconds, bounded.
func span(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 1), longest.Seconds()) * float64(time.Second)).Round(time.Second)
}

// predict the seconds of the run after these that begins then (Unix seconds; not positive: at
// any time): by those of its kind at its time of the day, else of its kind, else by all. 0:
// they are too few.
func predict(before []run, kind Kind, mib float64, begins int64) float64 {
	ofKind := func(r *run) bool { return kind == Unknown || r.kind == kind }
	same := newestOf(before, func(r *run) bool { return ofKind(r) && (begins <= 0 || near(r.begun(), begins)) })
	if len(same) < leastRuns {
		same = newestOf(before, ofKind)
	}
	if len(same) < leastRuns {
		same = newestOf(before, func(*run) bool { return true })
	}
	if len(same) < leastRuns {
		return 0
	}
	var seconds, sizes []float64
	for _, r := range same {
		seconds = append(seconds, r.seconds)
		if r.mib > 0 && r.kind == kind { // of another kind other bytes count
			sizes = append(sizes, r.mib)
		}
	}
	if mib <= 0 || len(sizes) < len(same) {
		return median(seconds)
	}
	return median(seconds) * min(max(mib/median(sizes), 1.0/scaled), scaled)
}

// newestOf are the newest recent ones of runs for which is holds.
func newestOf(runs []run, is func(*run) bool) []run {
	list := make([]run, 0, recent)
	for i := len(runs) - 1; i >= 0 && len(list) < recent; i-- {
		if is(&runs[i]) {
			list = append(list, runs[i])
		}
	}
	return list
}

// near tells whether clocks of UTC show two times (Unix seconds) 3 h apart or less.
func near(a, b int64) bool {
	const hour, day = 60 * 60, 24 * 60 * 60
	apart := (a - b) % day
	apart = max(apart, -apart)
	return min(apart, day-apart) <= 3*hour
}

// median of a list that is not empty; it sorts the list.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// learned are the errors of the predictions of the past, as logarithms of what came by what
// was predicted, sorted. Sizes are not used in them where they were not known before the
// run: the size of a Backup is known once its uploads have begun.
func (s *series) learned() []float64 {
	if s.errors != nil {
		return s.errors
	}
	s.errors = []float64{}
	for i := leastRuns; i < len(s.Runs); i++ {
		r := s.Runs[i]
		if mid := predict(s.Runs[:i], r.kind, 0, r.begun()); mid > 0 {
			s.errors = append(s.errors, math.Log(r.seconds/mid))
		}
	}
	slices.Sort(s.errors)
	return s.errors
}

// all are the errors of all Schedules, sorted.
func (h *History) all() []float64 {
	if h.pool == nil {
		h.pool = []float64{}
		for _, s := range h.schedules {
			h.pool = append(h.pool, s.learned()...)
		}
		slices.Sort(h.pool)
	}
	return h.pool
}

// Scaled is an estimate where all takes so many times as long (Pace).
func (e Estimate) Scaled(pace float64) Estimate {
	if e.Known() {
		e.Low, e.Mid, e.High = span(e.Low.Seconds()*pace), span(e.Mid.Seconds()*pace), span(e.High.Seconds()*pace)
	}
	return e
}

// Left is how much of a run is left after some time: Low, Mid and High of what is to come.
func (e Estimate) Left(elapsed time.Duration) Estimate {
	if !e.Known() || elapsed <= 0 {
		return e
	}
	e.Low, e.Mid, e.High = e.At(tail, elapsed), e.At(0.5, elapsed), e.At(1-tail, elapsed)
	return e
}

// At is how much of a run is left after some time with a probability of share, from 0 to
// 1: of the runs that took at least as long by their errors. One that takes longer than any
// before is expected to take a tenth of its time again.
func (e Estimate) At(share float64, elapsed time.Duration) time.Duration {
	mid := e.Mid.Seconds()
	errors := e.errors
	if len(errors) < leastErrors { // made by hand
		errors = []float64{math.Log(max(e.Low.Seconds(), 1) / mid), 0, math.Log(e.High.Seconds() / mid)}
	}
	// A little more than has passed, so that something is left.
	longer, _ := slices.BinarySearch(errors, math.Log(max(elapsed.Seconds()+1, 1)/mid))
	if longer == len(errors) {
		return max(time.Second, time.Duration(float64(elapsed)*share/5))
	}
	n := len(errors) - longer
	return max(time.Second, span(mid*math.Exp(errors[longer+min(n-1, int(share*float64(n)))]))-max(0, elapsed))
}

// The bounds of Pace.
const (
	paceOver    = 2 * time.Hour
	leastPaced  = 5
	fastestPace = 0.5
	slowestPace = 3
)

// Pace is how many times as long as predicted the Backups take that ended in the last two
// hours, by their median: nodes under pressure, or a store that throttles, make all of them
// take longer. 1 where fewer than five did.
func (h *History) Pace(now time.Time) float64 {
	var errors []float64
	for _, s := range h.schedules {
		for i := len(s.Runs) - 1; i >= leastRuns && now.Unix()-s.Runs[i].end < int64(paceOver.Seconds()); i-- {
			if mid := predict(s.Runs[:i], s.Runs[i].kind, 0, s.Runs[i].begun()); mid > 0 {
				errors = append(errors, math.Log(s.Runs[i].seconds/mid))
			}
		}
	}
	if len(errors) < leastPaced {
		return 1
	}
	return min(max(math.Exp(median(errors)), fastestPace), slowestPace)
}
