package admission

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Reconciler issues and revokes tickets as vgdp.Decide says, and renews the Gates.
type Reconciler struct {
	Dynamic dynamic.Interface
	Core    corev1client.CoreV1Interface
	Leases  coordinationv1client.LeasesGetter
	// Of are the Veleros; none: each namespace with a node-agent and an object of
	// Velero's.
	Of []Velero
	// Settings in force; read in each round.
	Settings func() Settings
	// Grace is how long a Plimsoll agent's report counts without a heartbeat.
	Grace  func() time.Duration
	Events reconcile.Events
	Log    *slog.Logger

	loop     reconcile.Loop[[]Report]
	counters counters.Group[Counts]
	clock    clock

	// Owned by Run's goroutine.
	wake            store.Signal
	agents          *store.Store[*agentPod]
	leases          *store.Store[*nodeReport]
	nodes           *store.Store[*corev1.Node]
	veleros         map[string]*velero // by namespace
	proofs          proofs
	targets         targets
	cachedTopology  *vgdp.Topology
	topologyVersion [2]uint64 // the versions of nodes and agents that fleet is built from
	noteBucket      flowcontrol.RateLimiter
	notesFor        int
	// diagnosed loads, by UID.
	diagnosed map[types.UID]diagnosed
	failed    map[string]string // the last error, by Velero
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

// Run reconciles until ctx is done. While it is disabled nothing is written, except to
// release loads that an earlier controller holds.
func (r *Reconciler) Run(ctx context.Context) error {
	r.reset()
	watching, asked := false, false
	r.loop.Run(ctx, r.wake, func(ctx context.Context) reconcile.Pause {
		enabled := r.Settings().Enabled
		if !asked && !watching && !enabled {
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
	r.wake, r.veleros, r.failed = store.NewSignal(), map[string]*velero{}, map[string]string{}
	r.agents = store.New("node-agents", r.wake, trimAgent, store.OnUpdate(agentChanged))
	r.leases = store.New("leases", r.wake, trimReport, store.OnUpdate(reportChanged))
	r.nodes = store.New("nodes", r.wake, trimNode, store.OnUpdate(nodeChanged))
	r.targets = targets{pods: r.Core, claims: r.Core, known: map[types.UID]target{}}
	r.proofs = proofs{asked: map[string]time.Time{}}
	r.cachedTopology, r.notesFor, r.diagnosed = nil, 0, map[types.UID]diagnosed{}
}

func nodeChanged(was, is *corev1.Node) bool {
	return !equality.Semantic.DeepEqual(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Spec, is.Spec)
}

func (r *Reconciler) watch(ctx context.Context) {
	r.loop.Watch(func() { store.Run(ctx, r.nodes, r.Core.Nodes(), "") })
	r.loop.Watch(func() { store.Run(ctx, r.leases, r.Leases.Leases(lease.Namespace), "") })
	r.loop.Watch(func() { store.Run(ctx, r.agents, r.Core.Pods(r.namespace()), roleAgent) })
}

// namespace in which node-agents are watched: that of the only Velero, or all.
func (r *Reconciler) namespace() string {
	if len(r.Of) == 1 {
		return r.Of[0].Namespace
	}
	return corev1.NamespaceAll
}

// reconcile is one round: observe, decide, write the Gates, then the loads.
func (r *Reconciler) reconcile(ctx context.Context) {
	if !r.agents.Synced() || !r.leases.Synced() || !r.nodes.Synced() {
		return
	}
	s := r.Settings()
	r.discover(ctx, s)
	for namespace, v := range r.veleros {
		r.logFailure(namespace, r.prepare(ctx, v))
	}
	if ctx.Err() != nil || !r.caughtUp() {
		return
	}
	in, objects := r.input(ctx, s)
	d := vgdp.Decide(in)
	if r.syncGates(ctx, &in, &d) {
		r.wake.Set() // tickets of a new epoch
		return
	}
	r.countBypassed()
	r.selfTestGates(ctx, &in, objects)
	list, err := edits(&d, r.hide(ctx, s.QuietAbove, &in, &d, objects), in.Time)
	if err != nil {
		r.Log.Error("failed to encode changes; nothing written", "error", err)
		return
	}
	list = append(list, r.expiredHides(in.Time, &in)...)
	list = append(list, r.diagnose(ctx, &in, objects, s.DiagnoseAfter)...)
	r.report(&in, &d)
	r.write(ctx, list, objects)
}

// configured is the configuration of a namespace's Velero.
func (r *Reconciler) configured(namespace string) Velero {
	for _, o := range r.Of {
		if o.Namespace == namespace {
			return o
		}
	}
	return Velero{Namespace: namespace}
}

// discover adds new Veleros: those that are configured, or have a node-agent and are
// proved.
func (r *Reconciler) discover(ctx context.Context, s Settings) {
	if !s.Enabled {
		return
	}
	r.proofs.left = proofsPerRound
	of := r.Of
	if len(of) == 0 {
		namespaces := map[string]bool{}
		for _, a := range r.agents.List() {
			namespaces[a.Namespace] = true
		}
		for namespace := range namespaces {
			if r.proved(ctx, namespace) {
				of = append(of, Velero{Namespace: namespace})
			}
		}
	}
	for _, o := range of {
		if r.veleros[o.Namespace] == nil {
			r.veleros[o.Namespace], r.cachedTopology = r.newVelero(o), nil
			r.Log.Info("managing data mover loads of velero", "velero", o.Namespace)
		}
	}
}

// findHeld adds the Veleros whose Gates limit something, so that their loads are
// released; false: it could not be determined yet.
func (r *Reconciler) findHeld(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	list, err := r.gates(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the kind is not installed
		return true
	}
	if err != nil {
		r.logFailure(metav1.NamespaceAll, err)
		return false
	}
	r.logFailure(metav1.NamespaceAll, nil)
	for i := range list.Items {
		u := &list.Items[i]
		if namespace := u.GetNamespace(); u.GetName() == gate.Main && fields(u.Object).yes("spec", "limited") {
			r.veleros[namespace] = r.newVelero(r.configured(namespace))
			r.Log.Info("found held data mover loads while admission is disabled; releasing them", "velero", namespace)
		}
	}
	return true
}

// caughtUp tells whether the caches have all writes of the last round: before,
// decisions would be made twice.
func (r *Reconciler) caughtUp() bool {
	for _, v := range r.veleros {
		for _, s := range v.loads {
			if !s.CaughtUp() {
				return false
			}
		}
	}
	return true
}

// syncGates writes the Gates as decided. It is true when the epoch changed, so that the
// decision must be repeated.
func (r *Reconciler) syncGates(ctx context.Context, in *vgdp.Input, d *vgdp.Decision) (again bool) {
	for i := range in.Loads {
		if l := &in.Loads[i]; l.OnItsWay(in.Time) {
			r.veleros[l.Namespace].keeper.progress = in.Time
		}
	}
	for namespace, v := range r.veleros {
		if _, decided := in.Veleros[namespace]; !decided {
			continue
		}
		was := v.keeper.epoch
		v.desired = r.desiredFor(v, in, d)
		r.logFailure(namespace, r.writeGates(ctx, v))
		again = again || v.keeper.epoch != was
	}
	return again
}

// desiredFor is the desired content of a Velero's Gates.
func (r *Reconciler) desiredFor(v *velero, in *vgdp.Input, d *vgdp.Decision) desiredGates {
	w := desiredGates{limited: d.Limited[v.Namespace], holds: map[string]time.Time{}}
	if !w.limited {
		return w
	}
	for node, until := range d.Holds {
		if in.Topology.HasAgent(node, v.Namespace) {
			w.holds[node] = until
		}
	}
	w.steer = len(w.holds) > 0 && steerable(v, w.holds, in, d)
	return w
}

// steerable tells whether each load whose pod may be created now has a node without a
// start hold.
func steerable(v *velero, holds map[string]time.Time, in *vgdp.Input, d *vgdp.Decision) bool {
	stuck := func(l *vgdp.Load) bool {
		return l.Namespace == v.Namespace && l.Node == "" && !slices.ContainsFunc(in.Topology.ReachOf(l).Nodes, func(node string) bool {
			_, held := holds[node]
			return !held
		})
	}
	for i := range d.Admit {
		if stuck(d.Admit[i].Load) {
			return false
		}
	}
	for i := range in.Loads {
		if l := &in.Loads[i]; (l.Phase == vgdp.Accepted || isNew(l) && l.Ticket != nil) && stuck(l) {
			return false
		}
	}
	return true
}

// expiredHides are hidden loads that are too old for the policies to hold: they are
// released.
func (r *Reconciler) expiredHides(now time.Time, in *vgdp.Input) (list []edit) {
	for i := range in.Loads {
		l := &in.Loads[i]
		if l.Hidden && isNew(l) && !now.Before(r.veleros[l.Namespace].keeper.holdsUntil(l.Created)) {
			list = append(list, edit{load: l, kind: KindRelease, restoreMover: true, annotations: map[string]any{}})
		}
	}
	return list
}

// Reports on each Velero, sorted; nil before the first round, and where another
// replica is the leader.
func (r *Reconciler) Reports() []Report { return r.loop.Report() }

// Counts of writes, conflicts and waits.
func (r *Reconciler) Counts() Counts { return r.counters.Counts() }

// sortedVeleros by namespace.
func (r *Reconciler) sortedVeleros() []*velero {
	var list []*velero
	for _, namespace := range slices.Sorted(maps.Keys(r.veleros)) {
		list = append(list, r.veleros[namespace])
	}
	return list
}
