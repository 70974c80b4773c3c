package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// velero is one installation, from its discovery until the end of the term.
type velero struct {
	Velero
	// unnamed: the configuration names other Veleros. What is held of it is released, and no
	// limit and no pressure counts.
	unnamed bool
	core    corev1client.CoreV1Interface
	dynamic dynamic.Interface
	log     *slog.Logger
	clock   *clock

	keeper    keeper
	config    *configuration
	desired   desiredGates // the desired Gates, as last decided
	gatesRead bool         // the Gates were read
	// holdsFailed: the Gate's start holds could not be written.
	holdsFailed bool
	// gateOpen is why its gate holds nothing although it should, by the last self-test.
	gateOpen string
	testedAt time.Time
	// releasedBy is what would release a hidden load once the Gate does not hold it, by the
	// last self-test: one of the constants; empty: nothing, or a load was released although
	// the Gate holds it. unreleasedSince is since when nothing would, by all self-tests; zero:
	// something would, or it is unknown.
	releasedBy                       string
	releaseTestedAt, unreleasedSince time.Time
	jobWorks                         func() bool

	// direct are the kinds whose loads its node-agents start at once, by the definitions.
	direct map[vgdp.Kind]bool
	// others are the data movers that are none of Velero's own, and told those that were
	// logged; true: as served by Velero's node-agents.
	others []OtherMover
	told   map[string]bool
	// toldStarted are the kinds that were logged as started at once.
	toldStarted []vgdp.Kind

	loads   map[vgdp.Kind]*store.Store[*Object]
	backups *store.Store[*parentBackup]
	movers  *store.Store[*corev1.Pod]
	// repositories are not needed to decide about loads.
	repositories *store.Store[*repository]
	watching     bool // its watches are running

	mu       sync.Mutex // guards accepted
	accepted []*Object  // since the last round
}

