package remote

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// Overview is what the heartbeats of all agents report.
type Overview struct {
	Time       time.Time  `json:"time"`
	Nodes      []Node     `json:"nodes"`
	Controller Controller `json:"controller"`
	// Capabilities of the cluster.
	Capabilities []capability.Capability `json:"capabilities"`
}

// Node is what the heartbeat of one agent reports.
type Node struct {
	Name string `json:"name"`
	// HeartbeatSeconds is the age of the last renewal; below 0: a clock that is ahead wrote
	// it; nil: the agent renews none, and nothing is reported. Silent: there is none, or it is
	// older than the Lease's duration, or as far ahead, so that it does not show that the
	// agent lives, and what is reported was so then.
	HeartbeatSeconds *float64 `json:"heartbeatSeconds,omitempty"`
	Silent           bool     `json:"silent,omitempty"`
	// Judged: the heartbeat has a report on pressure. Without one there may be any.
	Judged   bool              `json:"judged"`
	Pressure map[string]string `json:"pressure,omitempty"`
	// Reported are levels of rules that only report; NotJudged the resources of which
	// all or a part was not judged, so that their absence from Pressure is no all-clear.
	Reported        map[string]string `json:"reported,omitempty"`
	NotJudged       []string          `json:"notJudged,omitempty"`
	Plugins         map[string]string `json:"plugins,omitempty"`
	DataMoverBudget *int              `json:"dataMoverBudget,omitempty"`
	// Contention is nil where the agent does not report it.
	Contention *lease.NodeContention `json:"contention,omitempty"`
	// Problem is why the agent is silent, and why a part of its report is missing.
	Problem string `json:"problem,omitempty"`
}

// Controller is the leader of the controllers, as its Lease names it; empty: none. Problem is
// why none leads, or why it may not, and what to do.
type Controller struct {
	Leader  string `json:"leader,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// ErrNoAgents says that no agent has sent a heartbeat.
var ErrNoAgents = errors.New("no agent has a heartbeat in this cluster: install Plimsoll (docs/install-kubernetes.md), look at the agents (kubectl -n plimsoll-system get pods), or choose another --context; agents with lease.enabled: false report nothing here")

// requestTimeout bounds each request to the API server.
const requestTimeout = 30 * time.Second

// Overview lists the heartbeats: one request, which the API server answers from its
// cache, for all agents.
func (c *Cluster) Overview(ctx context.Context) (*Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leading, has := make(chan Controller, 1), make(chan []capability.Capability, 1)
	go func() { leading <- c.controller(ctx) }()
	go func() { has <- c.capabilities(ctx) }()
	list, err := c.leases.Leases(lease.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	switch {
	case err != nil:
		return nil, told("heartbeats of the agents", err, viewer())
	case len(list.Items) == 0:
		return nil, ErrNoAgents
	}
	all := &Overview{Time: c.clock.Now().UTC(), Nodes: make([]Node, 0, len(list.Items)), Controller: <-leading, Capabilities: <-has}
	for i := range list.Items {
		all.Nodes = append(all.Nodes, newNode(&list.Items[i], all.Time))
	}
	slices.SortFunc(all.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func newNode(l *coordinationv1.Lease, now time.Time) Node {
	n := Node{Name: l.Name, Silent: true}
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		n.Problem = "renews no Lease (lease.enabled: false)"
		return n
	}
	var problems []string
	age, silent := ageOf(l, now)
	switch n.Silent = silent; {
	case !silent:
		age = max(0, age) // no two clocks are the same
	case age < 0:
		problems = append(problems, "its clock is, or was, "+view.Age(-age)+" ahead: whether it lives is not known")
	default:
		problems = append(problems, "it has not renewed its Lease, or its clock is behind")
	}
	n.HeartbeatSeconds = new(age.Round(100 * time.Millisecond).Seconds())
	content, err := lease.ReadContent(l.Annotations)
	n.Judged = err == nil && l.Annotations[lease.NodeAnnotation] != ""
	says := &content.Report
	n.Pressure, n.Reported, n.NotJudged = says.Pressure, says.Reported, says.NotJudged
	n.Plugins, n.DataMoverBudget = says.Plugins, says.DataMoverBudget
	contention, unread := lease.ReadContention(l.Annotations)
	if unread == nil {
		n.Contention = &contention
	}
	if missing := cmp.Or(err, unread); missing != nil {
		problems = append(problems, missing.Error())
	}
	n.Problem = strings.Join(problems, "; ")
	return n
}

// ageOf the last renewal of a Lease; silent: its holder has not renewed it for its duration,
// or its clock is as far behind or ahead.
func ageOf(l *coordinationv1.Lease, now time.Time) (age time.Duration, silent bool) {
	age = now.Sub(l.Spec.RenewTime.Time)
	return age, age.Abs() > time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second
}

// capabilities of the cluster, which every user may read.
func (c *Cluster) capabilities(ctx context.Context) []capability.Capability {
	has, err := capabilities.Read(ctx, c.Core.RESTClient(), c.clock.Now())
	if err != nil {
		return capabilities.Unread(err.Error())
	}
	return capabilities.List(&has)
}

// controller reads the Lease of the leader. Who may not read it is not told about it.
func (c *Cluster) controller(ctx context.Context) Controller {
	const look = "; without a controller no requested eviction is approved, and nothing acts on silent agents: kubectl -n plimsoll-system get pods -l app.kubernetes.io/component=controller"
	l, err := c.leases.Leases(Namespace).Get(ctx, controller.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Controller{Problem: "no Lease of a controller in " + Namespace + " (election.namespace, election.enabled?)" + look}
	case err != nil:
		return Controller{Problem: told("the controller's Lease", err, viewer()).Error()}
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil:
		return Controller{Problem: "no controller leads" + look}
	}
	leader := Controller{Leader: *l.Spec.HolderIdentity}
	switch age, silent := ageOf(l, c.clock.Now()); {
	case !silent:
	case age < 0:
		leader.Problem = "the clock of the controller " + leader.Leader + " is, or was, " + view.Age(-age) + " ahead: whether it leads is not known" + look
	default:
		leader.Problem = "the controller " + leader.Leader + " has not renewed its Lease for " + view.Age(age) + ", or its clock is behind" + look
	}
	return leader
}
