package release

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// leaseReader reads Leases of Plimsoll.
type leaseReader func(context.Context) ([]coordinationv1.Lease, error)

// heartbeats are the Leases of all agents.
func (r *Release) heartbeats(ctx context.Context) ([]coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.Leases.Leases(lease.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list heartbeats: %w", err)
	}
	return list.Items, nil
}

// leaseOf reads one Lease, which may not exist.
func (r *Release) leaseOf(name types.NamespacedName) leaseReader {
	return func(ctx context.Context) ([]coordinationv1.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		l, err := r.Leases.Leases(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("lease %s: %w", name, err)
		}
		return []coordinationv1.Lease{*l}, nil
	}
}

// liveLease is a valid Lease whose holder may be alive.
type liveLease struct {
	renewed *metav1.MicroTime
	until   time.Time // a live holder will have renewed it by then
}

// liveLeases are the Leases that have not expired. A live holder renews its Lease
// at least three times in its duration.
func liveLeases(leases []coordinationv1.Lease, now time.Time) map[types.UID]liveLease {
	beats := map[types.UID]liveLease{}
	for i := range leases {
		l := &leases[i]
		if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil || holder(l) == "" {
			continue
		}
		lasts := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		if now.Sub(l.Spec.RenewTime.Time) < lasts {
			beats[l.UID] = liveLease{l.Spec.RenewTime, now.Add(lasts / 3)}
		}
	}
	return beats
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// checkHolders runs do, and reports holders that were alive meanwhile, because they
// bring back what do removed. A holder that has just stopped leaves a valid
// Lease, so it waits until each Lease was renewed or should have been.
func (r *Release) checkHolders(ctx context.Context, look leaseReader, do func() error) error {
	leases, err := look(ctx)
	if err != nil {
		return errors.Join(err, do())
	}
	beats := liveLeases(leases, time.Now())
	errs := []error{do()}
	for len(beats) > 0 && ctx.Err() == nil {
		if leases, err = look(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, renewedSince(beats, leases, time.Now())...)
		if len(beats) > 0 {
			wait(ctx, pause)
		}
	}
	return errors.Join(errs...)
}

// renewedSince reports the Leases that were renewed. It leaves in beats those still
// undecided.
func renewedSince(beats map[types.UID]liveLease, leases []coordinationv1.Lease, now time.Time) (errs []error) {
	there := map[types.UID]bool{}
	for i := range leases {
		l := &leases[i]
		there[l.UID] = true
		if p, beats0 := beats[l.UID]; beats0 && !l.Spec.RenewTime.Equal(p.renewed) && holder(l) != "" {
			errs = append(errs, fmt.Errorf("lease %s/%s: still renewed by %s, which brings back what is removed: stop it first", l.Namespace, l.Name, holder(l)))
			delete(beats, l.UID)
		}
	}
	for uid, p := range beats {
		if !there[uid] || now.After(p.until) {
			delete(beats, uid)
		}
	}
	return errs
}

// remove Leases.
func (r *Release) remove(ctx context.Context, look leaseReader) error {
	leases, err := look(ctx)
	errs := []error{err}
	for i := range leases {
		l := &leases[i]
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		err := r.Leases.Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID}})
		cancel()
		switch {
		case err == nil:
			r.report("Lease %s/%s: deleted", l.Namespace, l.Name)
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("lease %s/%s: %w", l.Namespace, l.Name, err))
		}
	}
	return errors.Join(errs...)
}