func newVelero(r *Reconciler, of Velero) *velero {
	v := &velero{
		Velero: of, core: r.Core, dynamic: r.Dynamic, log: r.Log, clock: &r.clock,
		keeper: keeper{gates: r.gates(of.Namespace), clock: &r.clock},
		config: newConfiguration(), loads: map[vgdp.Kind]*store.Store[*Object]{}, direct: map[vgdp.Kind]bool{}, told: map[string]bool{},
		jobWorks: r.JobWorks,
	}
	for _, kind := range Kinds() {
		v.loads[kind] = store.New(string(kind)+"s of "+of.Namespace, r.wake, trimLoad(kind), store.OnUpdate(v.loadChanged))
	}
	v.backups = store.New("backups of "+of.Namespace, r.wake, trimBackup, store.OnUpdate(backupChanged))
	v.movers = store.New("movers of "+of.Namespace, r.wake, trimMover, nil)
	v.repositories = store.New("repositories of "+of.Namespace, r.wake, trimRepository, store.OnUpdate(repositoryChanged))
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
func (v *velero) loadChanged(was, is *Object) (wake bool) {
	carryOver(was, is, v.clock.now())
	if isNew(&was.Load) && is.Load.Phase == vgdp.Accepted {
		v.mu.Lock()
		v.accepted = append(v.accepted, is)
		v.mu.Unlock()
	}
	return !(was.Load.Phase == vgdp.InProgress && is.Load.Phase == vgdp.InProgress && was.Load.Cancel == is.Load.Cancel)
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
// once no tickets of another leader can be used any more, and polls the ConfigMap,
// whatever becomes of the Gates. It tells whether the configuration changed.
func (v *velero) prepare(ctx context.Context, s Settings, agents []*agentPod, watch func(func())) (changed bool, err error) {
	v.keeper.lease = s.LeaseDuration
	if !v.gatesRead {
		err = v.adopt(ctx, s.Enabled && !v.unnamed)
	}
	adopted := err == nil
	if adopted {
		err = v.writeGates(ctx)
	}
	changed = v.config.read(ctx, v.core.ConfigMaps(v.Namespace), v.Velero, agents, time.Now())
	k, now := &v.keeper, v.clock.now()
	if latest := now.Add(k.lease); k.ticketsFrom.After(latest) { // the API server's clock was set back
		k.ticketsFrom = latest
	}
	if adopted && !v.watching && !now.Before(k.ticketsFrom) {
		v.watching = true
		v.watch(ctx, watch)
	}
	return changed, err
}

// adopt adopts the Gates of an earlier leader: what is held stays held, under a new
// epoch, if admission is enabled, and so do its start holds for one lease duration.
func (v *velero) adopt(ctx context.Context, enabled bool) error {
	k := &v.keeper
	if err := k.read(ctx); err != nil {
		return err
	}
	v.gatesRead = true
	if err := k.setClock(ctx); err != nil {
		v.log.Warn("failed to ask for the API server's time; going by the last one known", "velero", v.Namespace, "error", err)
	}
	now := v.clock.now()
	switch {
	case k.epoch > 0 && k.main != nil && k.main.Spec.Epoch == k.epoch: // changed by another client, but not by another leader
	case k.held(now) && enabled:
		v.desired = k.stored(now)
		if err := k.claim(ctx, v.desired, 0); err != nil {
			v.gatesRead = false
			return err
		}
		v.log.Info("found data mover loads held by the previous leader; issuing no tickets for one lease duration", "velero", v.Namespace, "epoch", k.epoch, "until", k.ticketsFrom.UTC().Format(time.RFC3339))
	default:
		k.epoch, k.ticketsFrom = 0, time.Time{}
	}
	return nil
}

// writeGates writes the Gates as desired. Main, which holds loads, is not renewed while the start
// holds cannot be written: no tickets are issued then.
func (v *velero) writeGates(ctx context.Context) (err error) {
	if !v.desired.limited || !v.holdsFailed {
		err = v.keeper.renew(ctx, v.desired, v.highest())
	}
	if err == nil {
		err = v.keeper.writeHolds(ctx, v.desired)
		v.holdsFailed = err != nil
	}
	if err != nil {
		v.gatesRead = false // the Gates must be read anew
	}
	return err
}

// gatesKnown tells whether its Gates are as last read or written, with an epoch of its own:
// tickets of that one are good.
func (v *velero) gatesKnown() bool { return v.gatesRead && v.keeper.epoch > 0 }

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

// watch starts its watches, which run until ctx is done.
func (v *velero) watch(ctx context.Context, start func(func())) {
	for kind, s := range v.loads {
		start(func() { store.Run(ctx, s, v.dynamic.Resource(Resource(kind)).Namespace(v.Namespace), "") })
	}
	start(func() { store.Run(ctx, v.backups, v.dynamic.Resource(backups()).Namespace(v.Namespace), "") })
	start(func() { store.Run(ctx, v.movers, v.core.Pods(v.Namespace), roleOther) })
	start(func() {
		store.Run(ctx, v.repositories, v.dynamic.Resource(RepositoryResource()).Namespace(v.Namespace), "")
	})
}

// fill lists once what the watches would, for a preview.
func (v *velero) fill(ctx context.Context) error {
	for kind, s := range v.loads {
		if err := store.Fill(ctx, s, v.dynamic.Resource(Resource(kind)).Namespace(v.Namespace), ""); err != nil {
			return err
		}
		for _, o := range s.List() { // the time of issue is unknown: count it as new
			o.Load.Ticket, o.Load.Started = keepIssueTime(nil, o.Load.Ticket, time.Now()), keepIssueTime(nil, o.Load.Started, time.Now())
		}
	}
	if err := store.Fill(ctx, v.backups, v.dynamic.Resource(backups()).Namespace(v.Namespace), ""); err != nil {
		return err
	}
	return store.Fill(ctx, v.movers, v.core.Pods(v.Namespace), roleOther)
}

// caughtUp tells whether the stores of loads have all writes of the last round: before,
// decisions would be made twice.
func (v *velero) caughtUp() bool {
	for _, s := range v.loads {
		if !s.CaughtUp() {
			return false
		}
	}
	return true
}

// gate is the state of its Gate that a decision depends on.
func (v *velero) gate() gateState {
	return gateState{epoch: v.keeper.epoch, limited: v.desired.limited, main: v.keeper.main}
}

// moverNodes are the nodes of the movers' pods.
func (v *velero) moverNodes() map[loadKey]string {
	nodes := map[loadKey]string{}
	for _, p := range v.movers.List() {
		for _, kind := range Kinds() {
			if load := p.Labels[kind.Facts().PodLabel]; load != "" {
				nodes[loadKey{kind, p.Namespace, load}] = p.Spec.NodeName
			}
		}
	}
	return nodes
}

// current appends the loads of a Velero that have not ended.
func (v *velero) current(list []vgdp.Load, objects map[string]*Object) []vgdp.Load {
	nodes, timeout, older := v.moverNodes(), v.podVolumeTimeout(), v.olderNodes()
	for _, loads := range v.loads {
		for _, o := range loads.List() {
			if ended(&o.Load) {
				continue
			}
			l := o.Load
			l.Direct = l.Direct || v.direct[l.Kind] || startedAtOnce(&l) || older[l.Node] && !l.Kind.Facts().HasMover
			if l.Node == "" && !isNew(&l) {
				l.Node = nodes[loadKey{l.Kind, l.Namespace, l.Name}]
			}
			v.parentOf(o, &l, timeout)
			list, objects[l.UID] = append(list, l), o
		}
	}
	return list
}

// parentOf copies what a load inherits from its Backup. timeout is Velero's own for
// volumes of pods.
func (v *velero) parentOf(o *Object, l *vgdp.Load, timeout serverTimeout) {
	p, there := v.backups.Get(v.Namespace, o.Backup)
	if !there || o.Backup == "" {
		p = &parentBackup{}
	}
	l.Scheduled, l.Hooks = p.Scheduled, p.Hooks
	switch {
	case l.Kind == vgdp.PodVolumeBackup || l.Kind == vgdp.PodVolumeRestore:
		p.podVolumeClock(l, timeout)
	case p.Timeout > 0:
		l.Timeout, l.Clock = p.Timeout, fmt.Sprintf("itemOperationTimeout %s of its Backup, counted from %s", p.Timeout, utc(l.Created))
	}
}

// postponing tells whether one of its Backups that make loads is postponed.
func (v *velero) postponing(wanted func(velero, backup string) vgdp.Wanted, now time.Time) bool {
	return wanted != nil && slices.ContainsFunc(v.backups.List(), func(b *parentBackup) bool {
		return b.Running && wanted(v.Namespace, b.Name).PostponedUntil.After(now)
	})
}

// podVolumeClock sets the clock of a PodVolumeBackup or PodVolumeRestore. It counts from
// the start of its Backup or Restore, of which only the Backup's is known.
func (p *parentBackup) podVolumeClock(l *vgdp.Load, timeout serverTimeout) {
	lasts, from, clock := timeout.of, l.Created, "--fs-backup-timeout %s of Velero's server"
	if p.PodVolumeTimeout != nil {
		lasts, clock = *p.PodVolumeTimeout, podVolumeTimeout+" %s of its Backup"
	} else if !timeout.set {
		clock = "Velero's %s"
	}
	if !p.Started.IsZero() {
		from = p.Started
	}
	l.Timeout = max(time.Second, from.Add(lasts).Sub(l.Created))
	l.Clock = fmt.Sprintf(clock+", counted from %s", lasts, utc(from))
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// podVolumeTimeout is the annotation of a Backup with its own --fs-backup-timeout.
const podVolumeTimeout = "velero.io/pod-volume-timeout"

// serverTimeout is --fs-backup-timeout of Velero's server. set: it is on its command
// line, else it is Velero's default.
type serverTimeout struct {
	of  time.Duration
	set bool
}

// podVolumeTimeout is that of the server's newest pod; of several, that of the last by name.
func (v *velero) podVolumeTimeout() serverTimeout {
	var newest *corev1.Pod
	for _, p := range v.movers.List() {
		if len(p.Spec.Containers) > 0 && (newest == nil || cmp.Or(newest.CreationTimestamp.Compare(p.CreationTimestamp.Time), cmp.Compare(newest.Name, p.Name)) < 0) {
			newest = p
		}
	}
	if newest != nil {
		if d, err := time.ParseDuration(option(newest.Spec.Containers[0].Args, "--fs-backup-timeout")); err == nil {
			return serverTimeout{d, true}
		}
	}
	return serverTimeout{of: vgdp.VeleroTimeout}
}

// serverOf is the container of Velero's server, with its command line alone; nil: the
// pod has none. Other programs have a server too, so its program must be velero: by its
// command, or its name where the image has the command.
func serverOf(p *corev1.Pod) []corev1.Container {
	for _, c := range p.Spec.Containers {
		program, line := c.Name, c.Args
		if len(c.Command) > 0 {
			program, line = c.Command[0], slices.Concat(c.Command[1:], c.Args)
		}
		if path.Base(program) == "velero" && len(line) > 0 && line[0] == "server" {
			return []corev1.Container{{Name: c.Name, Args: line}}
		}
	}
	return nil
}

// trimMover keeps what places a load, and what a diagnosis needs; of Velero's server its
// command line.
func trimMover(o any) (*corev1.Pod, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return nil, store.ErrType(o)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels, CreationTimestamp: p.CreationTimestamp},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, Containers: serverOf(p)},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, Message: p.Status.Message, Conditions: p.Status.Conditions,
			StartTime: p.Status.StartTime, ContainerStatuses: p.Status.ContainerStatuses,
		},
	}, nil
}

