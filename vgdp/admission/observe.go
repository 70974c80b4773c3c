package admission

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// observe reads all that a decision depends on; false: it is not complete yet, or is
// older than what was written. The Gates are renewed first, whatever else takes long.
func (r *Reconciler) observe(ctx context.Context, s Settings) (*observation, bool) {
	if !r.cluster.synced() {
		return nil, false
	}
	r.discover(ctx, s)
	for namespace, v := range r.veleros {
		changed, err := v.prepare(ctx, s, r.cluster.agents.List(), r.loop.Watch)
		if changed {
			r.cluster.forget()
		}
		r.publisher.logFailure(namespace, err)
	}
	if ctx.Err() != nil || !r.caughtUp() {
		return nil, false
	}
	examples := r.observeVersion(ctx)
	for namespace, v := range r.veleros {
		r.publisher.publishMovers(v, examples[namespace])
		r.publisher.logStartedAtOnce(v)
	}
	o := &observation{hideAbove: s.QuietAbove, gates: map[string]gateState{}, tests: map[string]lastTests{}}
	o.Input, o.objects = r.input(ctx, s)
	for namespace := range o.Veleros {
		v := r.veleros[namespace]
		o.gates[namespace], o.tests[namespace] = v.gate(), lastTests{accept: v.testedAt, release: v.releaseTestedAt, unreleased: v.unreleasedSince}
	}
	o.maintenances = maintainer{r}.maintenances(&o.Input, s)
	o.facts = r.readFacts(ctx, &o.Input, s.DiagnoseAfter)
	return o, true
}

// observeVersion finds out what each Velero can do, and which other data movers its loads
// have. It returns a load of each that Velero's node-agents serve, by namespace.
func (r *Reconciler) observeVersion(ctx context.Context) map[string]map[string]*Object {
	can := r.Abilities(ctx)
	for _, v := range r.veleros {
		v.kindsStarted(can.Accepts)
		if lax := v.lax(); lax != v.config.lax {
			v.config.lax = lax
			r.cluster.forget()
		}
	}
	accepted := acceptedByNodeAgent(r.cluster.topology(r.veleros))
	examples := map[string]map[string]*Object{}
	for namespace, v := range r.veleros {
		var all []*Object
		for _, f := range names.MoverKinds() {
			all = append(all, v.loads[f.Kind].List()...)
		}
		v.others, examples[namespace] = otherMovers(all, accepted)
	}
	return examples
}

// caughtUp tells whether the stores have all writes of the last round: before,
// decisions would be made twice.
func (r *Reconciler) caughtUp() bool {
	for _, v := range r.veleros {
		if !v.caughtUp() {
			return false
		}
	}
	return true
}

