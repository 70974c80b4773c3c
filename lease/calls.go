package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// failure is why an attempt failed; after is the API server's Retry-After.
type failure struct {
	outcome Outcome
	after   time.Duration
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// renew renews the Lease: one patch, once it is known to exist. A conflict shows that another
// client has written the Lease since: it is read and tried once more.
func (b *Heartbeat) renew(ctx context.Context) (Outcome, error) {
	outcome, err := b.renewOnce(ctx)
	if apierrors.IsConflict(err) {
		return b.renewOnce(ctx)
	}
	return outcome, err
}

func (b *Heartbeat) renewOnce(ctx context.Context) (Outcome, error) {
	var owner []metav1.OwnerReference
	if b.stored == nil {
		var err error
		owner, err = b.read(ctx)
		if apierrors.IsNotFound(err) {
			return b.create(ctx)
		}
		if err != nil {
			return "", err
		}
	}
	err := b.patch(ctx, owner)
	if apierrors.IsNotFound(err) {
		return b.create(ctx)
	}
	return Renewed, err
}

// read gets the Lease and the Node. It returns the owner reference that the Lease
// lacks, if any. The error is NotFound if there is no Lease.
func (b *Heartbeat) read(ctx context.Context) ([]metav1.OwnerReference, error) {
	var lease coordinationv1.Lease
	if err := b.call(ctx, b.lease(b.Connection.leases.Get()).Name(b.Node), &lease); err != nil {
		return nil, fmt.Errorf("get lease: %w", err)
	}
	node, err := b.node(ctx)
	if err != nil {
		return nil, err
	}
	s := leaseOf(&lease)
	if b.Exclusive && b.otherHolder.renews(s, b.Holder, b.Uptime(), b.Duration) {
		return nil, &failure{outcome: Held, err: fmt.Errorf("held by %s", s.holder)}
	}
	b.stored = &s
	if s.owner == string(node.UID) {
		return nil, nil
	}
	return []metav1.OwnerReference{ownerOf(node)}, nil
}

func (b *Heartbeat) node(ctx context.Context) (*corev1.Node, error) {
	var node corev1.Node
	err := b.call(ctx, b.Connection.nodes.Get().Resource("nodes").Name(b.Node), &node)
	if apierrors.IsNotFound(err) {
		return nil, &failure{outcome: NoNode, err: fmt.Errorf("node %s not found", b.Node)}
	}
	if err != nil {
		return nil, fmt.Errorf("get node: %w", err)
	}
	return &node, nil
}

func (b *Heartbeat) patch(ctx context.Context, owner []metav1.OwnerReference) error {
	at := b.renewTime()
	r := b.stored.renew(b.Holder, b.Duration, at, b.carried())
	r.Metadata.OwnerReferences = owner
	if b.Exclusive {
		r.Metadata.ResourceVersion = b.stored.version
	}
	body, err := r.body()
	if err != nil {
		return err
	}
	var lease coordinationv1.Lease
	err = b.call(ctx, b.lease(b.Connection.leases.Patch(types.MergePatchType)).Name(b.Node).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, scheme.ParameterCodec).Body(body), &lease)
	if apierrors.IsConflict(err) || owner != nil && err != nil {
		b.stored = nil // conflict, or the owner reference is not known to be written: read it again
	}
	if err != nil {
		if b.stored != nil {
			b.stored.mayDiffer = true
		}
		return fmt.Errorf("renew lease: %w", err)
	}
	s := leaseOf(&lease)
	b.stored = &s
	return nil
}

// create creates the Lease, if there is a Node.
func (b *Heartbeat) create(ctx context.Context) (Outcome, error) {
	b.stored = nil
	node, err := b.node(ctx)
	if err != nil {
		return "", err
	}
	var lease coordinationv1.Lease
	err = b.call(ctx, b.lease(b.Connection.leases.Post()).
		VersionedParams(&metav1.CreateOptions{FieldManager: fieldManager}, scheme.ParameterCodec).
		Body(create(node, b.Holder, b.Duration, b.renewTime(), b.carried())), &lease)
	if err != nil {
		return "", fmt.Errorf("create lease: %w", err)
	}
	s := leaseOf(&lease)
	b.stored = &s
	return Created, nil
}

func (b *Heartbeat) renewTime() time.Time {
	var before time.Time
	if b.stored != nil {
		before = b.stored.renewed
	}
	b.lastRenewTime = nextRenewTime(b.now(), b.lastRenewTime, before)
	return b.lastRenewTime
}

func (b *Heartbeat) carried() map[string]string {
	if b.Annotations == nil {
		return nil
	}
	return b.Annotations()
}

func (b *Heartbeat) lease(r *rest.Request) *rest.Request {
	return r.Namespace(b.Namespace).Resource("leases")
}

// call sends one request and waits for its answer. The client must not retry by
// itself: it would sleep without the Beat's knowledge.
func (b *Heartbeat) call(ctx context.Context, r *rest.Request, into runtime.Object) error {
	wait, began := b.pulse.timeout, b.Uptime()
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	end := b.Connection.monitor(ctx, wait)
	err := r.MaxRetries(0).Do(timed).Into(into)
	h := end()
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return err
	case errors.As(err, &answer):
		f := &failure{outcome: Rejected, err: err}
		switch {
		case apierrors.IsTooManyRequests(err):
			f.outcome = Throttled
		case apierrors.IsUnauthorized(err):
			f.outcome = Unauthorized
			if old := b.Connection.credentials.problem(); old != nil {
				f.err = fmt.Errorf("%w; %w", err, old)
			}
		}
		if s, suggested := apierrors.SuggestsClientDelay(err); suggested {
			f.after = time.Duration(s) * time.Second
		}
		return f
	case timed.Err() == nil || h.dead(b.Uptime()-began):
		return &failure{outcome: Lost, err: err}
	}
	return &failure{outcome: Slow, err: fmt.Errorf("no answer within %s", wait)}
}

// otherHolder is another holder of the Lease, and when its last renewal was seen.
type otherHolder struct {
	holder  string
	renewed time.Time
	since   time.Duration
}

// renews reports whether another holder renews the Lease: a renewal was seen less
// than duration ago. As in leader election a renewal is a change of renewTime, so
// the other's clock does not matter.
func (r *otherHolder) renews(s stored, us string, now, duration time.Duration) bool {
	if s.holder == us || s.holder == "" {
		return false
	}
	if r.holder != s.holder || !r.renewed.Equal(s.renewed) {
		*r = otherHolder{s.holder, s.renewed, now}
	}
	return now-r.since < duration
}
