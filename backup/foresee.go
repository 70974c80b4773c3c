package backup

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// learned is what is known of the durations of one Velero's Backups. The runs are those of
// the Backups that exist or did in this term, so nothing is stored. When a Backup leaves its
// slot no field tells: that is seen, or not known.
type learned struct {
	runs, slots durations.History
	inProgress  map[types.UID]bool // in the last round
	// newest is when the newest good Backup of each schedule was started, of those that exist.
	newest map[string]time.Time
	// crons by the UID of their Schedules.
	crons map[types.UID]cronSeen
}

// cronSeen is when a Schedule creates Backups, and since when that is so; zero: since before
// this term.
type cronSeen struct {
	paused     bool
	expression string
	since      time.Time
}

// seeSchedules sees which of them create Backups at other times than before.
func (l *learned) seeSchedules(now time.Time, schedules []*Schedule) {
	was := l.crons
	l.crons = make(map[types.UID]cronSeen, len(schedules))
	for _, s := range schedules {
		is, known := was[s.UID]
		if known && (is.paused != s.Paused || is.expression != s.Expression) {
			is.since = now
		}
		is.paused, is.expression = s.Paused, s.Expression
		l.crons[s.UID] = is
	}
}

// see what has ended, and what has left its slot. A time in the future is a wrong clock's.
// loads are the data mover loads; nil: they are not known.
func (l *learned) see(now time.Time, objects, left []*Object, loads *uploads.State) {
	if loads == nil {
		loads = &uploads.State{}
	}
	was := l.inProgress
	l.inProgress, l.newest = map[types.UID]bool{}, newestGood(now, left)
	for _, o := range objects {
		if o.Backup.Phase == InProgress {
			l.inProgress[o.UID] = true
		}
	}
	for _, o := range left {
		if o.Backup.Phase == Deleting {
			continue
		}
		if was[o.UID] {
			l.slots.Add(durations.Run{Schedule: o.Backup.Schedule, Started: o.Backup.Began, Completed: now, Good: !o.failed()})
		}
		if o.ended() && !inFuture(o.Completed, now) {
			l.runs.Add(o.run(loads.Sizes[o.Name]))
		}
	}
}

// newestGood is when the newest good Backup of each schedule was started. One that is being
// deleted counts as gone.
func newestGood(now time.Time, ended []*Object) map[string]time.Time {
	newest := map[string]time.Time{}
	for _, o := range ended {
		b := &o.Backup
		if b.Schedule != "" && o.good() && o.DeletionTimestamp == nil && !inFuture(b.Began, now) {
			newest[b.Schedule] = later(newest[b.Schedule], b.Began)
		}
	}
	return newest
}

// foreseen is what other loops and pages read of deadlines.
type foreseen struct {
	running sync.WaitGroup
	// turn: one night is played at a time, so that a controller of many Veleros uses one
	// processor for it.
	turn sync.Mutex

	mu     sync.Mutex
	on     bool
	known  bool // what is wanted of all Backups was read in this term; else that of wants
	nights map[string]Night
	wants  map[string]map[string]Wanted // by namespace and name
	// late is in how many forecasts, one after the other, a deadline was or will be missed; by
	// namespace.
	late map[string]map[string]int
}

func (f *foreseen) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.known, f.nights, f.wants, f.late = true, false, map[string]Night{}, map[string]map[string]Wanted{}, map[string]map[string]int{}
}

// end of a term.
func (f *foreseen) end() {
	f.mu.Lock()
	f.on, f.known, f.nights, f.wants = false, false, nil, nil
	f.mu.Unlock()
	f.running.Wait()
}

// following tells whether anybody reads what is foreseen.
func (f *foreseen) following() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on
}

// forget while deadlines are not followed.
func (f *foreseen) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.nights)
	clear(f.wants)
	f.known = true
}

// keep only what concerns these Veleros, all of which a round has read.
func (f *foreseen) keep(veleros map[string][]*Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.nights, func(namespace string, _ Night) bool { _, there := veleros[namespace]; return !there })
	maps.DeleteFunc(f.wants, func(namespace string, _ map[string]Wanted) bool { _, there := veleros[namespace]; return !there })
	f.known = true
}

