package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Relief is something milder that has begun: data movers that press were slowed
// down. Nobody is evicted for the same until it has had its time.
type Relief struct {
	Resource plugins.Resource `json:"resource"`
	// Scope is that of the verdicts; those about the whole node have their part
	// in every scope of their resource.
	Scope string    `json:"scope"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// How is what was done, for people.
	How string `json:"how"`
}

const wholeNode = "node"

// of says whether it is about what a verdict is about.
func (r *Relief) of(v plugins.Verdict) bool {
	return r.Resource == v.Resource && (r.Scope == v.Scope || r.Scope == wholeNode || v.Scope == wholeNode)
}

func (r *Relief) say() string {
	return "since " + clock(r.Since) + " " + r.How + "; waiting for its effect until " + clock(r.Until)
}

// relief that a verdict waits for, the one that lasts longest. Memory below its
// floor waits for nothing.
func (in Input) relief(v plugins.Verdict) (longest Relief, waits bool) {
	if v.Urgent {
		return longest, false
	}
	for _, r := range in.Relief {
		if r.of(v) && in.Time.Before(r.Until) && r.Until.After(longest.Until) {
			longest, waits = r, true
		}
	}
	return longest, waits
}
