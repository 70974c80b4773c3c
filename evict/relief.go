package evict

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Relief is a milder measure that has begun: pods were throttled. No pod is
// evicted for the same resource until it has had time to work.
type Relief struct {
	Resource plugins.Resource `json:"resource"`
	// Scope as in verdicts; wholeNode matches every scope of the resource.
	Scope string    `json:"scope"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Action is what was done, for people.
	Action string `json:"how"`
}

const wholeNode = "node"

// relieves reports whether it relieves what a verdict is about. Outer plugins do not tell
// their resource: theirs is a disk if they name it as their scope.
func (r *Relief) relieves(v plugins.Verdict) bool {
	if v.Resource == "" {
		return r.Resource == plugins.Disk && r.Scope == v.Scope
	}
	return r.Resource == v.Resource && (r.Scope == v.Scope || r.Scope == wholeNode || v.Scope == wholeNode)
}

func (r *Relief) reason() string {
	return "since " + clock(r.Since) + " " + r.Action + "; waiting for its effect until " + clock(r.Until)
}

// reliefFor is the longest relief that a verdict waits for. Memory below its floor
// does not wait.
func reliefFor(in Input, v plugins.Verdict) (longest Relief, waits bool) {
	if v.Urgent {
		return longest, false
	}
	for _, r := range in.Relief {
		if r.relieves(v) && in.Time.Before(r.Until) && r.Until.After(longest.Until) {
			longest, waits = r, true
		}
	}
	return longest, waits
}
