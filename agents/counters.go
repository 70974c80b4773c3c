package agents

import (
	"maps"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// Counts are what this process did as the leader. Those that are read have every label
// value, so that metrics start at 0.
type Counts struct {
	// Acts on silent agents: mark, lift, failed.
	Acts counters.By[string]
	// Evictions that were approved, by outcome.
	Evictions counters.By[string]
	// Refusals by code.
	Refusals counters.By[string]
}

// Acts on silent agents, as counted.
const (
	actMark   = "mark"
	actLift   = "lift"
	actFailed = "failed"
)

// Clone copies the counts.
func (c Counts) Clone() Counts {
	all := Counts{Acts: counters.By[string]{actMark: 0, actLift: 0, actFailed: 0}, Evictions: counters.By[string]{}, Refusals: counters.By[string]{}}
	for _, o := range []evict.Outcome{evict.Evicted, evict.InProgress, evict.NotFound, evict.Blocked, evict.Refused, evict.UnknownOutcome} {
		all.Evictions[string(o)] = 0
	}
	for _, code := range []Code{CodeFullDisruption, CodeUnreadable, CodeCommon, CodeZone, CodeShare, CodeCluster, CodeOwner, CodeWrongNode, CodeProtected, CodeUnresolved, CodeNamespaceUnknown, CodeOutcomeUnknown, CodeGone} {
		all.Refusals[string(code)] = 0
	}
	maps.Copy(all.Acts, c.Acts)
	maps.Copy(all.Evictions, c.Evictions)
	maps.Copy(all.Refusals, c.Refusals)
	return all
}

// addDecision counts a refusal by its code, or an eviction by its outcome.
func (c *Counts) addDecision(code Code, o evict.Outcome) {
	if code != "" {
		c.Refusals.Add(string(code))
	} else {
		c.Evictions.Add(string(o))
	}
}
