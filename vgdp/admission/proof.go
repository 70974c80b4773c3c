package admission

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// proofs are about namespaces with a pod that has the node-agents' label, which
// every tenant may set. A Velero is proved by an object of its kinds, which only
// administrators can permit.
type proofs struct {
	dynamic dynamic.Interface
	log     *slog.Logger
	asked   map[string]time.Time // by namespace: the last check without a result
	left    int                  // checks left in this round
}

// The rate limit of checks: the interval for one namespace, and the number of one
// round, since a tenant may have many namespaces.
const (
	proofInterval  = 5 * time.Second
	proofsPerRound = 3
)

// proved tells whether a namespace is a Velero's. A failed check is repeated.
func (p *proofs) proved(ctx context.Context, namespace string) bool {
	last, asked := p.asked[namespace]
	if p.left == 0 || asked && time.Since(last) < proofInterval {
		return false
	}
	p.left--
	is, err := p.hasObjects(ctx, namespace)
	switch {
	case is:
		return true
	case err != nil && ctx.Err() == nil:
		p.log.Warn("failed to look for velero objects in namespace; retrying", "namespace", namespace, "error", err)
	case !asked:
		p.log.Info("ignored namespace: it has a pod with the label of velero's node-agents, but no Backup and no data mover load; to manage it now, name it in the configuration (velero)", "namespace", namespace)
	}
	p.asked[namespace] = time.Now()
	return false
}

// hasObjects tells whether a namespace has a Backup or a data mover load. All kinds are
// listed at once: one after the other they would share one call's time.
func (p *proofs) hasObjects(ctx context.Context, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel() // the first that has some ends the other lists
	of := []schema.GroupVersionResource{backups()}
	for _, kind := range Kinds() {
		of = append(of, Resource(kind))
	}
	type answer struct {
		some bool
		err  error
	}
	answers := make(chan answer, len(of))
	for _, resource := range of {
		go func() {
			list, err := p.dynamic.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) { // that kind is not installed
				list, err = nil, nil
			}
			answers <- answer{list != nil && len(list.Items) > 0, err}
		}()
	}
	var failed error
	for range of {
		a := <-answers
		if a.some {
			return true, nil
		}
		failed = cmp.Or(failed, a.err)
	}
	return false, failed
}
