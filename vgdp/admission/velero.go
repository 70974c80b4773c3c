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
	keeper keeper
	config *configuration
	wish   wish // the desired Gates, as last decided
	known  bool // the Gates were read
	// open is why its gate holds nothing although it should, by the last self-test.
	open  string
	tried time.Time
	// heals: a hidden load would be released by a write once the Gate does not hold
	// it, by the last self-test.
	heals     bool
	healTried time.Time

	loads   map[vgdp.Kind]*shelf[*Object]
	backups *shelf[*parent]
	movers  *shelf[*corev1.Pod]
	runs    bool // its watches are running

	mu       sync.Mutex // guards accepted
	accepted []*Object  // since the last round
}

func (r *Reconciler) newVelero(of Velero) *velero {
	v := &velero{
		Velero: of, config: newConfiguration(), loads: map[vgdp.Kind]*shelf[*Object]{},
		keeper: keeper{gates: r.gates(of.Namespace), lease: r.Settings().LeaseDuration, clock: &r.clock},
	}
	for _, kind := range Kinds() {
		v.loads[kind] = newShelf(string(kind)+"s of "+of.Namespace, r.bell, trimLoad(kind), v.renewLoad(&r.clock))
	}
	v.backups = newShelf("backups of "+of.Namespace, r.bell, trimBackup, renewBackup)
	v.movers = newShelf("movers of "+of.Namespace, r.bell, trimMover, nil)
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
		return nil, strange(o)
	}
}

// renewLoad: the progress of a running load triggers no round.
func (v *velero) renewLoad(c *clock) func(was, is *Object) bool {
	return func(was, is *Object) bool {
		now := c.now()
		remember(was, is, now)
		if isNew(&was.Load) && is.Load.Phase == vgdp.Accepted {
			v.mu.Lock()
			v.accepted = append(v.accepted, is)
			v.mu.Unlock()
		}
		return !(was.Load.Phase == vgdp.InProgress && is.Load.Phase == vgdp.InProgress && was.Load.Cancel == is.Load.Cancel)
	}
}

// whoAccepted returns the loads accepted since the last round.
func (v *velero) whoAccepted() []*Object {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.accepted
	v.accepted = nil
	return list
}

// ready tells whether its initial lists are complete, all made after its Gates
// were read.
func (v *velero) ready() bool {
	if !v.runs || !v.backups.full.Load() || !v.movers.full.Load() {
		return false
	}
	for _, s := range v.loads {
		if !s.full.Load() {
			return false
		}
	}
	return true
}

// prepare does what a decision needs: it reads and renews the Gates, starts the watches
// once no tickets of another leader can be used any more, and polls the configuration.
func (r *Reconciler) prepare(ctx context.Context, v *velero) error {
	if !v.known {
		if err := r.takeOver(ctx, v); err != nil {
			return err
		}
	}
	if err := r.keep(ctx, v); err != nil {
		return err
	}
	if v.config.read(ctx, r.Core.ConfigMaps(v.Namespace), r.configMapOf(v), time.Now()) {
		r.fleet = nil
	}
	if !v.runs && !r.clock.now().Before(v.keeper.from) {
		v.runs = true
		r.fill(ctx, v)
	}
	return nil
}

// takeOver adopts the Gates of an earlier leader: what is held stays held, under a new
// epoch, if admission is enabled.
func (r *Reconciler) takeOver(ctx context.Context, v *velero) error {
	k := &v.keeper
	if err := k.read(ctx); err != nil {
		return err
	}
	v.known = true
	now := r.clock.now()
	switch {
	case k.epoch > 0 && k.main != nil && k.main.Spec.Epoch == k.epoch: // changed by another client, but not by another leader
	case k.held(now) && r.Settings().Enabled:
		v.wish = wish{limited: true}
		if err := k.claim(ctx, v.wish, 0); err != nil {
			v.known = false
			return err
		}
		r.Log.Info("found data mover loads held by the previous leader; issuing no tickets for one lease duration", "velero", v.Namespace, "epoch", k.epoch, "until", k.from.UTC().Format(time.RFC3339))
	default:
		k.epoch, k.from = 0, now
	}
	return nil
}

// keep writes the Gates as desired.
func (r *Reconciler) keep(ctx context.Context, v *velero) error {
	err := v.keeper.keep(ctx, v.wish, v.highest())
	if err == nil {
		err = v.keeper.hold(ctx, v.wish)
	}
	if err != nil {
		v.known = false // the Gates must be read anew
	}
	return err
}

// highest is the highest epoch of all tickets.
func (v *velero) highest() (epoch int64) {
	if v.keeper.epoch > 0 {
		return v.keeper.epoch
	}
	for _, s := range v.loads {
		for _, o := range s.all() {
			for _, t := range []*vgdp.Ticket{o.Load.Ticket, o.Load.Started} {
				if t != nil {
					epoch = max(epoch, t.Epoch)
				}
			}
		}
	}
	return epoch
}

// fill runs its watches until ctx is done.
func (r *Reconciler) fill(ctx context.Context, v *velero) {
	for kind, s := range v.loads {
		r.watches.Go(func() { store.Run(ctx, s.name, s, r.Dynamic.Resource(Resource(kind)).Namespace(v.Namespace), "") })
	}
	r.watches.Go(func() {
		store.Run(ctx, v.backups.name, v.backups, r.Dynamic.Resource(backups()).Namespace(v.Namespace), "")
	})
	r.watches.Go(func() { store.Run(ctx, v.movers.name, v.movers, r.Core.Pods(v.Namespace), roleOther) })
}

// configMapOf is the name of its node-agents' ConfigMap: as configured, else that
// of the node-agent that started last.
func (r *Reconciler) configMapOf(v *velero) (name string) {
	if v.ConfigMap != "" {
		return v.ConfigMap
	}
	var newest time.Time
	for _, a := range r.agents.all() {
		if a.Namespace == v.Namespace && (name == "" || a.Started.After(newest)) && a.ConfigMap != "" {
			name, newest = a.ConfigMap, a.Started
		}
	}
	return name
}