// parentBackup is what loads inherit from their Backup.
type parentBackup struct {
	metav1.ObjectMeta

	Scheduled, Hooks bool
	// Timeout is its itemOperationTimeout; 0: none.
	Timeout time.Duration
	// PodVolumeTimeout of its own; nil: the server's. Started is when Velero began it;
	// zero: it did not.
	PodVolumeTimeout *time.Duration
	Started          time.Time
	// Running: it is InProgress. Location is where it is stored; Included namespaces, all
	// if empty, but Excluded ones.
	Running            bool
	Location           string
	Included, Excluded []string
}

func trimBackup(o any) (*parentBackup, error) {
	u, is := o.(*unstructured.Unstructured)
	if already, yes := o.(*parentBackup); yes {
		return already, nil
	}
	if !is {
		return nil, store.ErrType(o)
	}
	f := fields(u.Object)
	hooks, _, _ := unstructured.NestedSlice(u.Object, "spec", "hooks", "resources")
	p := &parentBackup{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion()},
		Scheduled:  u.GetLabels()[labelSchedule] != "", Hooks: slices.ContainsFunc(hooks, runsBefore),
		Started: f.time("status", "startTimestamp"), Running: f.text("status", "phase") == "InProgress",
		Location: f.text("spec", "storageLocation"), Included: f.texts("spec", "includedNamespaces"), Excluded: f.texts("spec", "excludedNamespaces"),
	}
	if d, err := time.ParseDuration(f.text("spec", "itemOperationTimeout")); err == nil {
		p.Timeout = d
	}
	if d, err := time.ParseDuration(u.GetAnnotations()[podVolumeTimeout]); err == nil {
		p.PodVolumeTimeout = &d
	}
	return p, nil
}