func (f *foreseen) list() []Night {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.nights), func(a, b Night) int { return cmp.Compare(a.Namespace, b.Namespace) })
}

func (f *foreseen) wanted(namespace, name string) Wanted {
	f.mu.Lock()
	defer f.mu.Unlock()
	wants, read := f.wants[namespace]
	if !read && !f.known {
		return Wanted{Unknown: true}
	}
	return wants[name]
}

// listing is how long decisions wait for the Schedules, which may be forbidden to list.
const listing = 10 * time.Second

// schedulesReady tells whether the Schedules are listed, or no longer waited for. They are
// watched from the first round on in which deadlines are enabled.
func (r *Reconciler) schedulesReady(ctx context.Context, s Settings) bool {
	if !s.Deadlines.Enabled {
		return true
	}
	if r.watching.IsZero() {
		r.watching = time.Now()
		for namespace, schedules := range r.cache.schedules {
			r.loop.Watch(func() { store.Run(ctx, schedules, r.Schedules.Namespace(namespace), "") })
		}
	}
	if r.cache.schedulesListed() {
		r.unlisted = false
		return true
	}
	late := time.Since(r.watching) >= listing
	if late && !r.unlisted {
		r.unlisted = true
		r.Log.Warn("failed to list velero's schedules; deadlines follow the annotations of backups and namespaces only; may the controller list and watch schedules.velero.io?")
	}
	return late
}

// deadlines sets what is wanted of the Backups of an input, and foresees their night.
func (r *Reconciler) deadlines(s Settings, namespace string, v *velero, in *Input, objects, left []*Object) {
	var loads *uploads.State
	if s.Deadlines.Enabled && r.Uploads != nil {
		loads = r.Uploads(namespace)
	}
	v.see(in.Time, objects, left, loads)
	v.aims = nil
	if !s.Deadlines.Enabled {
		r.foreseen.forget()
		return
	}
	schedules := r.cache.schedulesOf(namespace)
	v.seeSchedules(in.Time, schedules)
	w := newWanted(in.Time, s.Deadlines, schedules, r.cache.annotations(), &v.learned, loads)
	v.aims = w.setAll(in.Backups, byUID(objects))
	wants := map[string]Wanted{}
	for _, o := range slices.Concat(objects, left) {
		if o.Backup.begun() {
			wants[o.Name] = w.of(o)
		}
	}
	r.foreseen.want(namespace, wants)
	r.publishProblems(v, w)
	r.foresee(w, namespace, *in, objects, left)
}

func (f *foreseen) want(namespace string, wants map[string]Wanted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wants[namespace] = wants
}

// foreseeEvery is how often a night is played at most: it takes up to two seconds of a
// processor.
const foreseeEvery = time.Minute

// foresee plays the night of a Velero beside the rounds, with values of its own, as soon as
// those of others are played.
func (r *Reconciler) foresee(w *wanted, namespace string, in Input, objects, left []*Object) {
	f := &r.foreseen
	v := r.velero[namespace]
	known := w.uploads != nil && !v.uploads // a new leader knows them later than the Backups
	if w.now.Sub(v.foreseen) < foreseeEvery && !known || !v.playing.CompareAndSwap(false, true) {
		return
	}
	v.foreseen, v.uploads = w.now, w.uploads != nil
	own := *w
	own.patience.over = func() bool { return !f.following() }
	own.runs, own.slots, own.estimates = w.runs.Clone(), w.slots.Clone(), map[estimated][2]durations.Estimate{}
	in.Backups, in.Namespaces = slices.Clone(in.Backups), in.Namespaces.clone()
	for _, o := range left {
		if o.Backup.finishing() {
			b := o.Backup
			own.set(&b, o.Annotations)
			in.Backups = append(in.Backups, b)
		}
	}
	f.running.Go(func() {
		defer v.playing.Store(false)
		f.turn.Lock()
		defer f.turn.Unlock()
		if !f.following() {
			return
		}
		r.publishNight(own.night(namespace, in, objects, left), own.schedules)
	})
}

