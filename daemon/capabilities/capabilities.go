package capabilities

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/capability"
)

// The capabilities.
const (
	// BindAgents: admission policies let an agent write only its own Node and Lease.
	BindAgents = "bind-agents"
	// Hold data mover loads until they have a ticket.
	Hold = "hold"
	// Hide held data mover loads from node-agents.
	Hide = "hide"
	// Steer pods of data movers away from nodes with a start hold.
	Steer = "steer"
)

// Names of all capabilities, in the order in which they are listed.
func Names() []string { return []string{BindAgents, Hold, Hide, Steer} }

// Cluster is what decides, as it was read.
type Cluster struct {
	// Version of the API server that answered, such as v1.34.4.
	Version string
	// Validating and Mutating are the versions in which admission policies are served;
	// empty: not at all.
	Validating, Mutating string
	// Gates: the kind of Gates is installed.
	Gates bool
	// Job releases hidden loads where no policy does, served or not.
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
func List(c *Cluster) []capability.Capability {
	return []capability.Capability{c.bindAgents(), c.hold(), c.hide(), c.steer()}
}

// Unread is the list when the cluster could not be read.
func Unread(why string) []capability.Capability {
	var list []capability.Capability
	for _, name := range Names() {
		list = append(list, capability.Unread(name, why, ""))
	}
	return list
}

func (c *Cluster) bindAgents() capability.Capability {
	if c.Validating == "" {
		return capability.Lacks(BindAgents, c.withoutValidating(), withoutBinding)
	}
	return capability.Has(BindAgents, "ValidatingAdmissionPolicy is served as "+c.Validating)
}

func (c *Cluster) hold() capability.Capability {
	switch {
	case c.Validating == "":
		return capability.Lacks(Hold, c.withoutValidating(), withoutHold)
	case !c.Gates:
		return capability.Lacks(Hold, "the kind Gate is not served", withoutHold+", or apply deploy/gate-crd.yaml and deploy/gate.yaml")
	}
	return capability.Has(Hold, "ValidatingAdmissionPolicy and the kind Gate are served")
}

// Tested is a list with what the controller's dry run has found: why it hides no load,
// although the cluster serves what it needs; empty: nothing.
func Tested(list []capability.Capability, notHidden string) []capability.Capability {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Name == Hide && list[i].State == capability.Available && notHidden != "" {
			list[i] = capability.Lacks(Hide, notHidden, withoutHide)
		}
	}
	return list
}

// hide: loads are hidden only where something releases them when no controller does.
func (c *Cluster) hide() capability.Capability {
	switch {
	case c.Mutating != "":
		return capability.Has(Hide, c.served())
	case c.Job.Works:
		return capability.Has(Hide, c.withoutMutating()+"; instead, "+c.Job.Why)
	case c.Job.Unread:
		return capability.Unread(Hide, c.withoutMutating()+"; "+c.Job.Why, "unless it works, "+withoutHide)
	}
	return capability.Lacks(Hide, c.withoutMutating()+", and "+c.Job.Why, withoutHide)
}

func (c *Cluster) steer() capability.Capability {
	if c.Mutating == "" {
		return capability.Lacks(Steer, c.withoutMutating(), withoutSteer)
	}
	return capability.Has(Steer, c.served())
}

func (c *Cluster) served() string { return "MutatingAdmissionPolicy is served as " + c.Mutating }

func (c *Cluster) withoutValidating() string {
	return fmt.Sprintf("Kubernetes %s serves no ValidatingAdmissionPolicy (v1: from 1.30)", c.version())
}

func (c *Cluster) withoutMutating() string {
	return fmt.Sprintf("Kubernetes %s serves no MutatingAdmissionPolicy (v1: from 1.36; v1beta1: 1.34 and 1.35, if enabled)", c.version())
}

func (c *Cluster) version() string { return strings.TrimPrefix(c.Version, "v") }
