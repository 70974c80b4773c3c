package capabilities

import (
	"fmt"
	"strings"
)

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
	Name  Name   `json:"capability"`
	State State  `json:"state"`
	Why   string `json:"reason"`
	// Consequence of it not being available, and what can be done; empty: it is.
	Consequence string `json:"consequence,omitempty"`
}

// String is the capability in one line.
func (c Capability) String() string {
	text := fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Why)
	if c.Consequence != "" {
		text += ": " + c.Consequence
	}
	return text
}

// Name of a capability, a label of plimsoll_capability_available.
type Name string

// The capabilities.
const (
	// BindAgents: admission policies let an agent write only its own Node and Lease.
	BindAgents Name = "bind-agents"
	// Hold data mover loads until they have a ticket.
	Hold Name = "hold"
	// Hide held data mover loads from node-agents.
	Hide Name = "hide"
	// Steer pods of data movers away from nodes with a start hold.
	Steer Name = "steer"
)

// Names of all capabilities, in the order in which they are listed.
func Names() []Name { return []Name{BindAgents, Hold, Hide, Steer} }

// Cluster is what decides, as it was read.
type Cluster struct {
	// Version of the API server that answered, such as v1.34.4.
	Version string
	// Validating and Mutating are the versions in which admission policies are served;
	// empty: not at all.
	Validating, Mutating string
	// Gates: the kind of Gates is installed.
	Gates bool
	// Job is the CronJob of that name, read only without a Mutating version.
	Job Job
}

// Job tells whether the CronJob plimsoll-release-hidden works.
type Job struct {
	Works bool
	// Unread: the caller may not read it.
	Unread bool
	Why    string
}

// Text of what follows where a capability is missing. A sentence of each stands in
// docs/vgdp-gate.md too.
const (
	withoutBinding = "the token of an agent may write the Leases and Nodes of other agents"
	withoutHold    = "no data mover load is held: set vgdp.enabled of the controller to false"
	withoutHide    = "held DataUploads and DataDownloads stay visible to node-agents, and each node-agent tries each of them in vain, with up to 5 refused writes per second and node"
	withoutSteer   = "pods of data movers may be scheduled to nodes with a start hold, and wait there until it ends"
)

// List of all capabilities of a cluster.
func List(c *Cluster) []Capability {
	return []Capability{c.bindAgents(), c.hold(), c.hide(), c.steer()}
}

// Unread is the list when the cluster could not be read.
func Unread(why string) []Capability {
	var list []Capability
	for _, name := range Names() {
		list = append(list, Capability{Name: name, State: Unknown, Why: why})
	}
	return list
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

func (c *Cluster) bindAgents() Capability {
	if c.Validating == "" {
		return Capability{BindAgents, Missing, c.withoutValidating(), withoutBinding}
	}
	return Capability{Name: BindAgents, State: Available, Why: "ValidatingAdmissionPolicy is served as " + c.Validating}
}

func (c *Cluster) hold() Capability {
	switch {
	case c.Validating == "":
		return Capability{Hold, Missing, c.withoutValidating(), withoutHold}
	case !c.Gates:
		return Capability{Hold, Missing, "the kind Gate is not served", withoutHold + ", or apply deploy/gate-crd.yaml and deploy/gate.yaml"}
	}
	return Capability{Name: Hold, State: Available, Why: "ValidatingAdmissionPolicy and the kind Gate are served"}
}

// hide: loads are hidden only where something releases them when no controller does.
func (c *Cluster) hide() Capability {
	switch {
	case c.Mutating != "":
		return Capability{Name: Hide, State: Available, Why: c.served()}
	case c.Job.Works:
		return Capability{Name: Hide, State: Available, Why: c.withoutMutating() + "; instead, " + c.Job.Why}
	case c.Job.Unread:
		return Capability{Hide, Unknown, c.withoutMutating() + "; " + c.Job.Why, "unless it works, " + withoutHide}
	}
	return Capability{Hide, Missing, c.withoutMutating() + ", and " + c.Job.Why, withoutHide}
}

func (c *Cluster) steer() Capability {
	if c.Mutating == "" {
		return Capability{Steer, Missing, c.withoutMutating(), withoutSteer}
	}
	return Capability{Name: Steer, State: Available, Why: c.served()}
}

func (c *Cluster) served() string { return "MutatingAdmissionPolicy is served as " + c.Mutating }

func (c *Cluster) withoutValidating() string {
	return fmt.Sprintf("Kubernetes %s serves no ValidatingAdmissionPolicy (v1: from 1.30)", c.version())
}

func (c *Cluster) withoutMutating() string {
	return fmt.Sprintf("Kubernetes %s serves no MutatingAdmissionPolicy (v1: from 1.36; v1beta1: 1.34 and 1.35, if enabled)", c.version())
}

func (c *Cluster) version() string { return strings.TrimPrefix(c.Version, "v") }
