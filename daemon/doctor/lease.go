package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Lease is a heartbeat as configured: its Lease and the holder it would have.
type Lease struct {
	Namespace, Name, Holder string
	// Annotation names the agent that renews the Lease; Agent is the ID that this
	// agent would write, empty if no agent has used the state directory.
	Annotation, Agent string
}

const heartbeat = "heartbeat"

// leases has a row for each Lease that the agent would renew.
func leases(ctx context.Context, client kubernetes.Interface, p Examination, agentRuns bool) []Row {
	if p.Lease == nil {
		return []Row{{Warn, heartbeat, "off: the cluster does not notice when the agent is gone (set lease.enabled: true)"}}
	}
	rows := []Row{p.Lease.examine(ctx, client.CoordinationV1(), false, agentRuns)}
	if p.NodeLease != nil {
		rows = append(rows, p.NodeLease.examine(ctx, client.CoordinationV1(), true, agentRuns))
	}
	return rows
}

// examine reads a Lease; an exclusive one must have no other holder, and an agent that
// runs renews it. It writes nothing: a dry-run create shows whether the namespace exists.
func (w *Lease) examine(ctx context.Context, client coordinationv1client.LeasesGetter, exclusive, agentRuns bool) Row {
	leases := client.Leases(w.Namespace)
	l, err := leases.Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return w.examineMissing(ctx, leases)
	case err != nil:
		return Row{Fail, heartbeat, oneLine(err)}
	}
	holder := ""
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	age, when := lifetime(l), "without renewTime"
	if l.Spec.RenewTime != nil {
		age = time.Since(l.Spec.RenewTime.Time).Round(time.Second) // the agent has this machine's clock
		when = fmt.Sprintf("renewed %s ago", age)
	}
	lives, other := age.Abs() < lifetime(l), l.Annotations[w.Annotation]
	finding := fmt.Sprintf("%s/%s is held by %q, %s", l.Namespace, l.Name, holder, when)
	switch {
	case lives && exclusive && holder != w.Holder:
		return Row{Fail, heartbeat, finding + ": a kubelet renews it, so the agent will not (use lease.target: agent)"}
	case lives && w.Agent != "" && other != "" && other != w.Agent:
		return Row{Fail, heartbeat, fmt.Sprintf("%s by agent %s, but the agent with this state directory is %s: two would double every rate limit; keep one", finding, other, w.Agent)}
	case agentRuns && !lives && age < 0:
		return Row{Warn, heartbeat, finding + ": the clock was set back, and until it is that time again this does not show whether the agent that runs renews it: see its log"}
	case agentRuns && !lives:
		return Row{Fail, heartbeat, finding + ": an agent runs, and its renewals do not reach the API server: see its log (one that was started with lease.enabled: false renews none)"}
	}
	return Row{Pass, heartbeat, finding}
}

// lifetime is how long a renewal is valid.
func lifetime(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// examineMissing: the Lease does not exist; the agent creates it if it can.
func (w *Lease) examineMissing(ctx context.Context, leases coordinationv1client.LeaseInterface) Row {
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: w.Name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsNotFound(err):
		return Row{Fail, heartbeat, fmt.Sprintf("no namespace %s: apply deploy/rbac.yaml", w.Namespace)}
	case err != nil && !apierrors.IsAlreadyExists(err):
		return Row{Fail, heartbeat, oneLine(err)}
	}
	return Row{Pass, heartbeat, fmt.Sprintf("no Lease %s/%s yet: the agent creates it once its Node exists", w.Namespace, w.Name)}
}
