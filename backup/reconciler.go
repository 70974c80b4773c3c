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

// FieldManager of what is written.
const FieldManager = "plimsoll-controller"

// Reconciler lets Backups start as Decide says, and writes down the order and
// the reasons of the others. It is level-triggered: whatever happens, it looks
// at all that is known, decides, and writes the difference. Run belongs to one
// leader at a time; a second one for a moment starts nothing that overlaps with
// what runs, for it can change only what it has seen.
type Reconciler struct {
	Backups    dynamic.NamespaceableResourceInterface
	Namespaces metadata.Getter
	// Of are the namespaces of the Veleros; none: all in which there is a Backup.
	Of []string
	// Settings in force; asked at each look.
	Settings func() Settings
	Events   Events
	Log      *slog.Logger

	reports atomic.Pointer[[]Report]
	tally   Tally

	// Of Run alone.
	cached  *cached
	names   *Namespaces
	namesOf uint64 // the state of the namespaces that names is made of
	pending map[types.NamespacedName]string
	velero  map[string]*velero // by namespace
}

// velero is what is remembered of one Velero between two looks; nothing is lost
// with it but a line in the log that is written twice.
type velero struct {
	told map[string]told // by UID
	seed maphash.Seed
	sum  uint64    // of who waits and runs
	calm time.Time // since when it has not changed
}

// Reports on each Velero, in order; nil before the first look.
func (r *Reconciler) Reports() []Report {
	if list := r.reports.Load(); list != nil {
		return *list
	}
	return nil
}

// Tally counts what was done.
func (r *Reconciler) Tally() *Tally { return &r.tally }

// Run until ctx is done. What it knows begins with a list as etcd has it.
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

// retry is how soon is looked again after a write that failed for another
// reason than that somebody else was first.
const retry = time.Second

// look at all that is known, and do what is to be done; it returns when to look
// again at the latest.
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

// off hands back the queues that are ours: those in which our annotation stands.
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

// caughtUp tells whether all that was written is known again: until then it
// would be written, or decided about, a second time.
func (r *Reconciler) caughtUp() bool {
	for key, version := range r.pending {
		if !r.cached.seen(key.Namespace, key.Name, version) {
			return false
		}
		delete(r.pending, key)
	}
	return true
}

// name keeps the names of the namespaces up to date.
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

// quietAfter so long without a change all positions are written exactly: long
// beside a Backup, or a queue that drains would be written anew for each.
const quietAfter = 30 * time.Minute

func (v *velero) quiet(now time.Time, objects []*Object) bool {
	var sum uint64
	for _, o := range objects {
		sum += maphash.Comparable(v.seed, phased{o.UID, o.Backup.Phase}) // in any order
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
	// writesAtOnce before the next look: who could start must not wait for a
	// long queue to be written.
	writesAtOnce = 100
	writeTimeout = 5 * time.Second
)

// write the first of these changes, and tell how many and whether one failed. That somebody
// else has changed or deleted a Backup meanwhile is no failure: what it is now
// is on its way.
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

// patch is one write; it returns the version that it made.
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
