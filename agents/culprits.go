package agents

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// Culprits are the workloads that other workloads wait for, over all nodes, as the
// heartbeats report them. Nothing is decided by it: an agent's token can write
// anything about its own node, and no more than eight entries of it.
type Culprits struct {
	// List has those on the most nodes first, then those with the longest wait.
	List []Culprit `json:"list,omitempty"`
	// More are left out of List.
	More int `json:"more,omitempty"`
	// UnknownNodes are how many nodes have a workload that waits for others, and no
	// culprit that is large enough, too little coverage to name one, or more of them
	// than the heartbeat carries.
	UnknownNodes int `json:"unknownNodes,omitempty"`
	// UnseenNodes are how many nodes have a resource, except the network, for which the
	// kernel does not report who waits.
	UnseenNodes int `json:"unseenNodes,omitempty"`
	// Unreported are how many agents report no contention, Silent how many have no
	// heartbeat.
	Unreported int `json:"unreported,omitempty"`
	Silent     int `json:"silent,omitempty"`
}

// AllSeen reports whether each node has an agent that reports which workloads wait, and
// which of the others cause it, for each resource except the network. Only then an empty
// List means that no workload waits because of another.
func (c *Culprits) AllSeen() bool {
	return c.UnknownNodes+c.UnseenNodes+c.Unreported+c.Silent == 0
}

// Culprit is the pods of one owner, or one workload, by which others wait for one
// resource.
type Culprit struct {
	// Owner is NAMESPACE/KIND/NAME for pods, else the workload's name.
	Owner    string `json:"owner"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	// Nodes on which it is the main culprit.
	Nodes int `json:"nodes"`
	// ShareRatio is its largest share of the resource on one node, WaitedRatio the
	// longest time that a workload waited there, as a share of the window.
	ShareRatio  float64 `json:"shareRatio"`
	WaitedRatio float64 `json:"waitedRatio"`
	// On are these nodes, the longest wait first; the first ones only.
	On []CulpritNode `json:"on"`
}

// CulpritNode is one node on which a workload is a culprit.
type CulpritNode struct {
	Node        string  `json:"node"`
	Device      string  `json:"device,omitempty"`
	Workload    string  `json:"workload"`
	ShareRatio  float64 `json:"shareRatio"`
	Sufferer    string  `json:"sufferer,omitempty"`
	WaitedRatio float64 `json:"waitedRatio"`
}

// Bounds of Culprits.
const (
	maxCulprits     = 100
	maxCulpritNodes = 20
)

type culpritKey struct{ owner, kind, resource string }

// culpritsOf the agents whose heartbeats are not silent; those that are, are counted.
func culpritsOf(agents []Judged) *Culprits {
	all := map[culpritKey][]CulpritNode{}
	var c Culprits
	for i := range agents {
		a := &agents[i]
		switch {
		case a.State == Silent:
			c.Silent++
			continue
		case a.Contention == nil:
			c.Unreported++
			continue
		case !addCulprits(all, a):
			c.UnknownNodes++
		}
		if len(a.Contention.Unseen()) > 0 {
			c.UnseenNodes++
		}
	}
	for key, on := range all {
		c.List = append(c.List, newCulprit(key, on))
	}
	slices.SortFunc(c.List, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(b.WaitedRatio, a.WaitedRatio), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Resource, b.Resource))
	})
	c.More = max(0, len(c.List)-maxCulprits)
	c.List = c.List[:len(c.List)-c.More]
	return &c
}

// addCulprits adds the main culprit of each resource of a node; false: one of them is
// unknown, or left out of the heartbeat. A main sufferer that alone uses the resource does not wait because of itself.
func addCulprits(all map[culpritKey][]CulpritNode, a *Judged) (known bool) {
	known = a.Contention.More == 0
	for i := range a.Contention.Resources {
		r := &a.Contention.Resources[i]
		w, some := r.MainCulprit()
		if !some {
			known = false
			continue
		}
		on := CulpritNode{Node: a.Name, Device: r.Device, Workload: w.Name, ShareRatio: w.Ratio}
		if len(r.Sufferers) > 0 {
			on.Sufferer, on.WaitedRatio = r.Sufferers[0].Name, r.Sufferers[0].Ratio
		}
		key := culpritKey{cmp.Or(w.Owner, w.Name), w.Kind, r.Resource}
		all[key] = append(all[key], on)
	}
	return known
}

func newCulprit(key culpritKey, on []CulpritNode) Culprit {
	c := Culprit{Owner: key.owner, Kind: key.kind, Resource: key.resource}
	nodes := map[string]bool{}
	for _, n := range on {
		nodes[n.Node] = true
		c.ShareRatio, c.WaitedRatio = max(c.ShareRatio, n.ShareRatio), max(c.WaitedRatio, n.WaitedRatio)
	}
	slices.SortFunc(on, func(a, b CulpritNode) int {
		return cmp.Or(cmp.Compare(b.WaitedRatio, a.WaitedRatio), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device))
	})
	c.Nodes, c.On = len(nodes), on[:min(len(on), maxCulpritNodes)]
	return c
}

// contentionOf a Lease; nil where the agent reports none, or nothing that can be read.
func contentionOf(annotations map[string]string) *lease.NodeContention {
	n, err := lease.ReadContention(annotations)
	if err != nil {
		return nil
	}
	return &n
}