// readFacts reads the objects of loads that linger, a few in each round, until one call
// could have timed out: the Gates must be renewed in time.
func (r *Reconciler) readFacts(ctx context.Context, in *vgdp.Input, after time.Duration) map[string]*vgdp.Facts {
	facts := map[string]*vgdp.Facts{}
	if after <= 0 {
		return facts
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	for i := range in.Loads {
		l := &in.Loads[i]
		v, uid := r.veleros[l.Namespace], types.UID(l.UID)
		was := r.diagnosed[uid]
		if len(facts) == diagnosesPerRound || ctx.Err() != nil {
			break
		}
		if in.Time.Sub(was.at).Abs() < diagnoseInterval || !v.needsDiagnosis(l, in.Time, after) {
			continue
		}
		if l.Phase == vgdp.InProgress && in.Time.Sub(was.at) > 3*diagnoseInterval {
			r.diagnosed[uid] = diagnosed{at: in.Time} // a load that just ends looks the same for a moment
			continue
		}
		facts[l.UID] = v.facts(ctx, in, l)
	}
	return facts
}

// input builds the input of a decision, and returns the loads' objects by UID.
func (r *Reconciler) input(ctx context.Context, s Settings) (vgdp.Input, map[string]*Object) {
	now := r.clock.now()
	in := vgdp.Input{
		Time: now, Veleros: map[string]vgdp.Velero{}, Topology: r.cluster.topology(r.veleros),
		Holds: map[string]time.Time{}, HoldLifetime: s.LeaseDuration,
	}
	if s.Enabled {
		in.Pressure = r.cluster.pressures(time.Now(), now, r.Grace())
	}
	objects := map[string]*Object{}
	for namespace, v := range r.veleros {
		if !v.ready() || now.Before(v.keeper.ticketsFrom) {
			continue
		}
		known := vgdp.Velero{Epoch: v.keeper.epoch}
		if s.Enabled && !v.unnamed {
			known.PrepareLimit = vgdp.InForce(v.config.live.PrepareLimit(), v.PrepareQueueLength)
			known.Postponing = v.postponing(r.Wanted, now)
		}
		in.Veleros[namespace] = known
		v.keeper.heldInto(in.Holds)
		in.Loads = v.current(in.Loads, objects)
	}
	if s.Enabled && r.Wanted != nil {
		r.addWanted(in.Loads, objects)
	}
	for i := range in.Loads {
		in.Loads[i].HeldSince = r.heldSince[types.UID(in.Loads[i].UID)]
	}
	r.addTargets(ctx, in.Loads, objects, now)
	r.addRefused(ctx, in.Loads, objects, now)
	r.dropStale(objects)
	return in, objects
}

// addWanted adds what is wanted of the loads' Backups.
func (r *Reconciler) addWanted(loads []vgdp.Load, objects map[string]*Object) {
	for i := range loads {
		if l := &loads[i]; !l.Kind.Facts().Restores && !r.veleros[l.Namespace].unnamed {
			l.Wanted = r.Wanted(l.Namespace, objects[l.UID].Backup)
		}
	}
}

// addRefused adds which loads the API server does not change. A ticket whose write it did not
// answer counts as given until it is known that it was not: it takes its slot, and its place.
func (r *Reconciler) addRefused(ctx context.Context, loads []vgdp.Load, objects map[string]*Object, now time.Time) {
	if r.refused.None() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	for i := range loads {
		l, o := &loads[i], objects[loads[i].UID]
		r.refused.Settle(ctx, o.UID, o.ResourceVersion, o.Name, r.Dynamic.Resource(Resource(l.Kind)).Namespace(o.Namespace))
		l.Failed = r.refused.Times(o.UID, o.ResourceVersion)
		since, unknown := r.refused.Unknown(o.UID, o.ResourceVersion)
		given := &vgdp.Ticket{Node: l.Node, Epoch: r.veleros[l.Namespace].keeper.epoch, At: now.Add(-time.Since(since))}
		switch {
		case unknown && isNew(l):
			l.Ticket = given
		case unknown:
			l.Started = given
		case r.refused.Held(o.UID, o.ResourceVersion):
			l.Refused = "the API server does not change it: " + r.refused.Reason(o.UID, o.ResourceVersion)
		}
	}
}

// addTargets adds what the loads' targets say: whether each can be accepted now, and
// where. Those that are due are looked up first, of restores and of all others by turns: else
// many of one would leave no lookups for the other.
func (r *Reconciler) addTargets(ctx context.Context, loads []vgdp.Load, objects map[string]*Object, now time.Time) {
	r.targets.begin()
	var restores, others []*vgdp.Load
	for i := range loads {
		switch l := &loads[i]; {
		case !r.needsTarget(l, objects[l.UID]) || !r.targets.due(objects[l.UID], now):
		case l.Kind.Facts().Restores:
			restores = append(restores, l)
		default:
			others = append(others, l)
		}
	}
	for _, l := range alternate(restores, others, r.targets.first) {
		r.addTarget(ctx, objects[l.UID], l, now)
	}
	if len(restores)+len(others) > 0 && r.targets.more() {
		r.wake.Set()
	}
	for i := range loads {
		if l := &loads[i]; r.needsTarget(l, objects[l.UID]) {
			r.addTarget(ctx, objects[l.UID], l, now)
		}
	}
}

// alternate sorts both lists, and takes one of the first and one of the second by turns.
func alternate(first, second []*vgdp.Load, by func(a, b *vgdp.Load) int) []*vgdp.Load {
	slices.SortFunc(first, by)
	slices.SortFunc(second, by)
	all := make([]*vgdp.Load, 0, len(first)+len(second))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			all = append(all, first[i])
		}
		if i < len(second) {
			all = append(all, second[i])
		}
	}
	return all
}

// needsTarget tells whether a load's target is needed. An accepted load has it; what a
// hook says of the application counts until the load has ended, and where a load may run
// until it does.
func (r *Reconciler) needsTarget(l *vgdp.Load, o *Object) bool {
	if o.Target.Name == "" || !r.veleros[l.Namespace].desired.limited {
		return false
	}
	return isNew(l) || l.Kind == vgdp.PodVolumeBackup || hasPlace(l) && l.Phase == vgdp.Accepted && l.Node == ""
}

// hasPlace tells whether the scheduler chooses the node.
func hasPlace(l *vgdp.Load) bool { return l.Kind == vgdp.DataUpload || l.Kind == vgdp.DataDownload }

// addTarget adds what a load's target says.
func (r *Reconciler) addTarget(ctx context.Context, o *Object, l *vgdp.Load, now time.Time) {
	t := r.targets.of(ctx, o, now)
	l.Hooks = l.Hooks || t.hooks
	l.NotReady = t.notReady
	if l.Node == "" {
		l.Node = t.node
	}
	if !hasPlace(l) {
		return
	}
	place, read := r.place(ctx, r.veleros[l.Namespace], o, t, now)
	if l.Place = place; !read && l.NotReady == "" {
		l.NotReady = notLookedUp
	}
}

