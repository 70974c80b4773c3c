package admission

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// cluster is what is known of the nodes: the Nodes, their node-agents, and what the
// Plimsoll agents report of them.
type cluster struct {
	nodes  *store.Store[*corev1.Node]
	agents *store.Store[*agentPod]
	leases *store.Store[*nodeReport]

	cached  *vgdp.Topology
	version [2]uint64 // of nodes and agents that cached is built from
	builds  uint64    // how often it was built
	// tolerations of the node-agents, as of cached.
	tolerations map[agentsOf][]corev1.Toleration
}

// agentsOf are the node-agents of a Velero on one operating system: a DaemonSet.
type agentsOf struct {
	namespace string
	windows   bool
}

func newCluster(wake store.Signal) cluster {
	return cluster{
		nodes:  store.New("nodes", wake, trimNode, store.OnUpdate(nodeChanged)),
		agents: store.New("node-agents", wake, trimAgent, store.OnUpdate(agentChanged)),
		leases: store.New("leases", wake, trimReport, store.OnUpdate(reportChanged)),
	}
}

// synced tells whether the initial lists are complete.
func (c *cluster) synced() bool { return c.agents.Synced() && c.leases.Synced() && c.nodes.Synced() }

// pressures of the nodes, by name. at is now by the clock of start holds.
func (c *cluster) pressures(now, at time.Time, grace time.Duration) map[string]vgdp.Pressure {
	all := map[string]vgdp.Pressure{}
	for _, l := range c.leases.List() {
		if p := l.pressure(now, at, grace); p != nil {
			all[l.Name] = *p
		}
	}
	return all
}

// topology is cached until a node, a node-agent or, by forget, a Velero changes.
func (c *cluster) topology(veleros map[string]*velero) *vgdp.Topology {
	now := [2]uint64{c.nodes.Changes(), c.agents.Changes()}
	if c.cached != nil && now == c.version {
		return c.cached
	}
	agents := map[string]map[string]vgdp.Agent{} // by node and namespace
	labels := map[string]map[string]string{}
	nodes := c.nodes.List()
	for _, n := range nodes {
		labels[n.Name] = n.Labels
	}
	for _, v := range veleros {
		v.config.drift = 0
	}
	c.tolerations = inheritedTolerations(c.agents.List())
	for _, p := range c.agents.List() {
		v := veleros[p.Namespace]
		if v == nil || v.unnamed || p.Node == "" || agents[p.Node][p.Namespace].Ready {
			continue
		}
		if agents[p.Node] == nil {
			agents[p.Node] = map[string]vgdp.Agent{}
		}
		agents[p.Node][p.Namespace] = v.config.agent(p, labels[p.Node])
	}
	c.cached, c.version = vgdp.NewTopology(withAgents(nodes, agents)), now
	c.builds++
	return c.cached
}

// inheritedTolerations are those of each DaemonSet's newest pod. Velero reads them in the
// DaemonSet, which we may not.
func inheritedTolerations(agents []*agentPod) map[agentsOf][]corev1.Toleration {
	newest := map[agentsOf]*agentPod{}
	for _, p := range agents {
		of := agentsOf{p.Namespace, p.Windows}
		if was := newest[of]; was == nil || was.CreationTimestamp.Before(&p.CreationTimestamp) ||
			was.CreationTimestamp.Equal(&p.CreationTimestamp) && was.Name < p.Name {
			newest[of] = p
		}
	}
	all := map[agentsOf][]corev1.Toleration{}
	for of, p := range newest {
		all[of] = p.Tolerations
	}
	return all
}

