package agents

import (
	"net/http"
	"sync"
	"time"
)

// Clock estimates the API server's clock from the Date of its responses (RFC
// 9110, 6.6.1: whole seconds, truncated). Between responses it advances by this
// process's monotonic clock, so setting this machine's clock has no effect. Before
// the first response it is this machine's clock.
type Clock struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time  // of the last correction, by the local clock
	then time.Time  // the same moment, by the API server's clock
}

// Now is the time by the API server's clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(time.Now())
}

func (c *Clock) now(ours time.Time) time.Time {
	if c.at.IsZero() {
		return ours
	}
	return c.then.Add(ours.Sub(c.at))
}

// Wrap makes an API server's transport feed the clock.
func (c *Clock) Wrap(by http.RoundTripper) http.RoundTripper { return heard{c, by} }

type heard struct {
	clock *Clock
	by    http.RoundTripper
}

func (h heard) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now()
	response, err := h.by.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if stamp, bad := http.ParseTime(response.Header.Get("Date")); bad == nil {
		h.clock.hear(stamp, asked, time.Now())
	}
	return response, nil
}

// hear corrects the clock by a Date that was stamped between two local moments,
// by no more than the Date proves: its resolution is a second, and the round trip
// adds to the uncertainty.
func (c *Clock) hear(stamp, asked, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.at.IsZero(), c.now(answered).Before(stamp):
		c.at, c.then = answered, stamp
	case !c.now(asked).Before(stamp.Add(time.Second)):
		c.at, c.then = asked, stamp.Add(time.Second)
	}
}
