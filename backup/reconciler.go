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

	reports atomic.Pointer[[]Report]
	tally   Tally

	// Owned by Run's goroutine.
	cached  *cached
	names   *Namespaces
	namesOf uint64 // the version of the namespaces that names is built from
	pending map[types.NamespacedName]string
	velero  map[string]*velero // by namespace
}

// velero is the state of one Velero between two rounds; losing it only repeats log
// lines.
type velero struct {
	told map[string]told // by UID
	seed maphash.Seed
	sum  uint64    // hash of the waiting and running Backups
	calm time.Time // since when sum has not changed
}

// Reports on each Velero, sorted; nil before the first round.
func (r *Reconciler) Reports() []Report {
	if list := r.reports.Load(); list != nil {
		return *list
	}
	return nil
}

// Tally counts writes, conflicts and waits.
func (r *Reconciler) Tally() *Tally { return &r.tally }

// Run reconciles until ctx is done. It begins with lists read from etcd.
func (r *Reconciler) Run(ctx context.Context) error {
	r.cached, r.pending, r.velero = newCached(r.Of), map[types.NamespacedName]string{}, map[string]*velero{}
	r.names, r.namesOf = nil, 0
	var watches sync.WaitGroup
	watches.Go(func() { r.cached.run(ctx, r.Backups, r.Namespaces) })
	defer watches.Wait()
	defer r.reports.Store(nil)
	for {
		again := r.look(ctx)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.cached.bell:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// retry is the delay after a failed write, conflicts excepted.
const retry = time.Second

// look is one round: observe, decide, write. It returns the time until the next
// one at the latest.
func (r *Reconciler) look(ctx context.Context) time.Duration {
	s := r.Settings()
	if !r.cached.synced() || !r.caughtUp() {
		return s.Resync
	}
	if !s.Enabled {
		return r.off(ctx, s)
	}
	r.name()
	now, failed := time.Now(), false
	var reports []Report
	for namespace, objects := range r.cached.objects() {
		v := r.of(namespace)
		in := Input{Time: now, Config: s.Config, Namespaces: r.names, Backups: Backups(objects), Quiet: v.quiet(now, objects)}
		d := Decide(in)
		reports = append(reports, NewReport(namespace, in, d))
		p := planner{now: now.UTC().Truncate(time.Second), config: s.Config, quiet: in.Quiet, objects: byUID(objects)}
		r.tell(v, &p, &d)
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

// off hands the queues back to Velero: those that have our annotations.
func (r *Reconciler) off(ctx context.Context, s Settings) time.Duration {
	r.reports.Store(&[]Report{})
	r.name()
	for namespace, objects := range r.cached.objects() {
		if !slices.ContainsFunc(objects, func(o *Object) bool { return o.Marked && o.active() }) {
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
		if !r.cached.seen(key.Namespace, key.Name, version) {
			return false
		}
		delete(r.pending, key)
	}
	return true
}

// name refreshes the names of the namespaces.
func (r *Reconciler) name() {
	if changes := r.cached.namespaces.changes.Load(); r.names == nil || changes != r.namesOf {
		r.names, r.namesOf = NewNamespaces(r.cached.names()), changes
	}
}

func (r *Reconciler) of(namespace string) *velero {
	v := r.velero[namespace]
	if v == nil {
		v = &velero{told: map[string]told{}, seed: maphash.MakeSeed()}
		r.velero[namespace] = v
	}
	return v
}

// quietAfter is how long the queue must be unchanged until all positions are
// written exactly: long compared to a Backup, or a draining queue would be written
// anew for each.
const quietAfter = 30 * time.Minute

func (v *velero) quiet(now time.Time, objects []*Object) bool {
	var sum uint64
	for _, o := range objects {
		sum += maphash.Comparable(v.seed, phased{o.UID, o.Backup.Phase}) // independent of the order
	}
	if v.calm.IsZero() || sum != v.sum {
		v.sum, v.calm = sum, now
	}
	return now.Sub(v.calm) >= quietAfter
}

func byUID(objects []*Object) map[string]*Object {
	all := make(map[string]*Object, len(objects))
	for _, o := range objects {
		all[string(o.UID)] = o
	}
	return all
}

const (
	// writesAtOnce bounds the writes of a round: writing a long queue must not delay
	// starts.
	writesAtOnce = 100
	writeTimeout = 5 * time.Second
)

// write makes the first of these changes, and returns how many were made and
// whether one failed. A conflict is no failure: the changed or deleted Backup will
// be observed soon.
func (r *Reconciler) write(ctx context.Context, list []write) (written int, failed bool) {
	for _, w := range list[:min(len(list), writesAtOnce)] {
		version, err := r.patch(ctx, w)
		switch {
		case err == nil:
			r.pending[types.NamespacedName{Namespace: w.object.Namespace, Name: w.object.Name}] = version
			r.tally.wrote(w)
			r.done(w)
			written++
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			r.tally.missed()
			r.Log.Debug("write conflict: backup was changed or deleted meanwhile", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", err)
		case ctx.Err() != nil:
			return written, true
		default:
			r.tally.failed()
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