func withAgents(nodes []*corev1.Node, agents map[string]map[string]vgdp.Agent) []vgdp.Node {
	var list []vgdp.Node
	for _, n := range nodes {
		list = append(list, vgdp.Node{
			Features: vgdp.Features{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
			Agents:   agents[n.Name],
		})
	}
	return list
}

// forget makes the next topology anew.
func (c *cluster) forget() { c.cached = nil }

// roleAgent selects node-agents as Velero does, on Linux and Windows. roleOther selects
// the other pods: movers among them have no label in common.
const (
	roleAgent = "role=node-agent"
	roleOther = "role!=node-agent"
)

// agentPod is the pod of a Velero node-agent.
type agentPod struct {
	metav1.ObjectMeta

	Node  string
	Ready bool
	// ConfigMap named on its command line; empty: none.
	ConfigMap string
	// Started is the last start of its container; zero: it is not running.
	Started time.Time
	// Windows: it is one for Windows.
	Windows bool
	// Tolerations that the movers inherit, see vgdp.MoverTolerations.
	Tolerations []corev1.Toleration
}

func trimAgent(o any) (*agentPod, error) {
	switch p := o.(type) {
	case *agentPod:
		return p, nil
	case *corev1.Pod:
		return readAgent(p), nil
	}
	return nil, store.ErrType(o)
}

func readAgent(p *corev1.Pod) *agentPod {
	a := &agentPod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, CreationTimestamp: p.CreationTimestamp},
		Node:       p.Spec.NodeName, Windows: p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows, Tolerations: vgdp.MoverTolerations(p.Spec.Tolerations, false),
	}
	for _, c := range p.Spec.Containers {
		if name := option(slices.Concat(c.Command, c.Args), "--node-agent-configmap"); name != "" {
			a.ConfigMap = name
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			a.Started = c.State.Running.StartedAt.Time
		}
	}
	// On a node that is gone, and between two crashes, the phase stays Running. The condition
	// does not; without a readiness probe it is True exactly while the container runs.
	a.Ready = p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return a
}

// option is the value of a command line flag, the last one where it stands twice; empty
// without it.
func option(args []string, name string) (value string) {
	for i, arg := range args {
		if v, is := strings.CutPrefix(arg, name+"="); is {
			value = v
		} else if arg == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

func agentChanged(was, is *agentPod) bool {
	return was.UID != is.UID || was.Node != is.Node || was.Ready != is.Ready || was.ConfigMap != is.ConfigMap || !was.Started.Equal(is.Started)
}

// nodeReport is what a Plimsoll agent reports of its node.
type nodeReport struct {
	metav1.ObjectMeta

	lease.NodeReport
	ParseErr error
	Renewed  metav1.MicroTime
	// LastHeartbeat is when its last renewal was seen, by the local clock.
	LastHeartbeat time.Time
}

func trimReport(o any) (*nodeReport, error) {
	switch l := o.(type) {
	case *nodeReport:
		return l, nil
	case *coordinationv1.Lease:
		carried, odd := lease.ReadContent(l.Annotations)
		r := &nodeReport{ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace, ResourceVersion: l.ResourceVersion}, NodeReport: carried.Report, ParseErr: odd, LastHeartbeat: time.Now()}
		if l.Spec.RenewTime != nil {
			r.Renewed = *l.Spec.RenewTime
		}
		return r, nil
	}
	return nil, store.ErrType(o)
}

// reportChanged: a heartbeat without other changes triggers no round.
func reportChanged(was, is *nodeReport) bool {
	if was.Renewed.Equal(&is.Renewed) {
		is.LastHeartbeat = was.LastHeartbeat
	}
	return !sameBudget(was.DataMoverBudget, is.DataMoverBudget) || !was.HoldUntil.Equal(is.HoldUntil)
}

func sameBudget(a, b *int) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// pressure converts the report to package vgdp's type; nil: no pressure, or the agent's
// heartbeat is overdue. now is the local clock, as Heard, and at the same moment by the
// clock of start holds.
func (r *nodeReport) pressure(now, at time.Time, grace time.Duration) *vgdp.Pressure {
	if now.Sub(r.LastHeartbeat) >= grace || r.ParseErr != nil || r.DataMoverBudget == nil && r.HoldUntil == nil {
		return nil
	}
	p := &vgdp.Pressure{Budget: r.DataMoverBudget, Why: pressureText(r.Pressure)}
	if left := r.holdLength() - now.Sub(r.LastHeartbeat); left > 0 {
		p.HoldUntil = at.Add(left)
	}
	return p
}

// holdLength is the length of the start hold from the renewal on. Both times are by the
// node's clock, which may be wrong by hours, so only their difference counts, at
// most what an agent ever sets.
func (r *nodeReport) holdLength() time.Duration {
	if r.HoldUntil == nil {
		return 0
	}
	return min(r.HoldUntil.Sub(r.Renewed.Time), vgdp.MaxStartHold)
}

// pressureText are the pressures by resource, sorted.
func pressureText(pressure map[string]string) string {
	var list []string
	for resource, level := range pressure {
		list = append(list, resource+" "+level)
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "pressure is over, data mover budget is growing back"
	}
	return strings.Join(list, ", ")
}

func trimNode(o any) (*corev1.Node, error) {
	n, is := o.(*corev1.Node)
	if !is {
		return nil, store.ErrType(o)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
	}, nil
}

func nodeChanged(was, is *corev1.Node) bool {
	return !equality.Semantic.DeepEqual(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec, is.Spec)
}
