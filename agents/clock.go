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
	mu       sync.Mutex // guards the fields below
	syncedAt time.Time  // of the last correction, by the local clock
	serverAt time.Time  // the same moment, by the API server's clock
}

// Now is the time by the API server's clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now(time.Now())
}

func (c *Clock) now(ours time.Time) time.Time {
	if c.syncedAt.IsZero() {
		return ours
	}
	return c.serverAt.Add(ours.Sub(c.syncedAt))
}

// Wrap makes an API server's transport feed the clock.
func (c *Clock) Wrap(by http.RoundTripper) http.RoundTripper { return clockTransport{c, by} }

type clockTransport struct {
	clock *Clock
	base  http.RoundTripper
}

func (h clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now()
	response, err := h.base.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if stamp, bad := http.ParseTime(response.Header.Get("Date")); bad == nil {
		h.clock.observe(stamp, asked, time.Now())
	}
	return response, nil
}

// observe corrects the clock by a Date that was stamped between two local moments,
// by no more than the Date proves: its resolution is a second, and the round trip
// adds to the uncertainty.
func (c *Clock) observe(stamp, asked, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.syncedAt.IsZero(), c.now(answered).Before(stamp):
		c.syncedAt, c.serverAt = answered, stamp
	case !c.now(asked).Before(stamp.Add(time.Second)):
		c.syncedAt, c.serverAt = asked, stamp.Add(time.Second)
	}
}
