package objective

import (
	"fmt"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Objective is what is wanted of a Backup; the zero value: nothing.
type Objective struct {
	// RPO is how old the newest good Backup may become, from its start; 0: any age.
	RPO time.Duration
	// Window in which it starts and is complete; zero: any time.
	Window Window
	// WindowSaid: an annotation says it, "none" too, and not the default.
	WindowSaid bool
	// Priority: the higher comes first.
	Priority int32
	// Bounded are those that a namespace's owner chose.
	Bounded Bounded
}

// Bounded tells which parts of an objective are a namespace's.
type Bounded struct{ RPO, Window bool }

// Bounds of what a namespace's annotations reach.
type Bounds struct {
	// Least is how long after it could start a Backup is due at the earliest.
	Least time.Duration
	// Priority is the highest.
	Priority int32
}

// DefaultBounds let a tenant order its own Backups, and come before those of others that are
// due later than its own: also before those without an objective, which are due when they
// have aged. As far as durations are known none of these misses its deadline for that: where
// not all can be met, the tenant's is given up.
func DefaultBounds() Bounds { return Bounds{Least: 4 * time.Hour} }

// Bounds of an RPO.
const (
	LeastRPO = time.Minute
	MostRPO  = 366 * 24 * time.Hour
)

// Kind of an object that has annotations.
type Kind string

// The kinds, as the API server calls them.
const (
	Schedule  Kind = "Schedule"
	Backup    Kind = "Backup"
	Namespace Kind = "Namespace"
)

// Source is an object with annotations.
type Source struct {
	Kind        Kind
	Name        string
	Annotations map[string]string
}

// none is the value of an annotation by which an RPO or a window is not wanted.
const none = "none"

// Of are those of an object's annotations that say what is wanted; nil: none.
func Of(annotations map[string]string) (of map[string]string) {
	for _, key := range []string{names.RPO, names.Window, names.Priority} {
		if text, there := annotations[key]; there {
			if of == nil {
				of = map[string]string{}
			}
			of[key] = text
		}
	}
	return of
}

// Problem is an annotation that is not followed, or not as it is written.
type Problem struct {
	Kind Kind
	Name string
	// Key of the annotation.
	Key string
	// Text names the annotation, its value, what is wanted and what holds.
	Text string
}

// Resolve is the objective of a Backup. Each annotation counts from the first source that
// has it: the Schedule first, as it is now (Velero copies its annotations to each Backup
// that it makes), then the Backup, then the namespace, which is a source only of a Backup
// of that namespace alone. But "none" on the Backup counts before its Schedule, so that one
// can be made by hand that starts at once; one that Velero copied counts so too, since nothing
// tells them apart. There is at least one source. period is the longest time between two
// Backups of its Schedule, 0: unknown or none.
func Resolve(defaults Objective, bounds Bounds, period time.Duration, sources ...Source) (Objective, []Problem) {
	r := resolver{sources: sources}
	o := defaults
	o.Bounded = Bounded{}
	if s, text, there := r.findOrNone(names.Window); there {
		w, err := orNone(text, ParseWindow)
		r.must(err, s, names.Window, text, "the default, "+defaults.Window.String())
		if err == nil {
			o.Window, o.WindowSaid, o.Bounded.Window = w, true, s.Kind == Namespace
		}
	}
	if o.RPO <= period {
		o.RPO = 0 // it could not be kept
	}
	if s, text, there := r.findOrNone(names.RPO); there {
		rpo, err := orNone(text, func(text string) (time.Duration, error) { return parseRPO(text, period) })
		r.must(err, s, names.RPO, text, "the default, "+rpoText(o.RPO))
		if err == nil {
			o.RPO, o.Bounded.RPO = rpo, s.Kind == Namespace
		}
	} else if o.RPO != defaults.RPO {
		s := sources[0]
		r.problems = append(r.problems, Problem{s.Kind, s.Name, names.RPO, fmt.Sprintf("the default RPO of %s is not more than %s, the longest time between two Backups of its schedule; using none", problems.Duration(defaults.RPO), problems.Duration(period))})
	}
	r.priority(&o, defaults, bounds)
	return o, r.problems
}

// priority sets that of an objective.
func (r *resolver) priority(o *Objective, defaults Objective, bounds Bounds) {
	s, text, there := r.find(names.Priority)
	if !there {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		r.must(fmt.Errorf("want a 32-bit integer"), s, names.Priority, text, strconv.Itoa(int(defaults.Priority)))
		return
	}
	if o.Priority = int32(n); s.Kind == Namespace && o.Priority > bounds.Priority {
		o.Priority = bounds.Priority
		r.must(fmt.Errorf("want at most %d in a namespace", bounds.Priority), s, names.Priority, text, strconv.Itoa(int(o.Priority)))
	}
}

type resolver struct {
	sources  []Source
	problems []Problem
}

// find is the first source that has an annotation.
func (r *resolver) find(key string) (s Source, text string, there bool) {
	for _, s := range r.sources {
		if text, there := s.Annotations[key]; there {
			return s, text, true
		}
	}
	return Source{}, "", false
}

// findOrNone is find, but "none" on the Backup itself comes first.
func (r *resolver) findOrNone(key string) (s Source, text string, there bool) {
	for _, s := range r.sources {
		if s.Kind == Backup && s.Annotations[key] == none {
			return s, none, true
		}
	}
	return r.find(key)
}

// orNone parses the value of an annotation; "none" is the zero value.
func orNone[T any](text string, parse func(string) (T, error)) (value T, err error) {
	if text == none {
		return value, nil
	}
	return parse(text)
}

// must notes a problem where there is one.
func (r *resolver) must(err error, s Source, key, text, holds string) {
	if err == nil {
		return
	}
	r.problems = append(r.problems, Problem{s.Kind, s.Name, key, fmt.Sprintf("annotation %s: %s, got %s; using %s", key, err, problems.Quote(text), holds)})
}

func rpoText(d time.Duration) string {
	if d == 0 {
		return none
	}
	return problems.Duration(d)
}

// parseRPO reads an RPO. One that is no longer than the Schedule's period cannot be kept:
// just before a Backup is complete, the newest good one is older than a period.
func parseRPO(text string, period time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil, d < LeastRPO, d > MostRPO:
		return 0, fmt.Errorf("want a duration from %s to %s such as 36h", problems.Duration(LeastRPO), problems.Duration(MostRPO))
	case d <= period:
		return 0, fmt.Errorf("want more than %s, the longest time between two Backups of its schedule", problems.Duration(period))
	}
	return d, nil
}

