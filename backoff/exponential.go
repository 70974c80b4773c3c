// Package backoff is exponential backoff as a value, for those who get the time as a
// value as well. Loops that sleep and retry use k8s.io/apimachinery's wait.Backoff.
package backoff

import "time"

// Exponential backoff: First, then twice as long each time, at most Longest.
type Exponential struct{ First, Longest time.Duration }

// Doubled is First doubled so many times, at most Longest. A negative number counts
// as 0.
func (e Exponential) Doubled(times int) time.Duration {
	d := min(e.First, e.Longest)
	for ; times > 0 && d > 0 && d < e.Longest; times-- {
		d = e.Next(d)
	}
	return d
}

// Next is the duration after last; 0: there was none.
func (e Exponential) Next(last time.Duration) time.Duration {
	if last > e.Longest/2 { // also where doubling would overflow
		return e.Longest
	}
	return min(max(e.First, 2*last), e.Longest)
}