// Reasons of Events about deadlines.
const (
	ReasonInvalidObjective = "InvalidObjective"
	ReasonWillMiss         = "DeadlineWillBeMissed"
	ReasonMissed           = "DeadlineMissed"
)

// publishNight publishes what was foreseen.
func (r *Reconciler) publishNight(n Night, schedules map[string]*Schedule) {
	f := &r.foreseen
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return
	}
	f.nights[n.Namespace] = n
	was, said := f.late[n.Namespace], map[string]int{}
	f.late[n.Namespace] = said
	for i := range n.Schedules {
		state := &n.Schedules[i]
		times := func(reason string) int {
			key := reason + " " + state.Name + " " + state.Deadline.UTC().String()
			said[key] = was[key] + 1
			return said[key]
		}
		if state.WillMiss() && times(ReasonWillMiss) == saidTimes {
			r.publishLate(schedules[state.Name], state)
		}
		if state.Missed && times(ReasonMissed) == 1 {
			r.publishMissed(schedules[state.Name], state)
		}
	}
}

// saidTimes is how many forecasts must say that a deadline will be missed until it is
// published: one close call may turn.
const saidTimes = 2

func (r *Reconciler) publishLate(s *Schedule, state *ScheduleState) {
	text := fmt.Sprintf("will miss its deadline %s by %s, because %s", state.Deadline.Format(time.RFC3339), problems.Minutes(seconds(*state.LateSeconds)), state.Because)
	if len(state.Helps) > 0 {
		text += "; would be in time with " + strings.Join(state.Helps, ", or with ")
	}
	r.Log.Warn("schedule will miss its deadline", "schedule", s.Namespace+"/"+s.Name, "deadline", state.Deadline, "reason", text)
	r.Events.Event(s.reference(), corev1.EventTypeWarning, ReasonWillMiss, text)
}

func (r *Reconciler) publishMissed(s *Schedule, state *ScheduleState) {
	text := "no good Backup was complete by " + state.Deadline.Format(time.RFC3339)
	if !state.Newest.IsZero() {
		text += "; the newest good one was started at " + state.Newest.Format(time.RFC3339)
	}
	r.Log.Warn("schedule has missed its deadline", "schedule", s.Namespace+"/"+s.Name, "deadline", state.Deadline, "reason", text)
	r.Events.Event(s.reference(), corev1.EventTypeWarning, ReasonMissed, text)
}

// problemEvery is how often a problem of a Schedule is said at most: tenants write some of these
// annotations.
const problemEvery = 5 * time.Minute

// publishProblems says which annotations of Schedules are not followed: once, and again where that
// comes back or has another text.
func (r *Reconciler) publishProblems(v *velero, w *wanted) {
	was := v.problems
	v.problems = map[problemOf]saidProblem{}
	for key, said := range was {
		if w.now.Sub(said.at) < problemEvery {
			v.problems[key] = said
		}
	}
	for _, s := range w.schedules {
		next := s.backupAt(w.now)
		for _, p := range s.problems(w.aimOf(&next, s.Annotations)) {
			key := problemOf{s.UID, p.about}
			said, there := was[key]
			if _, recent := v.problems[key]; !recent && (!there || said.text != p.text) {
				said = saidProblem{p.text, w.now}
				r.Log.Warn("a schedule is not followed as it is written; correct it", "schedule", s.Namespace+"/"+s.Name, "reason", p.text)
				r.Events.Event(s.reference(), corev1.EventTypeWarning, ReasonInvalidObjective, p.text)
			}
			v.problems[key] = said
		}
	}
}

// problemOf a Schedule, about one of its annotations or fields.
type problemOf struct {
	schedule types.UID
	about    string
}

// saidProblem is what was said last of a problem.
type saidProblem struct {
	text string
	at   time.Time
}

// reference is the object of an Event.
func (s *Schedule) reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "velero.io/v1", Kind: "Schedule", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}
