package pods

import (
	"errors"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// How a lost API server is noticed:
//
//   - it closes its connections (killed, restarted): at once;
//   - it hangs, or the network drops everything: by client-go's HTTP/2 ping, sent
//     after 30 s without a byte with a timeout of 15 s, so after 45 s at most;
//   - a proxy answers the pings, or the connection is HTTP/1.1: the API server
//     sends a bookmark about once a minute on an idle watch, so a watch without
//     one for silence is closed.
//
// An eviction in the meantime does no harm: it goes to the same API server, and its
// UID precondition fails for any other pod.

// watchTimeout is how long a watch may be without an event or bookmark, and how long its
// first answer may take.
const watchTimeout = 150 * time.Second

// listTime is how long a list may take.
const listTime = 30 * time.Second

// errWatchTimeout closes a watch after silence.
var errWatchTimeout = errors.New("the watch timed out: no event, not even a bookmark")

// reconnectBackoff is the exponential backoff with jitter of the reflector: from 1 s to 2 s
// up to between 8 s and 16 s, so that the list is complete soon after an outage and
// the agents do not all reconnect at the same moment.
func reconnectBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 8 * time.Second}
}

// connection is the state of the connection to the API server.
type connection struct {
	// synced: a complete list was received at least once.
	synced bool
	// since is when the connection was lost; zero while it is up.
	since time.Time
	// lastError is the last error.
	lastError string
	// logged: the loss was logged.
	logged bool
}

// connectionState guards heard.
type connectionState struct {
	// mu guards now.
	mu  sync.Mutex
	now connection
}

func (h *connectionState) state() connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// lost marks the list as stale since the first error.
func (h *connectionState) lost(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.since.IsZero() {
		h.now.since = time.Now()
	}
	h.now.lastError = truncate(err.Error())
}

// shouldLog reports whether the loss is still to be logged, and marks it as logged.
func (h *connectionState) shouldLog() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.now.logged
	h.now.logged = true
	return first
}

// recovered removes the stale mark and returns the state before.
func (h *connectionState) recovered() connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.now
	h.now = connection{synced: h.now.synced}
	return before
}

// synced removes the stale mark after a complete list.
func (h *connectionState) synced() connection {
	h.mu.Lock()
	h.now.synced = true
	h.mu.Unlock()
	return h.recovered()
}