// runsBefore tells whether a Backup's hook runs before a pod is backed up.
func runsBefore(hook any) bool {
	h, is := hook.(map[string]any)
	pre, _, err := unstructured.NestedSlice(h, "pre")
	return is && err == nil && len(pre) > 0
}

func backupChanged(was, is *parentBackup) bool {
	return was.Running != is.Running || was.Scheduled != is.Scheduled || was.Hooks != is.Hooks || was.Timeout != is.Timeout || !was.Started.Equal(is.Started) ||
		(was.PodVolumeTimeout == nil) != (is.PodVolumeTimeout == nil) || was.PodVolumeTimeout != nil && *was.PodVolumeTimeout != *is.PodVolumeTimeout
}

// kindsStarted finds out which kinds of loads this Velero starts at once, by the
// CustomResourceDefinitions. They are of the whole cluster, and those of the newest Velero.
func (v *velero) kindsStarted(accepts func(vgdp.Kind) bool) {
	for _, f := range names.MoverKinds() {
		v.direct[f.Kind] = !accepts(f.Kind)
	}
}

// olderNodes are the nodes whose node-agent is older than the CustomResourceDefinitions: it
// runs a load that was never accepted. That holds for its own node alone, and only while
// the load runs: a newer node-agent needs tickets, which no load gets that counts as started
// at once.
func (v *velero) olderNodes() map[string]bool {
	nodes := map[string]bool{}
	for _, loads := range v.loads {
		for _, o := range loads.List() {
			if o.Load.Node != "" && startedAtOnce(&o.Load) {
				nodes[o.Load.Node] = true
			}
		}
	}
	return nodes
}

// startedAtOnce tells whether a load runs that a node-agent of Velero 1.16 or earlier
// started. Those of restic any node-agent does.
func startedAtOnce(l *vgdp.Load) bool {
	return !l.Kind.Facts().HasMover && !l.Direct && l.Phase == vgdp.InProgress && l.AcceptedAt.IsZero()
}

// lax tells whether its node-agents do not read prepareQueueLength.
func (v *velero) lax() bool { return v.direct[vgdp.PodVolumeBackup] || v.direct[vgdp.PodVolumeRestore] }

// startedAtOnce are the kinds whose loads are started at once, in the order of the table.
func (v *velero) startedAtOnce() (kinds []vgdp.Kind) {
	for _, f := range names.MoverKinds() {
		if v.direct[f.Kind] {
			kinds = append(kinds, f.Kind)
		}
	}
	return kinds
}
