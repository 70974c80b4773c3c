package backup

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// FieldManager of all writes.
const FieldManager = "plimsoll-controller"

// Reconciler starts Backups as Decide says, and writes order and reasons of the
// others. It is level-triggered: each round observes everything, decides, and
// writes the differences. Run belongs to one leader at a time; a second one for a
// moment starts nothing that overlaps with what runs, because it can change only
// objects of the version that it has seen (optimistic concurrency).
type Reconciler struct {
	Backups    dynamic.NamespaceableResourceInterface
	Namespaces metadata.Getter
	// Of are the namespaces of the Veleros; none: all namespaces with a Backup.
	Of []string
	// Settings in force; read in each round.
	Settings func() Settings
	Events   Events
	Log      *slog.Logger

	reports  atomic.Pointer[[]Report]
	counters Counters

	// Owned by Run's goroutine.
	cache        *objectCache
	names        *Namespaces
	namesVersion uint64 // the version of the namespaces that names is built from
	pending      map[types.NamespacedName]string
	velero       map[string]*velero // by namespace
}

// velero is the state of one Velero between two rounds; losing it only repeats log
// lines.
type velero struct {
	published      map[string]publishedState // by UID
	seed           maphash.Seed
	sum            uint64    // hash of the waiting and running Backups
	unchangedSince time.Time // since when sum has not changed
}

// Reports on each Velero, sorted; nil before the first round.
func (r *Reconciler) Reports() []Report {
	if list := r.reports.Load(); list != nil {
		return *list
	}
	return nil
}

// Counters counts writes, conflicts and waits.
func (r *Reconciler) Counters() *Counters { return &r.counters }

// Run reconciles until ctx is done. It begins with lists read from etcd.
func (r *Reconciler) Run(ctx context.Context) error {
	r.cache, r.pending, r.velero = newObjectCache(r.Of), map[types.NamespacedName]string{}, map[string]*velero{}
	r.names, r.namesVersion = nil, 0
	var watches sync.WaitGroup
	watches.Go(func() { r.cache.run(ctx, r.Backups, r.Namespaces) })
	defer watches.Wait()
	defer r.reports.Store(nil)
	for {
		again := r.reconcile(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.cache.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// retry is the delay after a failed write, conflicts excepted.
const retry = time.Second

// reconcile is one round: observe, decide, write. It returns the time until the next
// one at the latest.
func (r *Reconciler) reconcile(ctx context.Context) time.Duration {
	s := r.Settings()
	if !r.cache.synced() || !r.caughtUp() {
		return s.Resync
	}
	if !s.Enabled {
		return r.handBack(ctx, s)
	}
	r.refreshNames()
	now, failed := time.Now(), false
	var reports []Report
	for namespace, objects := range r.cache.objects() {
		v := r.veleroOf(namespace)
		in := Input{Time: now, Config: s.Config, Namespaces: r.names, Backups: Backups(objects), Exact: v.quiet(now, objects)}
		d := Decide(in)
		reports = append(reports, NewReport(namespace, in, d))
		p := planner{now: now.UTC().Truncate(time.Second), config: s.Config, quiet: in.Exact, objects: byUID(objects)}
		r.publish(v, &p, &d)
		_, bad := r.write(ctx, p.writes(&d))
		failed = failed || bad
	}
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Namespace, b.Namespace) })
	r.reports.Store(&reports)
	if failed {
		return min(retry, s.Resync)
	}
	return s.Resync
}

// handBack hands the queues back to Velero: those that have our annotations.
func (r *Reconciler) handBack(ctx context.Context, s Settings) time.Duration {
	r.reports.Store(&[]Report{})
	r.refreshNames()
	for namespace, objects := range r.cache.objects() {
		if !slices.ContainsFunc(objects, func(o *Object) bool { return o.Annotated && o.active() }) {
			continue
		}
		in := Input{Time: time.Now(), Config: s.Config, Namespaces: r.names, Backups: Backups(objects), HandBack: true}
		d := Decide(in)
		p := planner{now: in.Time, config: s.Config, objects: byUID(objects)}
		list, last := p.handBack(&d)
		if written, _ := r.write(ctx, list); last && written > 0 && written == len(list) {
			r.Log.Info("handed backup queue back to velero; its server may be started without --disable-controllers=backup-queue", "namespace", namespace, "waiting", len(d.Queue), "written", len(list))
		}
		return min(retry, s.Resync)
	}
	return s.Resync
}

// caughtUp tells whether the cache has all writes of the last round: before, they
// would be made or decided twice.
func (r *Reconciler) caughtUp() bool {
	for key, version := range r.pending {
		if !r.cache.seen(key.Namespace, key.Name, version) {
			return false
		}
		delete(r.pending, key)
	}
	return true
}

// refreshNames refreshes the names of the namespaces.
func (r *Reconciler) refreshNames() {
	if changes := r.cache.namespaces.changes.Load(); r.names == nil || changes != r.namesVersion {
		r.names, r.namesVersion = NewNamespaces(r.cache.names()), changes
	}
}

func (r *Reconciler) veleroOf(namespace string) *velero {
	v := r.velero[namespace]
	if v == nil {
		v = &velero{published: map[string]publishedState{}, seed: maphash.MakeSeed()}
		r.velero[namespace] = v
	}
	return v
}

// exactAfter is how long the queue must be unchanged until all positions are
// written exactly: long compared to a Backup, or a draining queue would be written
// anew for each.
const exactAfter = 30 * time.Minute

func (v *velero) quiet(now time.Time, objects []*Object) bool {
	var sum uint64
	for _, o := range objects {
		sum += maphash.Comparable(v.seed, uidPhase{o.UID, o.Backup.Phase}) // independent of the order
	}
	if v.unchangedSince.IsZero() || sum != v.sum {
		v.sum, v.unchangedSince = sum, now
	}
	return now.Sub(v.unchangedSince) >= exactAfter
}

func byUID(objects []*Object) map[string]*Object {
	all := make(map[string]*Object, len(objects))
	for _, o := range objects {
		all[string(o.UID)] = o
	}
	return all
}

const (
	// writesPerRound bounds the writes of a round: writing a long queue must not delay
	// starts.
	writesPerRound = 100
	writeTimeout   = 5 * time.Second
)

// write makes the first of these changes, and returns how many were made and
// whether one failed. A conflict is no failure: the changed or deleted Backup will
// be observed soon.
func (r *Reconciler) write(ctx context.Context, list []write) (written int, failed bool) {
	for _, w := range list[:min(len(list), writesPerRound)] {
		version, err := r.patch(ctx, w)
		switch {
		case err == nil:
			r.pending[types.NamespacedName{Namespace: w.object.Namespace, Name: w.object.Name}] = version
			r.counters.addWrite(w)
			r.logWrite(w)
			written++
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			r.counters.addConflict()
			r.Log.Debug("write conflict: backup was changed or deleted meanwhile", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", err)
		case ctx.Err() != nil:
			return written, true
		default:
			r.counters.addFailure()
			r.Log.Warn("failed to write backup; retrying", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", err)
			return written, true
		}
	}
	return written, false
}

// patch makes one write; it returns the new version.
func (r *Reconciler) patch(ctx context.Context, w write) (version string, err error) {
	body, err := w.patch.body(w.object.ResourceVersion)
	if err != nil {
		return "", fmt.Errorf("patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now, err := r.Backups.Namespace(w.object.Namespace).Patch(ctx, w.object.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return "", err
	}
	return now.GetResourceVersion(), nil
}
