package admission

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// proofs are about namespaces with a pod that has the node-agents' label, which
// every tenant may set. A Velero is proved by an object of its kinds, which only
// administrators can permit.
type proofs struct {
	asked map[string]time.Time // by namespace: the last check without a result
	left  int                  // checks left in this round
}

// The rate limit of checks: the interval for one namespace, and the number of one
// round, since a tenant may have many namespaces.
const (
	proofInterval  = 5 * time.Second
	proofsPerRound = 3
)

// proved tells whether a namespace is known to be a Velero's, from then on for this
// leader's term. A failed check is repeated.
func (r *Reconciler) proved(ctx context.Context, namespace string) bool {
	if r.veleros[namespace] != nil {
		return true
	}
	last, asked := r.proofs.asked[namespace]
	if r.proofs.left == 0 || asked && time.Since(last) < proofInterval {
		return false
	}
	r.proofs.left--
	is, err := r.hasObjects(ctx, namespace)
	switch {
	case is:
		return true
	case err != nil && ctx.Err() == nil:
		r.Log.Warn("failed to look for velero objects in namespace; retrying", "namespace", namespace, "error", err)
	case !asked:
		r.Log.Info("ignored namespace: it has a pod with the label of velero's node-agents, but no Backup and no data mover load; to manage it now, name it in the configuration (velero)", "namespace", namespace)
	}
	r.proofs.asked[namespace] = time.Now()
	return false
}

// hasObjects tells whether a namespace has a Backup or a data mover load.
func (r *Reconciler) hasObjects(ctx context.Context, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	of := []schema.GroupVersionResource{backups()}
	for _, kind := range Kinds() {
		of = append(of, Resource(kind))
	}
	for _, resource := range of {
		list, err := r.Dynamic.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) { // that kind is not installed
			return false, err
		}
		if err == nil && len(list.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}
