package backup

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// Reconciler starts Backups as Decide says, and writes order and reasons of the
// others. It is level-triggered: each round observes everything, decides, and
// writes the differences. Run belongs to one leader at a time; a second one for a
// moment starts nothing that overlaps with what runs, because it can change only
// objects of the version that it has seen (optimistic concurrency).
type Reconciler struct {
	Backups, Schedules dynamic.NamespaceableResourceInterface
	Namespaces         metadata.Getter
	// Of are the namespaces of the Veleros; none: all namespaces with a Backup.
	Of []string
	// Abilities of the installed Velero; read in each round.
	Abilities func(context.Context) abilities.Velero
	// Settings in force; read in each round.
	Settings func() Settings
	// Uploads are the data mover loads of a Velero; nil, or nil of one: not known. It is
	// called in each round in which deadlines are enabled, and must answer at once.
	Uploads func(velero string) *uploads.State
	Events  reconcile.Events
	Log     *slog.Logger

	loop     reconcile.Loop[published]
	counters counters.Group[Counts]
	foreseen foreseen

	// Owned by Run's goroutine.
	cache        *objectCache
	names        *Namespaces
	namesVersion uint64             // the version of the namespaces that names was compared with
	velero       map[string]*velero // by namespace
	watching     time.Time          // since when Schedules are
	unlisted     bool               // it was said that they cannot be listed
}

// velero is the state of one Velero between two rounds; losing it only repeats log
// lines and Events, and durations of slots are learned anew.
type velero struct {
	learned
	aims           map[string]Aim            // by UID; nil: deadlines are not enabled
	foreseen       time.Time                 // when its night was last played
	playing        atomic.Bool               // it is being played, or waits for others
	uploads        bool                      // with its data mover loads
	problems       map[problemOf]saidProblem // of Schedules
	published      map[string]publishedState // by UID
	refused        Refusals
	handedBack     bool // with exact positions; its order is Velero's since
	seed           maphash.Seed
	sum            uint64    // hash of the waiting and running Backups
	unchangedSince time.Time // since when sum has not changed
}

// published is what a round tells.
type published struct {
	reports  []Report
	unqueued map[string]time.Duration
}

// Reports on each Velero, sorted; nil before the first round.
func (r *Reconciler) Reports() []Report { return r.loop.Report().reports }

// Unqueued is how long the oldest New Backup of each Velero has waited, by namespace, while the
// queue is disabled: Velero's own, if it works, queues a New one at once.
func (r *Reconciler) Unqueued() map[string]time.Duration { return r.loop.Report().unqueued }

// Nights that are foreseen, by namespace; nil: deadlines are not enabled, or another replica
// is the leader.
func (r *Reconciler) Nights() []Night { return r.foreseen.list() }

// Wanted of a Backup that has begun; the zero value: nothing.
func (r *Reconciler) Wanted(namespace, name string) Wanted { return r.foreseen.wanted(namespace, name) }

// Decided tells whether this replica, as the leader, has decided about all there is.
func (r *Reconciler) Decided() bool { return r.loop.Published() }

// Counts of writes, conflicts and waits.
func (r *Reconciler) Counts() Counts { return r.counters.Counts() }

// Run reconciles until ctx is done. It begins with lists read from etcd.
func (r *Reconciler) Run(ctx context.Context) error {
	r.reset()
	for namespace, s := range r.cache.backups {
		r.loop.Watch(func() { store.Run(ctx, s, r.Backups.Namespace(namespace), "") })
	}
	r.loop.Watch(func() { store.Run(ctx, r.cache.namespaces, r.Namespaces, "") })
	defer r.foreseen.end()
	r.loop.Run(ctx, r.cache.wake, r.round)
	return nil
}

// roundDebounce is the shortest pause between two rounds.
const roundDebounce = 20 * time.Millisecond

// round is reconcile with a pause as long as it took: at most half of the time is spent in rounds,
// however often others change what wakes them.
func (r *Reconciler) round(ctx context.Context) reconcile.Pause {
	begun := time.Now()
	longest := r.reconcile(ctx)
	return reconcile.Pause{Shortest: max(roundDebounce, time.Since(begun)), Longest: longest}
}

