package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// clock estimates the API server's clock from its responses, with a resolution of a
// second: the policies compare Gates with it.
type clock struct{ ahead atomic.Int64 }

// now is without a reading of the monotonic clock: where this machine's clock is set, ahead
// follows, and both together are compared.
func (c *clock) now() time.Time { return time.Now().Round(0).Add(time.Duration(c.ahead.Load())) }

// set corrects the clock by a response that was stamped at a time, between two local
// moments.
func (c *clock) set(stamp, asked, answered time.Time) {
	local := asked.Add(answered.Sub(asked) / 2)
	ahead := stamp.Add(time.Second / 2).Sub(local)
	if ahead.Abs() < time.Second { // within the resolution of a second
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
}

// desiredGates is the desired content of a namespace's Gates.
type desiredGates struct {
	limited, steer bool
	holds          map[string]time.Time
	away           []string // nodes that get no new pod of a maintenance
}

// gateState is what a Gate holds, as last read or written and desired.
type gateState struct {
	epoch   int64 // 0: not claimed
	limited bool
	main    *gate.Gate // nil: it does not exist
}

// holdsUntil is until when the Gate holds a load at most.
func (g gateState) holdsUntil(l *vgdp.Load) time.Time {
	if g.main == nil {
		return l.Created
	}
	return g.main.Spec.HoldsUntil(l.Created, l.Note.PostponedUntil)
}

// fresh tells whether the Gate, as last read or written, holds loads.
func (g gateState) fresh(now time.Time) bool { return g.main != nil && g.main.Spec.Fresh(now) }

// needsTicket tells whether the policies require a ticket of a load.
func (g gateState) needsTicket(l *vgdp.Load, now time.Time) bool {
	return g.epoch > 0 && g.limited && l.Holdable() && now.Before(g.holdsUntil(l))
}

// keeper writes the Gates of one namespace. None exists until something is limited or a
// node gets no maintenance, and one that limits nothing is not renewed.
//
// Main is written with optimistic concurrency: of two controllers the later one
// gets the higher epoch, and the write of the earlier one conflicts, by which it
// loses its epoch.
type keeper struct {
	gates dynamic.ResourceInterface
	lease time.Duration
	clock *clock

	main, holds *gate.Gate // as last read or written; nil: it does not exist
	epoch       int64      // of our tickets; 0: not claimed
	ticketsFrom time.Time  // tickets may be issued from then on
	progress    time.Time  // when this leader last saw a load on its way

	away        []string  // nodes, as last written by this leader
	awayWritten time.Time // when that was
}

// read reads both Gates; on failure the last ones stay in use.
func (k *keeper) read(ctx context.Context) error {
	main, err := k.get(ctx, gate.Main)
	if err != nil {
		return err
	}
	holds, err := k.get(ctx, gate.Holds)
	if err != nil {
		return err
	}
	k.main, k.holds = main, holds
	return nil
}

func (k *keeper) get(ctx context.Context, name string) (*gate.Gate, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	u, err := k.gates.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("gate %s: %w", name, err)
	}
	return gateOf(u)
}

func gateOf(u *unstructured.Unstructured) (*gate.Gate, error) {
	g := &gate.Gate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, g); err != nil {
		return nil, fmt.Errorf("gate %s: %w", u.GetName(), err)
	}
	return g, nil
}

// stored is what the Gates, as last read, limit: their start holds and nodes without
// maintenance until a lease duration from now.
func (k *keeper) stored(now time.Time) desiredGates {
	w := desiredGates{limited: true, holds: map[string]time.Time{}}
	if k.holds == nil {
		return w
	}
	w.steer = k.holds.Spec.Steer
	for node := range k.holds.Spec.Holds {
		w.holds[node] = now.Add(k.lease)
	}
	w.away = slices.Sorted(maps.Keys(k.holds.Spec.Maintenance))
	return w
}

// held tells whether the Gate, as last read, holds loads.
func (k *keeper) held(now time.Time) bool { return k.main != nil && k.main.Spec.Fresh(now) }

// claim takes an epoch above that of all tickets. If the Gate holds loads already,
// no tickets are issued for one lease duration: after that every API server has
// seen the new epoch, or finds the Gate stale and lets all pass.
func (k *keeper) claim(ctx context.Context, w desiredGates, above int64) error {
	held, epoch := k.held(k.clock.now()), above
	if k.main != nil {
		epoch = max(epoch, k.main.Spec.Epoch)
	}
	spec := gate.Spec{Epoch: epoch + 1, Limited: w.limited}
	if err := k.write(ctx, spec); err != nil {
		return err
	}
	k.epoch, k.ticketsFrom = spec.Epoch, k.clock.now() // as the answer has set it
	if held {
		k.ticketsFrom = k.ticketsFrom.Add(k.lease)
	}
	return nil
}

// renew writes main as desired, and renews it, also where it was renewed in the future,
// with a clock that was wrong, or for another lease duration.
func (k *keeper) renew(ctx context.Context, w desiredGates, above int64) error {
	switch {
	case !w.limited && (k.main == nil || !k.main.Spec.Limited):
		return nil
	case w.limited && k.epoch == 0:
		return k.claim(ctx, w, above)
	case !w.limited:
		return k.write(ctx, gate.Spec{Epoch: k.main.Spec.Epoch})
	case k.main.Spec.Limited && k.main.Spec.LeaseDurationSeconds == k.leaseSeconds() && k.clock.now().Sub(k.main.Spec.RenewTime.Time).Abs() < k.lease/4:
		return nil
	}
	return k.write(ctx, gate.Spec{Epoch: k.epoch, Limited: true})
}

