package remote

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// Contention is the contention for one resource of one node.
type Contention struct {
	Node string `json:"node"`
	lease.ResourceContention
}

// Contentions are those of all nodes whose agents are not silent, with their counts.
type Contentions struct {
	// Contentions, the longest wait first.
	Contentions []Contention `json:"contentions"`
	// More are those that agents left out of their reports.
	More int `json:"more,omitempty"`
	// Nodes that were asked for. Of Silent and Unreported ones nothing is known;
	// on Unknown ones the kernel does not report which workload waits for some
	// resource, except links, for which none does. Unnamed ones have a contention that is
	// not listed, and that may be one of the namespace: not all its workloads are named.
	Nodes      int      `json:"nodes"`
	Silent     []string `json:"silent,omitempty"`
	Unreported []string `json:"unreported,omitempty"`
	Unknown    []string `json:"unknown,omitempty"`
	Unnamed    []string `json:"unnamed,omitempty"`
}

// Contentions of the overview; with a namespace those in which one of its pods is a
// culprit or a sufferer.
func (o *Overview) Contentions(namespace string) Contentions {
	all := Contentions{Contentions: []Contention{}, Nodes: len(o.Nodes)}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		switch {
		case n.Silent:
			all.Silent = append(all.Silent, n.Name)
			continue
		case n.Contention == nil:
			all.Unreported = append(all.Unreported, n.Name)
			continue
		case len(n.Contention.Unseen()) > 0:
			all.Unknown = append(all.Unknown, n.Name)
		}
		all.More += n.Contention.More
		unnamed := false
		for _, r := range n.Contention.Resources {
			if namespace == "" || involves(&r, namespace) {
				all.Contentions = append(all.Contentions, Contention{n.Name, r})
			} else {
				unnamed = unnamed || r.Unnamed()
			}
		}
		if unnamed {
			all.Unnamed = append(all.Unnamed, n.Name)
		}
	}
	slices.SortStableFunc(all.Contentions, func(a, b Contention) int { return cmp.Compare(b.Waited(), a.Waited()) })
	return all
}

// involves reports whether a pod of the namespace is named as a culprit or a sufferer.
func involves(r *lease.ResourceContention, namespace string) bool {
	return slices.ContainsFunc(slices.Concat(r.Culprits, r.Sufferers), func(w lease.Workload) bool { return strings.HasPrefix(w.Name, namespace+"/") })
}
