package backup

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Namespaces are those that exist, with a cache of resolved patterns.
type Namespaces struct {
	names []string // sorted
	index map[string]int
	sets  map[string]Set // cache of resolved patterns
}

// NewNamespaces of these names; duplicates count once.
func NewNamespaces(names []string) *Namespaces {
	n := &Namespaces{names: slices.Compact(slices.Sorted(slices.Values(names))), index: map[string]int{}, sets: map[string]Set{}}
	for i, name := range n.names {
		n.index[name] = i
	}
	return n
}

// clone has a cache of its own, for another goroutine.
func (n *Namespaces) clone() *Namespaces {
	return &Namespaces{names: n.names, index: n.index, sets: map[string]Set{}}
}

// Set of namespaces. The zero value is empty.
type Set struct {
	members bitset
	// Invalid is why the patterns are invalid. Such a set overlaps with every other,
	// because its content is unknown.
	Invalid error
	// Rejected is why Velero fails a Backup with these patterns as soon as it starts
	// (FailedValidation). Such a set is empty: the Backup never holds a namespace.
	Rejected error
}

// overlaps tells whether two sets of the same Namespaces have a common one.
func (s Set) overlaps(o Set) bool {
	return s.Invalid != nil || o.Invalid != nil || s.members.overlaps(o.members)
}

// Names in a set, in order.
func (n *Namespaces) Names(s Set) []string {
	var list []string
	for i := range s.members.both(s.members) {
		list = append(list, n.names[i])
	}
	return list
}

// ErrPattern says that a namespace pattern is invalid.
var ErrPattern = errors.New("invalid namespace pattern")

// Resolve is the set of the existing namespaces that a Backup includes and does not
// exclude. None included, or *, means all; patterns use *, ? and [a-z].
func (n *Namespaces) Resolve(include, exclude []string) Set {
	key := strings.Join(include, "\x00") + "\x01" + strings.Join(exclude, "\x00")
	s, known := n.sets[key]
	if !known {
		if len(n.sets) == maxCachedSets {
			clear(n.sets)
		}
		s = n.resolve(include, exclude)
		n.sets[key] = s
	}
	return s
}

// setOf is the set of a Backup. One that runs although Velero should have rejected it
// overlaps with every other: it is another Velero, which reads its patterns in another way.
func (n *Namespaces) setOf(b *Backup) Set {
	s := n.Resolve(b.Include, b.Exclude)
	if s.Rejected != nil && b.Phase == InProgress {
		return Set{Invalid: s.Rejected}
	}
	return s
}

// maxCachedSets bounds the cache: where no namespace changes, patterns of old Backups would
// accumulate.
const maxCachedSets = 50_000

func (n *Namespaces) resolve(include, exclude []string) Set {
	in := newBitset(len(n.names))
	if err := check(slices.Concat(include, exclude), rejected); err != nil {
		return Set{members: in, Rejected: err}
	}
	if err := check(slices.Concat(include, exclude), unreadable); err != nil {
		return Set{Invalid: err}
	}
	if len(include) == 0 {
		include = []string{"*"}
	}
	for _, p := range include {
		n.each(p, in.add)
	}
	for _, p := range exclude {
		n.each(p, in.remove)
	}
	return Set{members: in}
}

// each calls do for each namespace that a valid pattern matches.
func (n *Namespaces) each(pattern string, do func(int)) {
	if !strings.ContainsAny(pattern, "*?[") {
		if i, there := n.index[pattern]; there {
			do(i)
		}
		return
	}
	for i, name := range n.names {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			do(i)
		}
	}
}

// check returns an error for the first pattern that is wrong.
func check(patterns []string, wrong func(string) bool) error {
	for _, p := range patterns {
		if wrong(p) {
			return fmt.Errorf("%w: %q", ErrPattern, p)
		}
	}
	return nil
}

// rejected tells whether Velero fails a Backup with this pattern when it starts
// (ValidateNamespaceName in pkg/util/wildcard of Velero 1.18, which its backup controller
// calls before anything else).
func rejected(pattern string) bool {
	return strings.Contains(pattern, "**") || strings.ContainsAny(pattern, "|()!{},") || !closed(pattern)
}

// closed tells whether each bracket expression of a pattern is closed and not empty.
func closed(pattern string) bool {
	for {
		open, end := strings.IndexByte(pattern, '['), strings.IndexByte(pattern, ']')
		switch {
		case open < 0 && end < 0:
			return true
		case open < 0 || end <= open+1: // it has no end, no begin or no content
			return false
		}
		pattern = pattern[end+1:]
	}
}

// unreadable tells whether it is unknown what a pattern matches: Velero accepts it, and
// nothing says how Velero reads it.
func unreadable(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err != nil || nested(pattern)
}

// nested tells whether a bracket is opened in another. (path.Match takes it as a letter.)
func nested(pattern string) bool {
	open := false
	for _, c := range pattern {
		if c == '[' && open {
			return true
		}
		open = c == '[' || open && c != ']'
	}
	return false
}
