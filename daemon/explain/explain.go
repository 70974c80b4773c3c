// Package explain answers "why was this evicted, why does that wait?" from the
// decisions that an agent stores, in one screen of plain text.
package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// ErrNotInDecisions means that no stored decision is about the name.
var ErrNotInDecisions = errors.New("no stored decision names it")

// namesListed bounds the names in the error about an unknown name.
const namesListed = 12

// About returns the decisions in which a name is a candidate, or the one with
// this ID, in the order of the list. A name is a pod's name, with or without
// its namespace, its UID, or the name of its workload on the node. The error
// wraps ErrNotInDecisions and lists the known names.
func About(list []evict.Decision, name string) ([]evict.Decision, error) {
	var found []evict.Decision
	for i := range list {
		if d := &list[i]; d.ID == name || len(places(d, name)) > 0 {
			found = append(found, *d)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	known := names(list)
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("%q: %w: there is no decision yet", name, ErrNotInDecisions)
	case len(known) == 0:
		return nil, fmt.Errorf("%q: %w: none of %d has a candidate", name, ErrNotInDecisions, len(list))
	}
	more := ""
	if over := len(known) - namesListed; over > 0 {
		known, more = known[:namesListed], fmt.Sprintf(" and %d more", over)
	}
	return nil, fmt.Errorf("%q: %w; candidates are: %s%s", name, ErrNotInDecisions, strings.Join(known, ", "), more)
}

// places are the indexes of the candidates with this name.
func places(d *evict.Decision, name string) []int {
	var at []int
	for i := range d.Candidates {
		if hasName(&d.Candidates[i], name) {
			at = append(at, i)
		}
	}
	return at
}

func hasName(c *evict.Considered, name string) bool {
	is := []string{c.Name, c.PodUID, c.Cgroup}
	if c.Pod != nil {
		is = append(is, c.Pod.Name, c.Pod.UID, c.Pod.Namespace+"/"+c.Pod.Name)
	}
	return name != "" && slices.Contains(is, name)
}

// names are those of all candidates, the newest decision first.
func names(list []evict.Decision) []string {
	var all []string
	for _, d := range list {
		for _, c := range d.Candidates {
			if !slices.Contains(all, c.Name) {
				all = append(all, c.Name)
			}
		}
	}
	return all
}
