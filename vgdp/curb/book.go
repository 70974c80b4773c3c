// Package curb puts limits on the cgroups of data movers that run, and takes
// them away again.
//
// # Usage
//
// A Book knows which limits are the agent's own and what was there before. Set
// makes those that are wanted the only ones; wanting none lifts all. It keeps
// its Limits before it writes the first of them, so that whoever starts after a
// crash finds them.
//
// What somebody else writes meanwhile is left as it is: a limit counts as ours
// only while our value is there.
//
// # Concurrency
//
// A Book belongs to one goroutine.
package curb

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The knobs of a cgroup.
const (
	Read  = "read"  // bytes per second of a device
	Write = "write" // the same
	CPU   = "cpu"   // µs of CPU time per period
)

// Knob is one number of a cgroup that the kernel limits by.
type Knob struct {
	// Cgroup is its path below the hierarchy's directory.
	Cgroup string `json:"cgroup"`
	// Name is Read, Write or CPU.
	Name string `json:"name"`
	// Device as major:minor; empty for CPU.
	Device string `json:"device,omitempty"`
}

// String is for people.
func (k Knob) String() string {
	if k.Device == "" {
		return k.Cgroup + " " + k.Name
	}
	return k.Cgroup + " " + k.Name + " " + k.Device
}

func (k Knob) compare(o Knob) int {
	return cmp.Or(cmp.Compare(k.Cgroup, o.Cgroup), cmp.Compare(k.Name, o.Name), cmp.Compare(k.Device, o.Device))
}

// Limit is a knob that is ours. 0 is no limit, as everywhere here.
type Limit struct {
	Knob
	// Before is what was there before the first write of ours: what is put back.
	Before uint64 `json:"before,omitempty"`
	// Found is what is there until Ours is written, and Written says that it was.
	Found   uint64 `json:"found,omitempty"`
	Ours    uint64 `json:"ours"`
	Written bool   `json:"written,omitempty"`
	// Foreign: somebody else has written it since. It is left alone until nobody
	// wants to limit it any more.
	Foreign bool `json:"foreign,omitempty"`
}

func (l Limit) pending() bool { return !l.Written && !l.Foreign }

// mine says whether what is there may be written over.
func (l Limit) mine(now uint64) bool {
	return !l.Foreign && (now == l.Ours || !l.Written && now == l.Found)
}

// Files are the kernel's.
type Files interface {
	// Get is what is in force, 0 for none. ErrGone: there is no such cgroup or
	// device any more.
	Get(k Knob) (uint64, error)
	// Set puts a limit in force, or none with 0.
	Set(k Knob, limit uint64) error
	// Round is what Get would return once so many bytes per second, or so many
	// cores, are set.
	Round(k Knob, per float64) (uint64, error)
}

// ErrGone says that a cgroup or device is not there any more.
var ErrGone = errors.New("gone")

// Book is the limits that are ours.
type Book struct {
	Files Files
	// Keep keeps the limits over a crash; nothing is written that it could not
	// keep.
	Keep func([]Limit) error
	// Limits, each knob once.
	Limits []Limit
}

// Set makes these limits ours, and lifts all others. Numbers are bytes per
// second, or cores. What could not be done is tried again by the next Set.
func (b *Book) Set(want map[Knob]float64) error {
	before := slices.Clone(b.Limits)
	errs := b.lift(want)
	for _, k := range slices.SortedFunc(maps.Keys(want), Knob.compare) {
		errs = append(errs, b.each(k, func() error { return b.plan(k, want[k]) })...)
	}
	if slices.Equal(before, b.Limits) && !slices.ContainsFunc(b.Limits, Limit.pending) {
		return errors.Join(errs...)
	}
	if err := b.Keep(b.Limits); err != nil {
		return errors.Join(append(errs, fmt.Errorf("save limits, movers are not throttled further: %w", err))...)
	}
	if !slices.ContainsFunc(b.Limits, Limit.pending) {
		return errors.Join(errs...)
	}
	for _, l := range slices.Clone(b.Limits) {
		if l.pending() {
			errs = append(errs, b.each(l.Knob, func() error { return b.write(l) })...)
		}
	}
	return errors.Join(append(errs, b.Keep(b.Limits))...)
}

// each forgets a knob that is gone.
func (b *Book) each(k Knob, do func() error) []error {
	switch err := do(); {
	case errors.Is(err, ErrGone):
		b.forget(k)
	case err != nil:
		return []error{fmt.Errorf("limit %s: %w", k, err)}
	}
	return nil
}

func (b *Book) at(k Knob) int {
	return slices.IndexFunc(b.Limits, func(l Limit) bool { return l.Knob == k })
}

func (b *Book) forget(k Knob) {
	b.Limits = slices.DeleteFunc(b.Limits, func(l Limit) bool { return l.Knob == k })
}

// lift puts back what was there, where ours still is.
func (b *Book) lift(want map[Knob]float64) (errs []error) {
	for _, l := range slices.Clone(b.Limits) {
		if _, wanted := want[l.Knob]; wanted {
			continue
		}
		errs = append(errs, b.each(l.Knob, func() error {
			now, err := b.Files.Get(l.Knob)
			if err == nil && l.mine(now) {
				err = b.Files.Set(l.Knob, l.Before)
			}
			if err == nil {
				b.forget(l.Knob)
			}
			return err
		})...)
	}
	return errs
}

// plan says what is to be written, if anything.
func (b *Book) plan(k Knob, per float64) error {
	want, err := b.Files.Round(k, per)
	if err != nil {
		return err
	}
	now, err := b.Files.Get(k)
	if err != nil {
		return err
	}
	i := b.at(k)
	if i < 0 {
		if now == 0 || want < now { // else its own limit is tighter
			b.Limits = append(b.Limits, Limit{Knob: k, Before: now, Found: now, Ours: want})
		}
		return nil
	}
	l := &b.Limits[i]
	if l.Before != 0 {
		want = min(want, l.Before)
	}
	switch {
	case !l.mine(now):
		l.Foreign = true
	case want != l.Ours:
		l.Found, l.Ours, l.Written = now, want, false
	default:
		l.Written = now == want
	}
	return nil
}

func (b *Book) write(l Limit) error {
	if err := b.Files.Set(l.Knob, l.Ours); err != nil {
		return err
	}
	b.Limits[b.at(l.Knob)].Written = true
	return nil
}