func (k *keeper) leaseSeconds() int32 { return int32(k.lease / time.Second) }

// write writes main. After a conflict with another writer the epoch is lost.
func (k *keeper) write(ctx context.Context, spec gate.Spec) error {
	fields := map[string]any{"leaseDurationSeconds": k.leaseSeconds(), "epoch": spec.Epoch, "limited": spec.Limited}
	if !k.progress.IsZero() {
		fields["progressTime"] = metav1.NewMicroTime(k.progress)
	}
	u, err := k.putRenewed(ctx, fields)
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			k.epoch = 0
		}
		return err
	}
	k.main, err = gateOf(u)
	return err
}

// setClock sets the clock by a dry run of a renewal: whether main is fresh must not depend
// on this machine's clock. Where there is no main it stays.
func (k *keeper) setClock(ctx context.Context) error {
	if k.main == nil {
		return nil
	}
	_, err := k.putRenewed(ctx, map[string]any{}, metav1.DryRunAll)
	return err
}

// putRenewed writes main with a new renewTime, and sets the clock by the answer's stamp.
func (k *keeper) putRenewed(ctx context.Context, fields map[string]any, dryRun ...string) (*unstructured.Unstructured, error) {
	fields["renewTime"] = metav1.NewMicroTime(k.clock.now())
	asked := time.Now()
	u, err := k.put(ctx, gate.Main, k.main, fields, dryRun...)
	if err != nil {
		return nil, err
	}
	if stamp := stampOf(u); !stamp.IsZero() {
		k.clock.set(stamp, asked, time.Now())
	}
	return u, nil
}

// stampOf is the time of our own last write, by the API server's clock.
func stampOf(u *unstructured.Unstructured) time.Time {
	var last time.Time
	for _, f := range u.GetManagedFields() {
		if f.Manager == reconcile.FieldManager && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// writeHolds writes the start holds that differ, and the nodes that get no maintenance. A hold expires with the lease duration, like
// the Gate. The object exists wherever loads need tickets, also without a hold: for a
// missing one an API server asks etcd at each write of a load (k8s.io/apiserver 0.37.1,
// policy_dispatcher.go).
func (k *keeper) writeHolds(ctx context.Context, w desiredGates) error {
	changes, away := k.changes(w), k.awayChanges(w.away)
	same := k.holds != nil && k.holds.Spec.Epoch == k.epoch && k.holds.Spec.Steer == w.steer
	missing := w.limited && k.holds == nil
	if len(changes) == 0 && len(away) == 0 && (len(w.holds) == 0 || same) && !missing {
		return nil
	}
	spec := map[string]any{"epoch": max(1, k.epoch), "steer": w.steer, "holds": changes}
	if len(away) > 0 { // null would remove all
		spec["maintenance"] = away
	}
	u, err := k.put(ctx, gate.Holds, k.holds, spec)
	if err != nil {
		return err
	}
	if len(away) > 0 {
		k.away, k.awayWritten = slices.Clone(w.away), k.clock.now()
	}
	k.holds, err = gateOf(u)
	return err
}

// awayChanges are the nodes to set until a lease duration from now, and nil for those to
// remove; none where nothing is to be written. What was written is not read back: a
// CustomResourceDefinition of an older Plimsoll drops it.
func (k *keeper) awayChanges(nodes []string) map[string]any {
	now := k.clock.now()
	if slices.Equal(nodes, k.away) && (len(nodes) == 0 || now.Sub(k.awayWritten) < k.lease/2) {
		return nil
	}
	changes := map[string]any{}
	for _, node := range k.away {
		changes[node] = nil
	}
	if k.holds != nil {
		for node := range k.holds.Spec.Maintenance {
			changes[node] = nil
		}
	}
	for _, node := range nodes {
		changes[node] = metav1.NewTime(now.Add(k.lease).Truncate(time.Second))
	}
	return changes
}

// changes are the start holds to set, and nil for those to remove.
func (k *keeper) changes(w desiredGates) map[string]any {
	was := map[string]metav1.Time{}
	if k.holds != nil {
		was = k.holds.Spec.Holds
	}
	changes := map[string]any{}
	for node, until := range w.holds {
		if t := metav1.NewTime(until.Truncate(time.Second)); !t.Equal(new(was[node])) {
			changes[node] = t
		}
	}
	for node := range was {
		if _, still := w.holds[node]; !still {
			changes[node] = nil
		}
	}
	return changes
}

// heldInto adds the Gate's start holds.
func (k *keeper) heldInto(into map[string]time.Time) {
	if k.holds == nil {
		return
	}
	for node, until := range k.holds.Spec.Holds {
		if until.After(into[node]) {
			into[node] = until.Time
		}
	}
}

// put writes some fields of a Gate by a merge patch with its version, or creates it.
func (k *keeper) put(ctx context.Context, name string, was *gate.Gate, spec map[string]any, dryRun ...string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	meta := map[string]any{"name": name}
	if was != nil {
		meta["resourceVersion"] = was.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"apiVersion": names.APIVersion, "kind": "Gate", "metadata": meta, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("gate %s: %w", name, err)
	}
	var u *unstructured.Unstructured
	if was != nil {
		u, err = k.gates.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.FieldManager, DryRun: dryRun})
	} else {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(body); err != nil {
			return nil, fmt.Errorf("gate %s: %w", name, err)
		}
		u, err = k.gates.Create(ctx, object, metav1.CreateOptions{FieldManager: reconcile.FieldManager, DryRun: dryRun})
	}
	if err != nil {
		return nil, fmt.Errorf("gate %s: %w", name, err)
	}
	return u, nil
}
