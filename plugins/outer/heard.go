package outer

import (
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// maxHeard bounds the sockets of which the listeners are remembered.
const maxHeard = 4 * maxSockets

// heard are the listeners of sockets by path: those of now, and those of the last
// rivalReturn, also of sockets that have gone.
type heard struct {
	mu sync.Mutex // guards on
	on map[string][]heardListener
}

type heardListener struct {
	listener
	at time.Time // when it was there last
}

// add notes that a listener is there. Of a socket the newest maxRivals are remembered.
func (h *heard) add(path string, by listener, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		h.on = map[string][]heardListener{}
	}
	others := slices.DeleteFunc(h.on[path], func(o heardListener) bool { return o.listener == by })
	h.on[path] = append(others[max(0, len(others)+1-maxRivals):], heardListener{by, now})
	if len(h.on) > maxHeard {
		delete(h.on, h.oldest())
	}
}

// oldest is the socket whose listener was there longest ago.
func (h *heard) oldest() (oldest string) {
	last := func(path string) time.Time { return h.on[path][len(h.on[path])-1].at }
	for path := range h.on {
		if oldest == "" || last(path).Before(last(oldest)) {
			oldest = path
		}
	}
	return oldest
}

// in returns the listeners of a directory's sockets.
func (h *heard) in(dir string) map[string][]listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := map[string][]listener{}
	for path, list := range h.on {
		if filepath.Dir(path) == dir {
			for _, o := range list {
				in[path] = append(in[path], o.listener)
			}
		}
	}
	return in
}

// forget removes the listeners that were there more than rivalReturn ago. A rival's own are
// remembered as long as it counts.
func (h *heard) forget(now time.Time, rivals map[string][]Rival) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for path, list := range h.on {
		list = slices.DeleteFunc(list, func(o heardListener) bool {
			return now.Sub(o.at) > rivalReturn &&
				!slices.ContainsFunc(rivals[filepath.Dir(path)], func(r Rival) bool { return r.listens(o.listener) })
		})
		h.on[path] = list
		if len(list) == 0 {
			delete(h.on, path)
		}
	}
}
