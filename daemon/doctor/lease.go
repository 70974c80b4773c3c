package doctor

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// Lease is the heartbeat as configured.
type Lease struct {
	Enabled bool
	// Namespace and Name of the Lease, and its Holder.
	Namespace, Name, Holder string
	// Exclusive: nobody else may renew it.
	Exclusive bool
}

// lease looks at the Lease that the agent would renew. It writes nothing: that
// its namespace is there shows in that a dry run of a Lease is not refused.
func (p Patient) lease(ctx context.Context, how *rest.Config) Row {
	const check = "heartbeat"
	if !p.Lease.Enabled {
		return Row{Warn, check, "off: nobody in the cluster sees when the agent is gone (lease.enabled: true)"}
	}
	client, err := coordinationv1client.NewForConfig(how)
	if err != nil {
		return Row{Fail, check, oneLine(err)}
	}
	leases := client.Leases(p.Lease.Namespace)
	l, err := leases.Get(ctx, p.Lease.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.noLease(ctx, leases)
	case err != nil:
		return Row{Fail, check, oneLine(err)}
	}
	holder, renewed := "", time.Time{}
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	age := time.Since(renewed).Round(time.Second)
	finding := fmt.Sprintf("%s/%s is held by %q, renewed %s ago", l.Namespace, l.Name, holder, age)
	if p.Lease.Exclusive && holder != p.Lease.Holder && age.Abs() < lifetime(l) {
		return Row{Fail, check, finding + ": a kubelet beats there, so the agent will not (lease.target: agent)"}
	}
	return Row{Pass, check, finding}
}

// lifetime is for how long a renewal is good.
func lifetime(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// noLease: the agent will make it, if it can.
func (p Patient) noLease(ctx context.Context, leases coordinationv1client.LeaseInterface) Row {
	const check = "heartbeat"
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: p.Lease.Name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsNotFound(err):
		return Row{Fail, check, fmt.Sprintf("there is no namespace %s: apply deploy/rbac.yaml", p.Lease.Namespace)}
	case err != nil && !apierrors.IsAlreadyExists(err):
		return Row{Fail, check, oneLine(err)}
	}
	return Row{Pass, check, fmt.Sprintf("there is no Lease %s/%s yet: the agent makes it when there is a Node", p.Lease.Namespace, p.Lease.Name)}
}