// reset resets the state of an earlier term.
func (r *Reconciler) reset() {
	r.cache, r.velero, r.names, r.namesVersion = newObjectCache(r.Of), map[string]*velero{}, nil, 0
	r.watching, r.unlisted = time.Time{}, false
	r.foreseen.begin()
}

// retry is the delay after a failed write, conflicts excepted.
const retry = time.Second

// reconcile is one round: observe, decide, write. It returns the time until the next
// one at the latest.
func (r *Reconciler) reconcile(ctx context.Context) time.Duration {
	s := r.Settings()
	if !r.cache.synced() || !r.cache.caughtUp() {
		return s.Resync
	}
	if !s.Enabled {
		return r.handBack(ctx, s)
	}
	if !r.Abilities(ctx).Queues() { // the API server would refuse each write; Velero starts Backups
		r.loop.Publish(published{reports: []Report{}})
		r.foreseen.forget()
		return s.Resync
	}
	r.refreshNames()
	if !r.schedulesReady(ctx, s) {
		return min(retry, s.Resync)
	}
	now, failed, pause := time.Now(), false, s.Resync
	var reports []Report
	all, left := r.cache.objects()
	if s.Deadlines.Enabled {
		r.cache.addDated(all, left)
	}
	for namespace, objects := range all {
		v := r.veleroOf(namespace)
		v.handedBack = false
		in := Input{Time: now, Config: s.Config, Namespaces: r.names, Backups: Backups(objects), Exact: v.quiet(now, objects)}
		r.settle(ctx, v, objects)
		v.refused.Mark(&in)
		r.deadlines(s, namespace, v, &in, objects, left[namespace])
		d := Decide(in)
		reports = append(reports, NewReport(namespace, in, d))
		p := planner{now: now.UTC().Truncate(time.Second), config: s.Config, quiet: in.Exact, objects: byUID(objects), refused: &v.refused}
		r.publish(v, &p, &d)
		pause = min(pause, p.pause(&in))
		_, bad := r.write(ctx, v, p.writes(&d))
		failed = failed || bad
	}
	r.foreseen.keep(all)
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Namespace, b.Namespace) })
	r.loop.Publish(published{reports: reports})
	if failed {
		return min(retry, s.Resync)
	}
	return pause
}

// handBack hands the queues back to Velero: those that have our annotations, but for those of
// Backups that the API server refuses to change.
func (r *Reconciler) handBack(ctx context.Context, s Settings) time.Duration {
	all, _ := r.cache.objects()
	r.loop.Publish(published{reports: []Report{}, unqueued: unqueued(all, time.Now())})
	r.foreseen.forget()
	r.refreshNames()
	pause := s.Resync
	for namespace, objects := range all {
		v := r.veleroOf(namespace)
		in := Input{Time: time.Now(), Config: s.Config, Namespaces: r.names, Backups: Backups(objects), HandBack: true}
		r.settle(ctx, v, objects)
		v.refused.Mark(&in)
		p := planner{now: in.Time, config: s.Config, objects: byUID(objects), refused: &v.refused, handedBack: v.handedBack}
		pause = min(pause, p.pause(&in))
		if !slices.ContainsFunc(objects, func(o *Object) bool { return o.Annotated && o.active() && !v.refused.hold(&o.Backup) }) {
			continue
		}
		d := Decide(in)
		list, last := p.handBack(&d)
		if written, _ := r.write(ctx, v, list); last && written > 0 && written == len(p.accepted(list)) {
			v.handedBack = true
			r.Log.Info("handed backup queue back to velero; its server may be started without --disable-controllers=backup-queue", "namespace", namespace, "waiting", len(d.Queue), "written", written)
		}
		return min(retry, s.Resync)
	}
	return pause
}

