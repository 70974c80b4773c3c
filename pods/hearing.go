package pods

import (
	"errors"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// What notices an API server that is silent:
//
//   - it closes its connections (killed, restarted): at once;
//   - it hangs, or the network swallows everything: client-go's HTTP/2 ping,
//     sent after 30 s without a byte and waited for 15 s, so 45 s at most;
//   - something between answers the pings, or the connection is HTTP/1.1: the
//     API server sends a bookmark about once a minute to a watch on which
//     nothing happens, so a watch that brings none for silence is given up.
//
// An eviction in the meantime is no danger: it goes to the same API server,
// and its UID precondition fails for a pod that is not the one that was seen.

// silence is how long a watch may bring nothing, not even a bookmark, and how
// long its first answer may take.
const silence = 150 * time.Second

// listTime is how long a list may take.
const listTime = 30 * time.Second

// errSilent ends a watch that brings nothing.
var errSilent = errors.New("the watch timed out: no event, not even a bookmark")

// retries is when an API server that is away is asked again: after 1 s to 2 s
// at first, then up to between 8 s and 16 s, so that the list is right again
// soon after it is back and a fleet does not come at the same moment.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 8 * time.Second}
}

// heard is what is known of the connection with the API server.
type heard struct {
	// synced: a whole list came in at least once.
	synced bool
	// since when nothing is heard; zero while it is.
	since time.Time
	// because is the error that it was last heard by.
	because string
	// told: the loss was logged.
	told bool
}

// hearing keeps heard.
type hearing struct {
	// mu guards now.
	mu  sync.Mutex
	now heard
}

func (h *hearing) state() heard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// lost marks the list as stale, from the first loss on.
func (h *hearing) lost(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.since.IsZero() {
		h.now.since = time.Now()
	}
	h.now.because = short(err.Error())
}

// tell tells whether a loss is still to be logged.
func (h *hearing) tell() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.now.told
	h.now.told = true
	return first
}

// again ends the mark, and returns what it was.
func (h *hearing) again() heard {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.now
	h.now = heard{synced: h.now.synced}
	return before
}

// complete is again after a whole list.
func (h *hearing) complete() heard {
	h.mu.Lock()
	h.now.synced = true
	h.mu.Unlock()
	return h.again()
}