// Due is when a Backup may start, and by when it is to be complete.
type Due struct {
	// Opens is when it may start at the earliest, or could; zero: at once.
	Opens time.Time
	// Deadline by which it is to be complete; zero: none.
	Deadline time.Time
	// Closes is when its window does, and never before Deadline; zero: no window.
	Closes time.Time
	// DeadlineBounded and ClosesBounded: a namespace's owner chose it.
	DeadlineBounded, ClosesBounded bool
	// First: what opens is the window of first Backups.
	First bool
}

// Due of a Backup that was created then, where the newest good one of its Schedule was
// started at newest (zero: there is none). A Backup whose RPO is missed already when it is
// created has the whole RPO again: it could not be in time whatever starts first.
func (o Objective) Due(bounds Bounds, created, newest time.Time) Due {
	var d Due
	if o.Window.Set() {
		opens, closes := o.Window.Next(created)
		if opens.After(created) {
			d.Opens = opens
		}
		d.Closes = closes
		if o.Bounded.Window {
			d.Closes = later(closes, opens.Add(bounds.Least), created.Add(bounds.Least))
		}
		d.Deadline = d.Closes
		d.DeadlineBounded, d.ClosesBounded = o.Bounded.Window, o.Bounded.Window
	}
	if o.RPO == 0 {
		return d
	}
	by := newest.Add(o.RPO)
	if newest.IsZero() || !by.After(created) {
		by = created.Add(o.RPO)
	}
	if o.Bounded.RPO {
		by = later(by, created.Add(bounds.Least), d.Opens.Add(bounds.Least))
	}
	if d.Deadline.IsZero() || by.Before(d.Deadline) {
		d.Deadline, d.DeadlineBounded = by, o.Bounded.RPO
	}
	return d
}

// Waits is what it waits for until it Opens, for people.
func (d Due) Waits() string {
	what := "its backup window opens"
	if d.First {
		what = "its schedule has no good Backup yet, and the window of first Backups opens"
	}
	return what + " at " + d.Opens.Format(time.RFC3339)
}

// BoundedAt tells whether it is due at a time, of those that Still returns, only because a
// namespace's owner chose that.
func (d Due) BoundedAt(by time.Time) bool {
	if by.Equal(d.Deadline) {
		return d.DeadlineBounded
	}
	return d.ClosesBounded
}

// Still is by when a Backup that ends then at the earliest is due: its deadline, else the end
// of its window where only that can be kept still; zero: neither can.
func (d Due) Still(ends time.Time) time.Time {
	for _, by := range []time.Time{d.Deadline, d.Closes} {
		if !ends.After(by) {
			return by
		}
	}
	return time.Time{}
}

// later is the latest of these times.
func later(a time.Time, others ...time.Time) time.Time {
	for _, b := range others {
		if b.After(a) {
			a = b
		}
	}
	return a
}
