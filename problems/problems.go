// Package problems collects what is wrong with values of a configuration that are
// each well-formed. What must hold stands beside the struct that has the values:
//
//	// Validate says which values must not be used.
//	func (l Limits) Validate(at problems.Section) {
//		at.Int("perRound", l.PerRound, 1, maxEvictions)
//	}
//
// daemon/config finds each struct of a document that has this method, elements of lists
// too, and calls it with the section of the struct's path.
package problems

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxDuration is the longest of most durations: a valid typo must not set a
// threshold that is never met.
const MaxDuration = 24 * time.Hour

// Problem is a value that is well-formed but must not be used.
type Problem struct {
	// Keys are the dotted keys whose values contradict each other, the one to
	// blame first. A decoder names the first of them that the file sets.
	Keys []string
	// Reason says in one line what must hold.
	Reason string
}

// List of problems, in the order in which they were found.
type List []Problem

// At is the section with a dotted path; empty: the document.
func (l *List) At(path string) Section { return Section{l, path} }

// Section of a document: its keys are relative to its path.
type Section struct {
	found *List
	path  string
}

// Element is the section of an element of a list.
func (s Section) Element(key string, i int) Section {
	return Section{s.found, fmt.Sprintf("%s[%d]", s.Key(key), i)}
}

// Key is the whole path of a key; the empty key is the section itself.
func (s Section) Key(key string) string {
	if s.path == "" || key == "" {
		return s.path + key
	}
	return s.path + "." + key
}

// Must notes a problem unless ok, with keys, or with the section itself.
func (s Section) Must(ok bool, why string, keys ...string) {
	if ok {
		return
	}
	if len(keys) == 0 {
		keys = []string{""}
	}
	whole := make([]string, len(keys))
	for i, key := range keys {
		whole[i] = s.Key(key)
	}
	*s.found = append(*s.found, Problem{Keys: whole, Reason: why})
}

// Duration must be from least to most.
func (s Section) Duration(key string, value, least, most time.Duration) {
	s.Must(value >= least && value <= most, fmt.Sprintf("%s is not between %s and %s",
		Duration(value), Duration(least), Duration(most)), key)
}

// Int must be from least to most.
func (s Section) Int(key string, value, least, most int) {
	s.Must(value >= least && value <= most, fmt.Sprintf("%d is not between %d and %d", value, least, most), key)
}

// Period is a duration and its key.
type Period struct {
	Key   string
	Value time.Duration
}

// AtLeast requires that long is at least times short.
func (s Section) AtLeast(long, short Period, times int) {
	factor := ""
	if times > 1 {
		factor = strconv.Itoa(times) + " × "
	}
	// Divided, because times × short may overflow.
	s.Must(long.Value/time.Duration(times) >= short.Value, fmt.Sprintf("%s (%s) must be at least %s%s (%s)",
		s.Key(long.Key), Duration(long.Value), factor, s.Key(short.Key), Duration(short.Value)), long.Key, short.Key)
}

// OneOf requires one of the allowed values.
func (s Section) OneOf(key, value string, allowed ...string) {
	s.Must(slices.Contains(allowed, value), fmt.Sprintf("want one of %s, got %s", strings.Join(allowed, ", "), Quote(value)), key)
}

// Path must be absolute and clean.
func (s Section) Path(key, value string) {
	s.Must(path.IsAbs(value) && path.Clean(value) == value,
		"want an absolute path without .., // or a slash at its end, got "+Quote(value), key)
}

// PathOrNone is a Path, or empty.
func (s Section) PathOrNone(key, value string) {
	if value != "" {
		s.Path(key, value)
	}
}

// Paths are each a Path.
func (s Section) Paths(key string, values []string) {
	for i, value := range values {
		s.Element(key, i).Path("", value)
	}
}