// unqueued is how long the oldest New Backup of each Velero has waited.
func unqueued(all map[string][]*Object, now time.Time) map[string]time.Duration {
	longest := map[string]time.Duration{}
	for namespace, objects := range all {
		for _, o := range objects {
			if o.active() && o.Backup.isNew() {
				longest[namespace] = max(longest[namespace], now.Sub(o.Backup.Created))
			}
		}
	}
	return longest
}

// refreshNames refreshes the names of the namespaces. Where they are the same, resolved patterns
// are kept.
func (r *Reconciler) refreshNames() {
	changes := r.cache.namespaces.Changes()
	if r.names != nil && changes == r.namesVersion {
		return
	}
	r.namesVersion = changes
	if names := r.cache.names(); r.names == nil || !slices.Equal(names, r.names.names) {
		r.names = NewNamespaces(names)
	}
}

func (r *Reconciler) veleroOf(namespace string) *velero {
	v := r.velero[namespace]
	if v == nil {
		v = &velero{published: map[string]publishedState{}, seed: maphash.MakeSeed(), learned: learned{inProgress: map[types.UID]bool{}}}
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

// writesPerRound bounds the writes of a round: writing a long queue must not delay
// starts.
const writesPerRound = 100

// write makes the first of these changes, and returns how many were made and
// whether one failed. A conflict is no failure: the changed or deleted Backup will
// be observed soon. After a refusal the next round decides without that Backup. It ends with a
// failure that is not of one Backup alone, or has taken long.
func (r *Reconciler) write(ctx context.Context, v *velero, list []write) (written int, failed bool) {
	refusedNow := 0
	for _, w := range list[:min(len(list), writesPerRound)] {
		version, err := r.patch(ctx, w)
		switch {
		case err == nil:
			r.cache.wrote(w.object, version)
			r.counters.Change(func(c *Counts) { c.Writes.Add(string(w.kind)) })
			v.refused.Made()
			r.logWrite(w)
			written++
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			r.counters.Change(func(c *Counts) { c.Conflicts++ })
			r.Log.Debug("write conflict: backup was changed or deleted meanwhile", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", err)
		case ctx.Err() != nil: // the term is over: whether it was written is not known
			r.counters.Change(func(c *Counts) { c.Failures++ })
			return written, true
		default:
			r.counters.Change(func(c *Counts) { c.Failures++ })
			failed, refusedNow = true, refusedNow+1
			if !r.recordFailure(v, w, err) || refusedNow == refusalsPerRound {
				return written, true
			}
		}
	}
	return written, failed
}

// recordFailure remembers a Backup that was not changed. It is true where others are to be
// written at once.
func (r *Reconciler) recordFailure(v *velero, w write, err error) (goesOn bool) {
	uid, version := key(&w.object.Backup)
	if reconcile.Refused(err) {
		v.refused.Refusals.Add(uid, version, time.Now().Add(RefusedFor))
		r.publishRefusal(w, err)
		return true
	}
	times := v.refused.Failed(uid, version, err, w.kind == kindStart)
	r.Log.Warn("failed to write backup; retrying", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", err, "othersGoOn", times > 0)
	if times >= lastingTimes {
		r.publishRefusal(w, err)
	}
	return times > 0 && !reconcile.Unanswered(err)
}

// settle finds out whether Backups have started whose start was not answered.
func (r *Reconciler) settle(ctx context.Context, v *velero, objects []*Object) {
	if v.refused.None() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	for _, o := range objects {
		uid, version := key(&o.Backup)
		v.refused.Settle(ctx, uid, version, o.Name, r.Backups.Namespace(o.Namespace))
	}
}

// patch makes one write; it returns the new version.
func (r *Reconciler) patch(ctx context.Context, w write) (version string, err error) {
	body, err := w.patch.body(w.object.ResourceVersion)
	if err != nil {
		return "", fmt.Errorf("patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	now, err := r.Backups.Namespace(w.object.Namespace).Patch(ctx, w.object.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.FieldManager})
	if err != nil {
		return "", err
	}
	return now.GetResourceVersion(), nil
}
