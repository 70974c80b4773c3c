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

// Set of namespaces. The zero value is empty.
type Set struct {
	members bitset
	// Invalid is why the patterns are invalid. Such a set overlaps with every other,
	// because its content is unknown. (Velero takes it as empty.)
	Invalid error
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

// maxCachedSets bounds the cache: where no namespace changes, patterns of old Backups would
// accumulate.
const maxCachedSets = 50_000

func (n *Namespaces) resolve(include, exclude []string) Set {
	if err := errors.Join(check(include), check(exclude)); err != nil {
		return Set{Invalid: err}
	}
	in := newBitset(len(n.names))
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

// check validates patterns as Velero does (pkg/util/wildcard.ValidateWildcardPatterns).
func check(patterns []string) error {
	for _, p := range patterns {
		switch {
		case strings.Contains(p, "**"), strings.ContainsAny(p, "|()!{},"), !balanced(p):
			return fmt.Errorf("%w: %q", ErrPattern, p)
		}
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("%w: %q", ErrPattern, p)
		}
	}
	return nil
}

// balanced tells whether each bracket is closed before the next is opened. (path.Match
// accepts a closing one without an opening one.)
func balanced(pattern string) bool {
	open := false
	for _, c := range pattern {
		if c == '[' && open || c == ']' && !open {
			return false
		}
		open = c == '[' || open && c != ']'
	}
	return !open
}