// place is where the pod of a DataUpload or DataDownload may run; false: a storage class
// that it depends on is not looked up yet.
func (r *Reconciler) place(ctx context.Context, v *velero, o *Object, t target, now time.Time) (vgdp.Place, bool) {
	m := mover{kind: o.Load.Kind, class: t.volume.class, volume: t.volume, windows: o.OS == "windows"}
	ready := true
	if m.kind == vgdp.DataUpload {
		m.class = o.Class
		m.source, ready = r.targets.class(ctx, o.Class, now)
		if to := v.config.live.BackupPVC[o.Class].StorageClass; to != "" {
			m.class = to
		}
		m.windows = r.cluster.windows(t.volume, m.source)
	}
	var read bool
	m.copied, read = r.targets.class(ctx, m.class, now)
	return v.config.place(&m, r.cluster.tolerations[agentsOf{v.Namespace, m.windows}], [2]uint64{r.cluster.builds, r.targets.classes.changes}), ready && read
}

// dropStale drops cached facts of loads that do not exist any more.
func (r *Reconciler) dropStale(objects map[string]*Object) {
	for uid := range r.targets.known {
		if objects[string(uid)] == nil {
			delete(r.targets.known, uid)
		}
	}
	for uid := range r.diagnosed {
		if objects[string(uid)] == nil {
			delete(r.diagnosed, uid)
		}
	}
	for uid := range r.heldSince {
		if objects[string(uid)] == nil {
			delete(r.heldSince, uid)
		}
	}
}

// recordHeld remembers since when pressure holds loads: the rate limit of notes must not
// lengthen it.
func (r *Reconciler) recordHeld(d *vgdp.Decision) {
	for i := range d.Waiting {
		if w := &d.Waiting[i]; w.Held() {
			r.heldSince[types.UID(w.UID)] = w.Wait.Since
		}
	}
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
		for _, a := range r.cluster.agents.List() {
			namespaces[a.Namespace] = true
		}
		for namespace := range namespaces {
			if r.veleros[namespace] != nil || r.proofs.proved(ctx, namespace) {
				of = append(of, Velero{Namespace: namespace})
			}
		}
	}
	for _, o := range of {
		if r.veleros[o.Namespace] == nil {
			r.veleros[o.Namespace] = newVelero(r, o)
			r.cluster.forget()
			r.Log.Info("managing data mover loads of velero", "velero", o.Namespace)
		}
	}
}

// releases tells whether what is held of a Velero is released: admission is disabled, or the
// configuration names others.
func (r *Reconciler) releases(namespace string) bool {
	return !r.Settings().Enabled || !r.names(namespace)
}

// names tells whether the configuration names the Velero of a namespace, or none.
func (r *Reconciler) names(namespace string) bool {
	return len(r.Of) == 0 || slices.ContainsFunc(r.Of, func(o Velero) bool { return o.Namespace == namespace })
}

// addReleased adds a Velero whose loads or maintenances are released.
func (r *Reconciler) addReleased(namespace string) {
	if r.veleros[namespace] == nil {
		v := newVelero(r, r.configured(namespace))
		v.unnamed = !r.names(namespace)
		r.veleros[namespace] = v
	}
}

// findHeld adds the Veleros whose Gates limit something, with hidden loads, or whose
// maintenances are postponed, where these are released; false: it could not be determined
// yet.
func (r *Reconciler) findHeld(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	if err := (maintainer{r}).findPostponed(ctx); err != nil {
		r.publisher.logFailure(metav1.NamespaceAll, err)
		return false
	}
	list, err := r.gates(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the kind is not installed
		return true
	}
	if err != nil {
		r.publisher.logFailure(metav1.NamespaceAll, err)
		return false
	}
	for i := range list.Items {
		u := &list.Items[i]
		if u.GetName() != gate.Main || !r.releases(u.GetNamespace()) {
			continue
		}
		namespace, held := u.GetNamespace(), fields(u.Object).yes("spec", "limited")
		if !held {
			held, err = r.hides(ctx, namespace)
		}
		if err != nil {
			r.publisher.logFailure(metav1.NamespaceAll, err)
			return false
		}
		if held {
			r.addReleased(namespace)
			r.Log.Info("found held data mover loads while admission is disabled, or the configuration names other veleros; releasing them", "velero", namespace)
		}
	}
	r.publisher.logFailure(metav1.NamespaceAll, nil)
	return true
}

// hides tells whether a namespace has a hidden load: a controller may have ended when its
// Gate limited nothing any more, and before it had released all.
func (r *Reconciler) hides(ctx context.Context, namespace string) (bool, error) {
	for _, kind := range Kinds() {
		if !kind.Facts().HasMover {
			continue
		}
		list, err := r.Dynamic.Resource(Resource(kind)).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // the kind is not installed
			continue
		}
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return isHidden(&u) }) {
			return true, nil
		}
	}
	return false, nil
}
