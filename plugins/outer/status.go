package outer

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Status is the state of one plugin, or of a socket without one.
type Status struct {
	// Name is empty if no plugin is registered.
	Name   string `json:"name,omitempty"`
	Socket string `json:"socket"`
	Up     bool   `json:"up"`
	// Problem is the reason why it is not up.
	Problem string `json:"problem,omitempty"`
	// Since is when it was registered.
	Since time.Time `json:"since,omitzero"`
	UID   uint32    `json:"uid"`
	// Breaker is closed, open or half-open; empty if no plugin is registered.
	Breaker string `json:"breaker,omitempty"`
	// LastCall is the start of its last round, TookSeconds that round's
	// duration, and Failure its error.
	LastCall    time.Time `json:"lastCall,omitzero"`
	TookSeconds float64   `json:"tookSeconds,omitempty"`
	Failure     string    `json:"failure,omitempty"`
	// Unmarked is the reason why some of its conditions or effects are not on
	// the Node.
	Unmarked string `json:"unmarked,omitempty"`
	// Condition is the plugin's name of its last condition, MapsTo the name on
	// the Node.
	Condition string `json:"condition,omitempty"`
	MapsTo    string `json:"mapsTo,omitempty"`
	// Verdicts are its last ones, however old; that of GetEvictPods only if it
	// names something.
	Verdicts []plugins.Verdict `json:"-"`
}

// Status returns all plugins by name, then the sockets without one by path.
func (h *Host) Status(now time.Time) []Status {
	var list []Status
	up := map[*socket]bool{}
	for _, p := range h.registry.plugins() {
		list = append(list, p.status(now))
		up[p.socket] = true
	}
	return append(list, h.registry.down(up)...)
}

// Unmarked takes, by plugin, the reason why some of its conditions or effects
// were not written in this round. It is counted in each round and logged once
// per registration.
func (h *Host) Unmarked(why map[string]string) {
	for _, p := range h.registry.plugins() {
		p.mu.Lock()
		p.unmarked = why[p.name]
		news := p.unmarked != "" && !p.warned
		p.warned = p.warned || news
		p.mu.Unlock()
		if why[p.name] != "" {
			h.registry.counts.refuse(p.name)(refusedUnmarked)
		}
		if news {
			h.Log.Warn("plugin reports more conditions or effects than the agent writes; it must report fewer", "plugin", p.name, "reason", why[p.name])
		}
	}
}

// Standing is what a plugin may do at present.
type Standing struct {
	// Beside limits its verdicts beside a rival.
	Beside plugins.Beside
	// Excluded is why no pod may be evicted for it; empty: pods may be.
	Excluded string
	// Unknown: it is limited only because it has not registered yet, or because a rival may
	// yet be found.
	Unknown bool
}

// Standing returns what a plugin may do at present, whether it is registered or has ended.
// It waits for no file: a round calls it.
func (h *Host) Standing(name string) Standing {
	p := h.registry.newest(name)
	if p == nil { // who it is, and where, is not known
		return Standing{Excluded: "no plugin of this name has registered since the agent started", Unknown: true}
	}
	s := Standing{Beside: p.beside()}
	if err := p.excluded(h.Settings()); err != nil {
		s.Excluded = strings.TrimPrefix(err.Error(), errRefused.Error()+": ")
		return s
	}
	s.Unknown = s.Beside != "" && h.rivals.known().unknown(p.socket.path, p.listener)
	return s
}

// Counts returns the counts since the agent started, by plugin; for an hour
// after a plugin unregistered.
func (h *Host) Counts() map[string]Counts {
	beside, rivals := h.Settings().Beside, h.rivals.known()
	return h.registry.counts.all(time.Now(), func(socket string, by listener) bool {
		err := rivals.leave(beside, socket, by)
		return err != nil && !errors.Is(err, errSearching)
	})
}

// Rivals returns the other processes that watch plugin directories, in order, without
// those that are the plugins there themselves.
func (h *Host) Rivals() []Rival { return h.rivals.known().list() }

func (p *plugin) status(now time.Time) Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{
		Name: p.name, Socket: p.socket.path, Up: true, Since: p.since, UID: p.uid, Breaker: p.breaker.state(now),
		LastCall: p.lastCall, TookSeconds: p.lastDuration.Seconds(), Failure: p.failure, Unmarked: p.unmarked, Condition: p.condition,
	}
	if p.condition != "" {
		s.MapsTo = names.Prefix + p.condition
	}
	for _, said := range p.answers() {
		v := said.verdict
		if !said.fresh || now.Sub(said.at) > p.maxAge {
			v = expire(v, said.at, now, p.maxAge, p.staleReason(now))
		}
		s.Verdicts = append(s.Verdicts, v)
	}
	return s
}

// answers are the last ones that tell something.
func (p *plugin) answers() []pluginAnswer {
	return slices.DeleteFunc([]pluginAnswer{p.namedAnswer, p.metAnswer}, func(a pluginAnswer) bool {
		silent := a.verdict.Scope == plugins.ScopeNamed && !a.verdict.Named && a.verdict.Condition == ""
		return a.at.IsZero() || silent
	})
}

// Ended returns the last verdicts of the plugins that ended within the last hour, as of ones
// that do not answer: whether their pressure has ended is not known. A plugin that the
// configuration excludes, or that is left to a rival, has none.
func (h *Host) Ended(now time.Time) []plugins.Verdict {
	c := h.Settings()
	var list []plugins.Verdict
	for _, p := range h.registry.counts.lately(now) {
		if p.excluded(c) != nil {
			continue
		}
		for _, said := range p.answers() {
			v := expire(said.verdict, said.at, now, p.maxAge, "the plugin has ended")
			v.Process, v.Beside = p.process, p.beside()
			list = append(list, v)
		}
	}
	return list
}
