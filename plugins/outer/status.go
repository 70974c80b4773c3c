package outer

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Status is what is known of one plugin, or of a socket where none is.
type Status struct {
	// Name is empty where no plugin is registered.
	Name   string `json:"name,omitempty"`
	Socket string `json:"socket"`
	Up     bool   `json:"up"`
	// Problem is why it is not up.
	Problem string `json:"problem,omitempty"`
	// Since it is registered.
	Since time.Time `json:"since,omitzero"`
	UID   uint32    `json:"uid"`
	// Breaker is closed, open or half-open; empty where nothing is registered.
	Breaker string `json:"breaker,omitempty"`
	// LastCall is when its last round began, TookSeconds how long that was, and
	// Failure why it failed.
	LastCall    time.Time `json:"lastCall,omitzero"`
	TookSeconds float64   `json:"tookSeconds,omitempty"`
	Failure     string    `json:"failure,omitempty"`
	// Unmarked is why not all that it asks for is on the Node.
	Unmarked string `json:"unmarked,omitempty"`
	// Plugins' and our name of the condition that it named last.
	Condition string `json:"condition,omitempty"`
	MapsTo    string `json:"mapsTo,omitempty"`
	// Verdicts that it gave last, as old as they are; of GetEvictPods only if it
	// says something.
	Verdicts []plugins.Verdict `json:"-"`
}

// Status of all plugins by name, then of the sockets without one by path.
func (h *Host) Status(now time.Time) []Status {
	var list []Status
	up := map[*socket]bool{}
	for _, p := range h.plugins() {
		list = append(list, p.status(now))
		up[p.socket] = true
	}
	h.mu.Lock()
	var down []Status
	for path, s := range h.sockets {
		if !up[s] && !s.ended() {
			down = append(down, Status{Socket: path, Problem: cmp.Or(s.problem, "registration in progress")})
		}
	}
	h.mu.Unlock()
	slices.SortFunc(down, func(a, b Status) int { return cmp.Compare(a.Socket, b.Socket) })
	return append(list, down...)
}

// Unmarked takes in, by plugin, why not all that it asked for in this round is
// marked. It is counted in each round and logged once for each plugin that
// registers.
func (h *Host) Unmarked(why map[string]string) {
	for _, p := range h.plugins() {
		p.mu.Lock()
		p.unmarked = why[p.name]
		news := p.unmarked != "" && !p.warned
		p.warned = p.warned || news
		p.mu.Unlock()
		if why[p.name] != "" {
			h.counts.refuse(p.name)(refusedUnmarked)
		}
		if news {
			h.Log.Warn("plugin reports more conditions or effects than the agent writes; it must report fewer", "plugin", p.name, "reason", why[p.name])
		}
	}
}

// Counts since the agent started, by plugin; of one that has gone for an hour.
func (h *Host) Counts() map[string]Counts { return h.counts.all(time.Now()) }

func (p *plugin) status(now time.Time) Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{
		Name: p.name, Socket: p.socket.path, Up: true, Since: p.since, UID: p.uid, Breaker: p.breaker.state(now),
		LastCall: p.asked, TookSeconds: p.took.Seconds(), Failure: p.failure, Unmarked: p.unmarked, Condition: p.mapped,
	}
	if p.mapped != "" {
		s.MapsTo = conditionPrefix + p.mapped
	}
	for _, said := range []said{p.named, p.met} {
		v := said.verdict
		silent := v.Scope == plugins.ScopeNamed && !v.Named && v.Condition == ""
		if said.at.IsZero() || silent {
			continue
		}
		if !said.fresh || now.Sub(said.at) > p.maxAge {
			v = aged(v, said.at, now, p.maxAge, p.silence(now))
		}
		s.Verdicts = append(s.Verdicts, v)
	}
	return s
}
