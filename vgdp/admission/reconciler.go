package admission

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// Reconciler issues and revokes tickets as vgdp.Decide says, and renews the Gates.
type Reconciler struct {
	Dynamic dynamic.Interface
	Core    corev1client.CoreV1Interface
	Leases  coordinationv1client.LeasesGetter
	Classes storagev1client.StorageClassesGetter
	// Of are the Veleros; none: each namespace with a node-agent and an object of
	// Velero's.
	Of []Velero
	// Abilities of the installed Velero; read in each round.
	Abilities func(context.Context) abilities.Velero
	// Settings in force; read in each round.
	Settings func() Settings
	// Grace is how long a Plimsoll agent's report counts without a heartbeat.
	Grace  func() time.Duration
	Events reconcile.Events
	// Wanted is what is wanted of a Backup of a Velero, by their names; nil: nothing. It is
	// called for each load in each round, and must answer at once.
	Wanted func(velero, backup string) vgdp.Wanted
	// JobWorks tells whether the CronJob plimsoll-release-hidden releases hidden loads; nil:
	// it does not.
	JobWorks func() bool
	Log      *slog.Logger

	loop     reconcile.Loop[[]Report]
	counters counters.Group[Counts]
	clock    clock
	forecast forecast

	// Owned by Run's goroutine.
	wake       store.Signal
	publisher  publisher
	cluster    cluster
	veleros    map[string]*velero // by namespace
	proofs     proofs
	targets    targets
	diagnosed  map[types.UID]diagnosed // loads, by UID
	heldSince  map[types.UID]time.Time // loads, by UID: when pressure first held each, written or not
	refused    reconcile.Refusals      // loads and BackupRepositories
	noteBucket flowcontrol.RateLimiter
	notesFor   int
}

// loadKey names a load of any kind.
type loadKey struct {
	kind            vgdp.Kind
	namespace, name string
}

func backups() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backups"}
}

func (r *Reconciler) gates(namespace string) dynamic.ResourceInterface {
	return r.Dynamic.Resource(gate.Resource()).Namespace(namespace)
}

// The pauses between two rounds: at least the first, which debounces events, and
// at most the second, because pressure and Gates change with time.
const (
	roundDebounce = 20 * time.Millisecond
	roundInterval = time.Second
)

// Run reconciles until ctx is done. While it is disabled, and to Veleros that the
// configuration does not name, nothing is written, except to release loads that an earlier
// controller holds.
func (r *Reconciler) Run(ctx context.Context) error {
	r.reset()
	watching, asked := false, false
	defer r.forecast.forget()
	r.loop.Run(ctx, r.wake, func(ctx context.Context) reconcile.Pause {
		enabled := r.Settings().Enabled
		if !asked {
			asked = r.findHeld(ctx)
		}
		if !watching && (enabled || len(r.veleros) > 0) {
			watching = true
			r.watch(ctx)
		}
		begun := time.Now()
		if watching {
			r.reconcile(ctx)
		}
		// Pause as long as the round took: at most half of the time is spent in rounds.
		shortest := max(roundDebounce, time.Since(begun))
		return reconcile.Pause{Shortest: shortest, Longest: shortest + roundInterval}
	})
	return nil
}

// reset resets the state of an earlier term.
func (r *Reconciler) reset() {
	r.wake, r.veleros = store.NewSignal(), map[string]*velero{}
	r.publisher = publisher{log: r.Log, events: r.Events, counters: &r.counters, clock: &r.clock, failed: map[string]string{}, frequencyFailed: map[string]string{}}
	r.cluster = newCluster(r.wake)
	r.proofs = proofs{dynamic: r.Dynamic, log: r.Log, asked: map[string]time.Time{}}
	r.targets = newTargets(r.Core, r.Classes, r.Log)
	r.notesFor, r.diagnosed, r.heldSince, r.refused = 0, map[types.UID]diagnosed{}, map[types.UID]time.Time{}, reconcile.Refusals{}
	r.forecast.forget()
}

