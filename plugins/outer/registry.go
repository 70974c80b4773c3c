package outer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of the state that is kept for plugins, which may register under ever new names.
const (
	maxPlugins = 64
	// maxOfListener is how many of them one program may be: it must not keep out others.
	maxOfListener = maxPlugins / 2
)

// registry has the sockets that were found, the plugins that are registered, and their
// counts.
type registry struct {
	counts counts

	mu         sync.Mutex         // guards all below
	registered map[string]*plugin // by name
	sockets    map[string]*socket // by path
}

// plugins returns the registered plugins, by name.
func (r *registry) plugins() []*plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*plugin, 0, len(r.registered))
	for _, name := range slices.Sorted(maps.Keys(r.registered)) {
		list = append(list, r.registered[name])
	}
	return list
}

// newest is the plugin that is registered under a name, or was last; nil: none.
func (r *registry) newest(name string) *plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.registered[name], r.counts.lastOf(name))
}

// down are the sockets of which no plugin is up, by path.
func (r *registry) down(up map[*socket]bool) []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var down []Status
	for path, s := range r.sockets {
		if !up[s] && !s.ended() {
			down = append(down, Status{Socket: path, Problem: cmp.Or(s.problem, "registration in progress")})
		}
	}
	slices.SortFunc(down, func(a, b Status) int { return cmp.Compare(a.Socket, b.Socket) })
	return down
}

// endMissing ends plugins and sockets that were removed or are no longer allowed.
func (r *registry) endMissing(c Config, now map[string]fileIdentity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.registered {
		if p.excluded(c) != nil {
			p.cancel()
		}
	}
	for path, s := range r.sockets {
		if file, there := now[path]; !there || file != s.file {
			s.cancelFile()
			delete(r.sockets, path)
		}
	}
}

// startNew starts sockets that are new, at most newPerScan, and reports whether some are
// left to start.
func (r *registry) startNew(now map[string]fileIdentity, start func(path string, file fileIdentity) *socket) (rest bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sockets == nil {
		r.sockets = map[string]*socket{}
	}
	begun := 0
	for path, file := range now { // in random order, so that none is always the last
		if r.sockets[path] != nil {
			continue
		}
		if begun++; begun > newPerScan {
			return true
		}
		r.sockets[path] = start(path, file)
	}
	return false
}

// retryAll wakes all sockets.
func (r *registry) retryAll() { r.retry(func(*socket) bool { return true }) }

// retryNamed wakes the sockets whose plugin needs this name.
func (r *registry) retryNamed(name string) {
	r.retry(func(s *socket) bool { return s.wantedName == name })
}

func (r *registry) retry(which func(*socket) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sockets {
		if which(s) {
			s.retry()
		}
	}
}

// setListener stores who listens on a socket; nil: none is known.
func (r *registry) setListener(s *socket, by *listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.listener = by
}

// hear notes the listeners of now.
func (r *registry) hear(h *heard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, s := range r.sockets {
		if s.listener != nil {
			h.add(path, *s.listener, now)
		}
	}
	for _, p := range r.registered { // its file may have been removed
		h.add(p.socket.path, p.listener, now)
	}
}

// setProblem stores the reason why a socket has no plugin, and reports whether it is
// another one.
func (r *registry) setProblem(s *socket, problem string) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news = problem != s.problem
	s.problem = problem
	return news
}

// claim takes the plugin's name if it is available, or if the plugin that holds
// it no longer answers within a time limit.
func (r *registry) claim(ctx context.Context, p *plugin, limit time.Duration) error {
	for {
		other, err := r.take(p)
		if other == nil || !other.isDead(ctx, limit) {
			return err
		}
		other.cancel()
		select {
		case <-other.released:
		case <-ctx.Done():
			return err
		}
	}
}

// take registers the plugin under its name, unless another one holds it.
func (r *registry) take(p *plugin) (other *plugin, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.socket.wantedName, p.socket.wantedPlace = "", false
	if other := r.registered[p.name]; other != nil {
		p.socket.wantedName = p.name
		return other, fmt.Errorf("%w: name %q is taken by the plugin at %s", errRefused, p.name, other.socket.path)
	}
	of := 0
	for _, other := range r.registered {
		if other.listener.same(p.listener) {
			of++
		}
	}
	if of >= maxOfListener {
		return nil, fmt.Errorf("%w: limit reached: %d plugins of its process or cgroup are registered", errRefused, of)
	}
	if len(r.registered) >= maxPlugins {
		p.socket.wantedPlace = true
		return nil, fmt.Errorf("%w: limit reached: %d plugins are registered", errRefused, len(r.registered))
	}
	if r.registered == nil {
		r.registered = map[string]*plugin{}
	}
	p.released = make(chan struct{})
	r.registered[p.name] = p
	r.counts.keep(p.name)
	return nil, nil
}

// release ends a plugin: it frees the name and the place, wakes the sockets that need
// them, and waits for running calls.
func (r *registry) release(p *plugin) {
	r.mu.Lock()
	delete(r.registered, p.name)
	r.counts.unregistered(p.remains(), time.Now())
	r.mu.Unlock()
	r.retry(func(s *socket) bool { return s.wantedName == p.name || s.wantedPlace })
	close(p.released)
	p.closeEndpoint()
	p.calls.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.registered[p.name] == nil { // no other plugin has taken the name meanwhile
		r.counts.unregistered(p.remains(), time.Now())
	}
}
