package fleet

import (
	"net/http"
	"sync"
	"time"
)

// Clock is the API server's, as far as the Date of its answers tells it (RFC
// 9110, 6.6.1: whole seconds, cut off). Between answers it runs by this process's
// monotonic clock, so whoever sets this machine's changes nothing. Before the
// first answer it is this machine's.
type Clock struct {
	mu   sync.Mutex // guards what follows
	at   time.Time  // of the last correction, by our clock
	then time.Time  // what it was by the API server's
}

// Now by the API server's clock.
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

// Wrap a connection to the API server, whose answers are heard.
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

// hear a Date that was stamped between two moments of ours. What it leaves open is
// left as it was: a second, and the time that the answer took.
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
