package peers

import (
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// averages are the kernel's avg10 and avg60 of one total of PSI, as percentages
// (kernel/sched/psi.c: update_averages, every two seconds; include/linux/sched/loadavg.h:
// calc_load; EXP_10s is 2048/e^(2/10)). A recording has totals alone: between
// samples they are taken to have grown evenly, and before the first to have stood.
type averages struct {
	next         time.Duration // when they are updated, on CLOCK_MONOTONIC
	at           time.Duration
	total        float64 // µs at the last sample
	was          float64 // µs at the last update
	avg10, avg60 float64
	begun        bool
}

const psiPeriod = 2 * time.Second

// add the total of a sample; false: it lacks it.
func (a *averages) add(at time.Duration, stall snapshot.Opt[uint64]) bool {
	total, ok := stall.Get()
	if !ok {
		return false
	}
	if !a.begun {
		*a = averages{begun: true, at: at, next: at + psiPeriod, total: float64(total), was: float64(total)}
		return true
	}
	for ; a.next <= at; a.next += psiPeriod {
		then := a.total + (float64(total)-a.total)*float64(a.next-a.at)/float64(at-a.at)
		share := min(100, 100*(then-a.was)/float64(psiPeriod.Microseconds()))
		a.avg10, a.avg60 = decayed(a.avg10, share, 10), decayed(a.avg60, share, 60)
		a.was = then
	}
	a.at, a.total = at, float64(total)
	return true
}

// decayed is an average over seconds after one more period.
func decayed(average, share, seconds float64) float64 {
	keep := math.Exp(-psiPeriod.Seconds() / seconds)
	return average*keep + share*(1-keep)
}
