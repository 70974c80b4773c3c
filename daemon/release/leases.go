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

// heldLease is a Lease whose holder may be alive.
type heldLease struct {
	renewed *metav1.MicroTime
	until   time.Time // a live holder will have renewed it by then
}

// longestRenewal bounds the time between two renewals: a Lease says any duration.
const longestRenewal = 5 * time.Minute

// heldLeases are the Leases with a holder, also those that have expired by this machine's
// clock: a live holder whose clock is behind it renews its Lease all the same, at least three
// times in its duration.
func heldLeases(leases []coordinationv1.Lease, now time.Time) map[types.UID]heldLease {
	beats := map[types.UID]heldLease{}
	for i := range leases {
		l := &leases[i]
		if l.Spec.LeaseDurationSeconds == nil || holder(l) == "" {
			continue
		}
		lasts := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		beats[l.UID] = heldLease{l.Spec.RenewTime, now.Add(min(lasts/3, longestRenewal))}
	}
	return beats
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// checkHolders runs do, whose error is done, and reports holders that were alive meanwhile,
// because they bring back what do removed, or why that is not known. A holder that has just
// stopped leaves its Lease, so it waits until each Lease was renewed or should have been.
func (r *Release) checkHolders(ctx context.Context, look leaseReader, do func() error) (alive, done error) {
	leases, err := look(ctx)
	if err != nil {
		return err, do()
	}
	beats := heldLeases(leases, time.Now())
	done = do()
	var errs []error
	for len(beats) > 0 && err == nil {
		if leases, err = look(ctx); err != nil {
			break
		}
		errs = append(errs, renewedSince(beats, leases, time.Now())...)
		if len(beats) > 0 {
			wait(ctx, pause)
			err = ctx.Err()
		}
	}
	return errors.Join(append(errs, err)...), done
}

// alive reports a holder that is alive, or why that is not known, before anything is removed.
func (r *Release) alive(ctx context.Context, look leaseReader) error {
	alive, _ := r.checkHolders(ctx, look, func() error { return nil })
	return alive
}

// renewedSince reports the Leases that were renewed. It leaves in beats those still
// undecided.
func renewedSince(beats map[types.UID]heldLease, leases []coordinationv1.Lease, now time.Time) (errs []error) {
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

// removeUnless removes Leases, unless their holders may be alive: the next release knows
// those by them.
func (r *Release) removeUnless(ctx context.Context, alive error, look leaseReader) (err error) {
	if alive == nil {
		err = r.remove(ctx, look)
	}
	return err
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
