// Package capability says which part of Plimsoll a cluster, or its Velero, has what it
// needs for, and what follows where it does not.
//
// # Usage
//
//	list := []capability.Capability{{Name: "hide", State: capability.Missing, Why: "…", Consequence: "…"}}
//	capability.Log(log, nil, list) // at Warn: hide is not available
//
// # Concurrency
//
// All is values.
package capability

import "log/slog"

// State of a capability.
type State string

// The states. Unknown: it could not be read.
const (
	Available State = "available"
	Missing   State = "missing"
	Unknown   State = "unknown"
)

// Capability is a part of Plimsoll that needs something of the cluster.
type Capability struct {
	Name  string `json:"capability"` // a label of plimsoll_capability_available
	State State  `json:"state"`
	Why   string `json:"reason"`
	// Consequence of it not being available, and what can be done; empty: it is.
	Consequence string `json:"consequence,omitempty"`
}

// String is the capability in one line.
func (c Capability) String() string {
	text := c.Name + " is " + string(c.State) + ": " + c.Why
	if c.Consequence != "" {
		text += ": " + c.Consequence
	}
	return text
}

// Has is an available capability.
func Has(name, why string) Capability { return Capability{Name: name, State: Available, Why: why} }

// Lacks is a missing capability.
func Lacks(name, why, consequence string) Capability {
	return Capability{Name: name, State: Missing, Why: why, Consequence: consequence}
}

// Unread is a capability that could not be read.
func Unread(name, why, consequence string) Capability {
	return Capability{Name: name, State: Unknown, Why: why, Consequence: consequence}
}

// Lacking are those that are not available for sure.
func Lacking(list []Capability) (lacking []Capability) {
	for _, c := range list {
		if c.State != Available {
			lacking = append(lacking, c)
		}
	}
	return lacking
}

// Log what is not as it was in the list before; nil: all of it was available.
func Log(log *slog.Logger, before, list []Capability) {
	was := map[string]State{}
	for _, c := range before {
		was[c.Name] = c.State
	}
	for _, c := range list {
		state, known := was[c.Name]
		if !known {
			state = Available
		}
		switch {
		case c.State == state:
		case c.State == Available:
			log.Info("capability is available", "capability", c.Name, "reason", c.Why)
		default:
			log.Warn("capability is not available", "capability", c.Name, "state", string(c.State), "reason", c.Why, "consequence", c.Consequence)
		}
	}
}