// watch starts the watches of the cluster, which run until ctx is done.
func (r *Reconciler) watch(ctx context.Context) {
	namespace := corev1.NamespaceAll // of node-agents
	if len(r.Of) == 1 {
		namespace = r.Of[0].Namespace
	}
	r.loop.Watch(func() { store.Run(ctx, r.cluster.nodes, r.Core.Nodes(), "") })
	r.loop.Watch(func() { store.Run(ctx, r.cluster.leases, r.Leases.Leases(lease.Namespace), "") })
	r.loop.Watch(func() { store.Run(ctx, r.cluster.agents, r.Core.Pods(namespace), roleAgent) })
}

// reconcile is one round: observe, decide, write.
func (r *Reconciler) reconcile(ctx context.Context) {
	r.refused.Begin(time.Now())
	o, complete := r.observe(ctx, r.Settings())
	if !complete {
		return
	}
	p, err := decide(o)
	r.recordHeld(&p.Decision)
	if err != nil {
		r.Log.Error("failed to encode changes of data mover loads; these are not written", "error", err)
	}
	r.write(ctx, o, p)
}

// Reports on each Velero, sorted; nil before the first round, and where another
// replica is the leader.
func (r *Reconciler) Reports() []Report { return r.loop.Report() }

// Decided tells whether this replica, as the leader, has decided about all there is.
func (r *Reconciler) Decided() bool { return r.loop.Published() }

// Uploads are the data mover loads of a Velero for a forecast, some seconds old; nil: they
// are not known, or another replica is the leader. It answers at once, and is to be asked
// once a minute or more often: else none are kept.
func (r *Reconciler) Uploads(velero string) *uploads.State { return r.forecast.of(velero) }

// Counts of writes, conflicts and waits.
func (r *Reconciler) Counts() Counts { return r.counters.Counts() }

// Preview is the current decision about one Velero.
type Preview struct {
	Input    vgdp.Input
	Decision vgdp.Decision
	Report   Report
	// All loads, ended ones included.
	All []*Object
	// Gate as it is; nil: it does not exist, and nothing is held.
	Gate *gate.Gate
}

// Preview computes what a leader would decide now about the Velero of a namespace. It lists
// what it needs and writes nothing.
func (r *Reconciler) Preview(ctx context.Context, namespace string) (*Preview, error) {
	r.reset()
	v := newVelero(r, r.configured(namespace))
	r.veleros[namespace] = v
	if err := r.fill(ctx, v); err != nil {
		return nil, err
	}
	if err := v.keeper.read(ctx); err != nil {
		return nil, err
	}
	v.watching = true
	if main := v.keeper.main; main != nil {
		v.keeper.epoch, v.desired.limited = main.Spec.Epoch, main.Spec.Limited
	}
	v.config.read(ctx, r.Core.ConfigMaps(namespace), v.Velero, r.cluster.agents.List(), time.Now())
	s := r.Settings()
	s.Enabled = true // as if admission were enabled
	if r.Wanted == nil {
		// What the controller wrote counts.
		r.Wanted = func(string, string) vgdp.Wanted { return vgdp.Wanted{Unknown: true} }
	}
	r.observeVersion(ctx)
	r.targets.unbounded = true
	a := &Preview{Gate: v.keeper.main}
	a.Input, _ = r.input(ctx, s)
	a.Decision = vgdp.Decide(a.Input)
	a.Report = reports(&a.Input, &a.Decision, r.veleros, nil)[0]
	for _, s := range v.loads {
		a.All = append(a.All, s.List()...)
	}
	return a, nil
}

// fill lists once what the watches would.
func (r *Reconciler) fill(ctx context.Context, v *velero) error {
	if err := v.fill(ctx); err != nil {
		return err
	}
	if err := store.Fill(ctx, r.cluster.agents, r.Core.Pods(v.Namespace), roleAgent); err != nil {
		return err
	}
	if err := store.Fill(ctx, r.cluster.leases, r.Leases.Leases(lease.Namespace), ""); err != nil {
		return err
	}
	return store.Fill(ctx, r.cluster.nodes, r.Core.Nodes(), "")
}

// IsVelero tells whether a namespace is that of a Velero: it has a Backup or a data mover
// load. It may be called from any goroutine.
func (r *Reconciler) IsVelero(ctx context.Context, namespace string) (bool, error) {
	return (&proofs{dynamic: r.Dynamic}).hasObjects(ctx, namespace)
}
