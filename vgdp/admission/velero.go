package admission

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// velero is one installation, from its discovery until the end of the term.
type velero struct {
	Velero
	keeper    keeper
	config    *configuration
	desired   desiredGates // the desired Gates, as last decided
	gatesRead bool         // the Gates were read
	// gateOpen is why its gate holds nothing although it should, by the last self-test.
	gateOpen string
	testedAt time.Time
	// releasable: a hidden load would be released by a write once the Gate does not hold
	// it, by the last self-test.
	releasable      bool
	releaseTestedAt time.Time

	loads    map[vgdp.Kind]*store.Store[*Object]
	backups  *store.Store[*parentBackup]
	movers   *store.Store[*corev1.Pod]
	watching bool // its watches are running

	mu       sync.Mutex // guards accepted
	accepted []*Object  // since the last round
}

func (r *Reconciler) newVelero(of Velero) *velero {
	v := &velero{
		Velero: of, config: newConfiguration(), loads: map[vgdp.Kind]*store.Store[*Object]{},
		keeper: keeper{gates: r.gates(of.Namespace), lease: r.Settings().LeaseDuration, clock: &r.clock},
	}
	for _, kind := range Kinds() {
		v.loads[kind] = store.New(string(kind)+"s of "+of.Namespace, r.wake, trimLoad(kind), store.OnUpdate(v.loadChanged(&r.clock)))
	}
	v.backups = store.New("backups of "+of.Namespace, r.wake, trimBackup, store.OnUpdate(backupChanged))
	v.movers = store.New("movers of "+of.Namespace, r.wake, trimMover, nil)
	return v
}

func trimLoad(kind vgdp.Kind) func(any) (*Object, error) {
	return func(o any) (*Object, error) {
		switch u := o.(type) {
		case *Object:
			return u, nil
		case *unstructured.Unstructured:
			return Read(kind, u), nil
		}
		return nil, store.ErrType(o)
	}
}

// loadChanged: the progress of a running load triggers no round.
func (v *velero) loadChanged(c *clock) func(was, is *Object) bool {
	return func(was, is *Object) bool {
		now := c.now()
		carryOver(was, is, now)
		if isNew(&was.Load) && is.Load.Phase == vgdp.Accepted {
			v.mu.Lock()
			v.accepted = append(v.accepted, is)
			v.mu.Unlock()
		}
		return !(was.Load.Phase == vgdp.InProgress && is.Load.Phase == vgdp.InProgress && was.Load.Cancel == is.Load.Cancel)
	}
}

// takeAccepted returns the loads accepted since the last round.
func (v *velero) takeAccepted() []*Object {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.accepted
	v.accepted = nil
	return list
}

// ready tells whether its initial lists are complete, all made after its Gates
// were read.
func (v *velero) ready() bool {
	if !v.watching || !v.backups.Synced() || !v.movers.Synced() {
		return false
	}
	for _, s := range v.loads {
		if !s.Synced() {
			return false
		}
	}
	return true
}

// prepare does what a decision needs: it reads and renews the Gates, starts the watches
// once no tickets of another leader can be used any more, and polls the configuration.
func (r *Reconciler) prepare(ctx context.Context, v *velero) error {
	if !v.gatesRead {
		if err := r.adopt(ctx, v); err != nil {
			return err
		}
	}
	if err := r.writeGates(ctx, v); err != nil {
		return err
	}
	if v.config.read(ctx, r.Core.ConfigMaps(v.Namespace), r.configMapOf(v), time.Now()) {
		r.cachedTopology = nil
	}
	if !v.watching && !r.clock.now().Before(v.keeper.ticketsFrom) {
		v.watching = true
		r.startWatches(ctx, v)
	}
	return nil
}

// adopt adopts the Gates of an earlier leader: what is held stays held, under a new
// epoch, if admission is enabled.
func (r *Reconciler) adopt(ctx context.Context, v *velero) error {
	k := &v.keeper
	if err := k.read(ctx); err != nil {
		return err
	}
	v.gatesRead = true
	now := r.clock.now()
	switch {
	case k.epoch > 0 && k.main != nil && k.main.Spec.Epoch == k.epoch: // changed by another client, but not by another leader
	case k.held(now) && r.Settings().Enabled:
		v.desired = desiredGates{limited: true}
		if err := k.claim(ctx, v.desired, 0); err != nil {
			v.gatesRead = false
			return err
		}
		r.Log.Info("found data mover loads held by the previous leader; issuing no tickets for one lease duration", "velero", v.Namespace, "epoch", k.epoch, "until", k.ticketsFrom.UTC().Format(time.RFC3339))
	default:
		k.epoch, k.ticketsFrom = 0, now
	}
	return nil
}

// writeGates writes the Gates as desired.
func (r *Reconciler) writeGates(ctx context.Context, v *velero) error {
	err := v.keeper.renew(ctx, v.desired, v.highest())
	if err == nil {
		err = v.keeper.writeHolds(ctx, v.desired)
	}
	if err != nil {
		v.gatesRead = false // the Gates must be read anew
	}
	return err
}

// highest is the highest epoch of all tickets.
func (v *velero) highest() (epoch int64) {
	if v.keeper.epoch > 0 {
		return v.keeper.epoch
	}
	for _, s := range v.loads {
		for _, o := range s.List() {
			for _, t := range []*vgdp.Ticket{o.Load.Ticket, o.Load.Started} {
				if t != nil {
					epoch = max(epoch, t.Epoch)
				}
			}
		}
	}
	return epoch
}

// startWatches runs its watches until ctx is done.
func (r *Reconciler) startWatches(ctx context.Context, v *velero) {
	for kind, s := range v.loads {
		r.loop.Watch(func() { store.Run(ctx, s, r.Dynamic.Resource(Resource(kind)).Namespace(v.Namespace), "") })
	}
	r.loop.Watch(func() {
		store.Run(ctx, v.backups, r.Dynamic.Resource(backups()).Namespace(v.Namespace), "")
	})
	r.loop.Watch(func() { store.Run(ctx, v.movers, r.Core.Pods(v.Namespace), roleOther) })
}

// configMapOf is the name of its node-agents' ConfigMap: as configured, else that
// of the node-agent that started last.
func (r *Reconciler) configMapOf(v *velero) (name string) {
	if v.ConfigMap != "" {
		return v.ConfigMap
	}
	var newest time.Time
	for _, a := range r.agents.List() {
		if a.Namespace == v.Namespace && (name == "" || a.Started.After(newest)) && a.ConfigMap != "" {
			name, newest = a.ConfigMap, a.Started
		}
	}
	return name
}
