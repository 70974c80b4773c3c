package backup

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// OnMiss is what becomes of a Backup that does not keep its window.
type OnMiss string

// The values.
const (
	OnMissRun      OnMiss = "run"
	OnMissPostpone OnMiss = "postpone"
)

// DeadlineSettings are those of deadlines.
type DeadlineSettings struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the queue follows the annotations plimsoll.dev/rpo and plimsoll.dev/window of Schedules, Backups and namespaces (and plimsoll.dev/priority of all three, with backups.priorities), and forecasts which Backups will be late. Without such an annotation or default the queue is as without deadlines."`
	RPO      time.Duration `yaml:"rpo" why:"How old the newest good Backup of a schedule may become, from its start, where no annotation says; 0: any age."`
	Window   string        `yaml:"window" unit:"HH:MM-HH:MM zone" why:"The backup window where no annotation says, such as 22:00-06:00 Europe/Berlin: the time of day in which a Backup starts and is complete; empty: any time."`
	First    string        `yaml:"firstWindow" unit:"HH:MM-HH:MM zone" why:"When the first Backup of a schedule starts, which is a full one and takes longest: a Backup of a schedule that has no good Backup yet waits until this time of day, in place of the default window, unless the schedule creates its next one before that, or an annotation plimsoll.dev/window of the Schedule or the Backup says otherwise; empty: it is as any other."`
	Priority int           `yaml:"priority" why:"The priority of a Backup where no annotation says, with backups.priorities: the higher comes first. A namespace's annotation reaches neither above it nor above 0."`
	OnMiss   OnMiss        `yaml:"onMiss" unit:"run or postpone" why:"What becomes of a Backup that did not start in its window, and of uploads that did not begin in it. run: they start all the same. postpone: they wait for the next window, uploads no longer than Velero's timeout allows, and not where the window is a namespace's."`
}

// Validate says which values must not be used.
func (d DeadlineSettings) Validate(at problems.Section) {
	if d.RPO != 0 {
		at.Duration("rpo", d.RPO, objective.LeastRPO, objective.MostRPO)
	}
	at.Int("priority", d.Priority, math.MinInt32, math.MaxInt32)
	at.OneOf("onMiss", string(d.OnMiss), string(OnMissRun), string(OnMissPostpone))
	for key, text := range map[string]string{"window": d.Window, "firstWindow": d.First} {
		if _, err := objective.ParseWindow(text); err != nil && text != "" {
			at.Must(false, err.Error()+", got "+problems.Quote(text), key)
		}
	}
}

// window that a setting says; zero: none.
func window(text string) (w objective.Window) {
	if text != "" {
		w, _ = objective.ParseWindow(text) // a bad one is no configuration
	}
	return w
}

// defaults of an objective.
func (d DeadlineSettings) defaults() objective.Objective {
	return objective.Objective{RPO: d.RPO, Priority: int32(d.Priority), Window: window(d.Window)}
}

// bounds of what a namespace's annotations reach.
func (d DeadlineSettings) bounds() objective.Bounds {
	b := objective.DefaultBounds()
	b.Priority = min(b.Priority, int32(d.Priority))
	return b
}

// wanted is what is wanted of the Backups of one Velero, and what was learned of them.
type wanted struct {
	now      time.Time
	settings DeadlineSettings
	defaults objective.Objective
	first    objective.Window // of first Backups
	bounds   objective.Bounds
	// schedules by the label of their Backups.
	schedules map[string]*Schedule
	// annotations of the namespaces.
	annotations map[string]map[string]string
	// newest is when the newest good Backup of each schedule was started.
	newest map[string]time.Time
	// crons by the UID of their Schedules.
	crons map[types.UID]cronSeen
	// runs are the Backups as a whole, and slots only the time in which they take a slot.
	runs, slots *durations.History
	pace        float64
	// estimates of the two.
	estimates map[estimated][2]durations.Estimate
	// uploads are the data mover loads; nil: they are not known.
	uploads *uploads.State
	// patience with the plays of a night.
	patience patience
}

// Aim is the objective of a Backup, and the annotations that are not followed.
type Aim struct {
	objective.Objective

	Problems []objective.Problem
}

// newWanted is what is wanted in a round. annotations are those of the namespaces.
func newWanted(now time.Time, d DeadlineSettings, schedules []*Schedule, annotations map[string]map[string]string, l *learned, loads *uploads.State) *wanted {
	w := &wanted{
		now: now, settings: d, defaults: d.defaults(), first: window(d.First), bounds: d.bounds(), schedules: map[string]*Schedule{},
		newest: l.newest, crons: l.crons, annotations: annotations, runs: &l.runs, slots: &l.slots, pace: l.runs.Pace(now), estimates: map[estimated][2]durations.Estimate{},
		uploads: loads,
	}
	for _, s := range schedules {
		w.schedules[s.Name] = s
	}
	return w
}

// WithDeadlines sets what is wanted of the Backups of an input, as the controller does, and
// returns it by UID. objects are all Backups of one Velero, annotations those of the
// namespaces.
func WithDeadlines(in *Input, d DeadlineSettings, objects []*Object, schedules []*Schedule, annotations map[string]map[string]string) map[string]Aim {
	if !d.Enabled {
		return nil
	}
	var l learned
	l.see(in.Time, nil, objects, nil)
	w := newWanted(in.Time, d, schedules, annotations, &l, nil)
	return w.setAll(in.Backups, byUID(objects))
}

// setAll does so for each of a list.
func (w *wanted) setAll(list []Backup, objects map[string]*Object) map[string]Aim {
	aims := make(map[string]Aim, len(list))
	for i := range list {
		b := &list[i]
		aims[b.UID] = w.set(b, objects[b.UID].Annotations)
	}
	return aims
}

// aimOf is what is wanted of a Backup with these annotations.
func (w *wanted) aimOf(b *Backup, annotations map[string]string) Aim {
	var sources []objective.Source
	period := time.Duration(0)
	if s := w.schedules[b.Schedule]; s != nil && b.Schedule != "" {
		period = s.Period
		sources = append(sources, objective.Source{Kind: objective.Schedule, Name: s.Name, Annotations: s.Annotations})
	}
	sources = append(sources, objective.Source{Kind: objective.Backup, Name: b.Name, Annotations: annotations})
	if name, alone := onlyNamespace(b); alone {
		sources = append(sources, objective.Source{Kind: objective.Namespace, Name: name, Annotations: w.annotations[name]})
	}
	o, found := objective.Resolve(w.defaults, w.bounds, period, sources...)
	return Aim{o, found}
}

// onlyNamespace is the namespace of a Backup of one alone.
func onlyNamespace(b *Backup) (name string, alone bool) {
	if len(b.Include) != 1 || strings.ContainsAny(b.Include[0], "*?[") {
		return "", false
	}
	return b.Include[0], true
}

// due is when a Backup with that objective is due, and until when that holds; zero: it stays
// so. One that waits beyond its window, or that Velero has not taken up in it, is due in the next
// one, where it is postponed, and opens with that also while it is open.
func (w *wanted) due(o objective.Objective, b *Backup, now, newest time.Time) (due objective.Due, until time.Time) {
	if w.settings.OnMiss != OnMissPostpone || !o.Window.Set() || !b.waits() && !b.untaken() || w.isFirst(o, b, newest) {
		return w.dueOnce(o, b, newest), until
	}
	from := b.Created
	if _, closes := o.Window.Next(from); !now.Before(closes) {
		from = now
	}
	opens, until := o.Window.Next(from)
	if due = o.Due(w.bounds, from, newest); opens.After(b.Created) {
		due.Opens = opens
	}
	return due, until
}

// dueOnce is when it is due where it is not postponed.
func (w *wanted) dueOnce(o objective.Objective, b *Backup, newest time.Time) objective.Due {
	if !w.isFirst(o, b, newest) {
		return o.Due(w.bounds, b.Created, newest)
	}
	o.Window = objective.Window{}
	d := o.Due(w.bounds, b.Created, newest)
	if opens, _ := w.first.Next(b.Created); opens.After(b.Created) {
		d.Opens, d.First = opens, true
		if d.DeadlineBounded {
			d.Deadline = later(d.Deadline, opens.Add(w.bounds.Least))
		}
	}
	return d
}

// isFirst tells whether a Backup has the window of first Backups: its Schedule, whose newest
// good one that is (zero: none), has none, and does not come again before that window opens. A
// tenant's window is no other one: only the administrator lets first Backups run by night.
func (w *wanted) isFirst(o objective.Objective, b *Backup, newest time.Time) bool {
	s := w.schedules[b.Schedule]
	if !w.first.Set() || o.WindowSaid && !o.Bounded.Window || !newest.IsZero() || s == nil || b.Schedule == "" {
		return false
	}
	opens, _ := w.first.Next(b.Created)
	again := s.Cron.Next(b.Created)
	return again.IsZero() || !opens.After(again)
}

// set fills in what is wanted of a Backup, when it is due and how long it takes.
func (w *wanted) set(b *Backup, annotations map[string]string) Aim {
	a := w.aimOf(b, annotations)
	b.Priority = a.Priority
	due, until := w.due(a.Objective, b, w.now, w.newest[b.Schedule])
	b.Due, b.Postponed = due, !until.IsZero() && due.Opens.After(w.now)
	w.estimate(b)
	return a
}

// estimated is what an estimate is of: the Backups of a schedule that begin in an hour.
type estimated struct {
	schedule string
	hour     int64
}

func (w *wanted) estimate(b *Backup) {
	begins := later(w.now, later(b.Created, b.Due.Opens))
	if !b.Began.IsZero() {
		begins = b.Began
	}
	begins = begins.Truncate(time.Hour)
	of := estimated{b.Schedule, begins.Unix()}
	e, known := w.estimates[of]
	if !known {
		e = [2]durations.Estimate{w.runs.Next(b.Schedule, durations.Unknown, 0, begins).Scaled(w.pace), w.slots.Next(b.Schedule, durations.Unknown, 0, begins).Scaled(w.pace)}
		if b.Schedule == "" {
			e[0].Why = "no schedule created it, so no other Backup tells how long it takes"
		}
		w.estimates[of] = e
	}
	b.Takes, b.Holds = e[0], e[1]
	if kind, bytes := w.size(b); bytes > 0 {
		b.Takes = w.runs.Next(b.Schedule, kind, bytes, begins).Scaled(w.pace)
	}
}

// size of a Backup that runs and whose data mover loads are all known, with their bytes: one
// that is InProgress may create more.
func (w *wanted) size(b *Backup) (durations.Kind, int64) {
	if w.uploads == nil || b.Schedule == "" || !b.finishing() {
		return durations.Unknown, 0
	}
	s := w.uploads.Sizes[b.Name]
	if s.Unknown > 0 {
		return durations.Unknown, 0
	}
	return sizeOf(s)
}

// mostToCome bounds the Backups that are foreseen before they are created: a Schedule may
// create one each minute.
const mostToCome = 2000

// coming are the Backups that Schedules create from now until then, beside those that exist:
// the first of each Schedule, as many of one as of another. omitted is of how many Schedules
// later ones are left out.
func (w *wanted) coming(until time.Time, exist map[string][]*Object) (list []Backup, omitted int) {
	creating := maps.Clone(w.schedules)
	maps.DeleteFunc(creating, func(_ string, s *Schedule) bool { return s.Paused })
	for label, s := range creating {
		at, n := s.next(w.now, exist[label]), 0
		for ; !at.IsZero() && !at.After(until); at = s.Cron.Next(at) {
			if n++; n > max(1, mostToCome/len(creating)) {
				omitted++
				break
			}
			list = append(list, s.backupAt(at))
		}
	}
	slices.SortFunc(list, func(a, b Backup) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for i := range list {
		w.set(&list[i], w.schedules[list[i].Schedule].Annotations)
	}
	return list, omitted
}

// foreseenFor is how far a night is played forward.
const foreseenFor = 24 * time.Hour

// night is what is foreseen, and what became of each Schedule. left are the Backups that
// have left the queue. It may be called beside other rounds: in and w are its own.
func (w *wanted) night(namespace string, in Input, objects, left []*Object) Night {
	exist := map[string][]*Object{}
	for _, o := range slices.Concat(objects, left) {
		exist[o.Backup.Schedule] = append(exist[o.Backup.Schedule], o)
	}
	until := w.now.Add(foreseenFor)
	coming, omitted := w.coming(until, exist)
	annotations := map[string]map[string]string{}
	for _, o := range objects {
		annotations[string(o.UID)] = o.Annotations
	}
	dues := func(b *Backup, now, newest time.Time) (objective.Due, time.Time) {
		of := annotations[b.UID]
		if s := w.schedules[b.Schedule]; of == nil && s != nil {
			of = s.Annotations
		}
		return w.due(w.aimOf(b, of).Objective, b, now, later(newest, w.newest[b.Schedule]))
	}
	p := premises{patience: w.patience, in: in, coming: coming, dues: dues, until: until}
	n := Night{Namespace: namespace, From: w.now, Limit: max(1, in.Config.Limit), Omitted: omitted, Backups: []Foreseen{}, Schedules: []ScheduleState{}}
	for _, o := range p.forecast(w.uploads) {
		n.Backups = append(n.Backups, o.foreseen())
	}
	n.Until, n.Cut = p.until, p.until.Before(until)
	slices.SortStableFunc(n.Backups, func(a, b Foreseen) int {
		return cmp.Or(compareBool(!a.Begins.IsZero(), !b.Begins.IsZero()), a.Begins.Compare(b.Begins), cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Name, b.Name))
	})
	foreseen := map[string][]*Foreseen{}
	for i := range n.Backups {
		f := &n.Backups[i]
		foreseen[f.Schedule] = append(foreseen[f.Schedule], f)
	}
	for label, s := range w.schedules {
		state := w.stateOf(s, exist[label])
		state.foresee(foreseen[label], exist[label], n.Until, w.settings.OnMiss)
		n.Schedules = append(n.Schedules, state)
	}
	slices.SortFunc(n.Schedules, func(a, b ScheduleState) int { return cmp.Compare(a.Name, b.Name) })
	return n
}

// foreseen is an Outlook for people.
func (o *Outlook) foreseen() Foreseen {
	f := Foreseen{
		Name: o.Name, Schedule: o.Schedule, Phase: o.Phase, Created: o.Created, Opens: o.Due.Opens, First: o.Due.First, Deadline: o.Due.Deadline,
		Begins: o.Begins, Ends: o.Ends, Earliest: o.Earliest, Latest: o.Latest,
		LateSeconds: o.Late.Seconds(), Because: o.Because, Helps: o.Helps, Why: o.Why,
	}
	if strings.HasPrefix(o.UID, "to come: ") {
		f.Name = ""
	}
	return f
}

// stateOf a Schedule with its Backups. Each Backup since the newest good one has a deadline,
// and so have the Schedule, where it has an RPO, and its next Backup, whether or not Velero
// creates it: the first of them is the Schedule's.
func (w *wanted) stateOf(s *Schedule, backups []*Object) ScheduleState {
	next := s.backupAt(w.now)
	a := w.aimOf(&next, s.Annotations)
	state := ScheduleState{
		Name: s.Name, Cron: s.Expression, Paused: s.Paused, RPOSeconds: a.RPO.Seconds(), Priority: a.Priority,
		Newest: w.newest[s.Name],
	}
	if a.Window.Set() {
		state.Window = a.Window.String()
	}
	for _, p := range s.problems(a) {
		state.Problems = append(state.Problems, p.text)
	}
	// What came before it was unpaused, or had this expression, was not to come.
	if from := later(state.Newest, later(s.CreationTimestamp.Time, w.crons[s.UID].since)); !s.Paused {
		if a.RPO > 0 && !a.Bounded.RPO { // else its next Backup has it, within its bound
			state.dueBy(from.Add(a.RPO))
		}
		if at := s.Cron.Next(from); !at.IsZero() {
			b := s.backupAt(at)
			state.dueBy(w.dueOnce(a.Objective, &b, state.Newest).Deadline)
		}
	}
	for _, o := range backups {
		if o.made().After(state.Newest) && !o.good() && o.DeletionTimestamp == nil {
			state.dueBy(w.dueOnce(w.aimOf(&o.Backup, o.Annotations).Objective, &o.Backup, state.Newest).Deadline)
		}
	}
	state.Missed = !state.Deadline.IsZero() && w.now.After(state.Deadline)
	e := w.runs.Next(s.Name, durations.Unknown, 0, time.Time{})
	state.Runs, state.UsualSeconds, state.LeastSeconds, state.LongestSeconds = e.Runs-e.Failures, e.Mid.Seconds(), e.Low.Seconds(), e.High.Seconds()
	return state
}

// dueBy makes the Schedule due by a time, if it is not due before; zero: there is none.
func (s *ScheduleState) dueBy(t time.Time) {
	if !t.IsZero() && (s.Deadline.IsZero() || t.Before(s.Deadline)) {
		s.Deadline = t
	}
}

// problem of a Schedule, about one of its annotations or fields.
type problem struct{ about, text string }

// problems of a Schedule with this aim, for people who know which Schedule it is.
func (s *Schedule) problems(a Aim) (list []problem) {
	for _, p := range a.Problems {
		text := p.Text
		if p.Kind == objective.Namespace {
			text = "namespace " + p.Name + ": " + text
		}
		list = append(list, problem{p.Key, text})
	}
	if s.CronErr != nil {
		list = append(list, problem{"schedule", s.CronErr.Error()})
	}
	if len(s.Name) > validation.LabelValueMaxLength {
		list = append(list, problem{"name", fmt.Sprintf("its name is longer than %d characters, so the API server refuses its Backups: Velero writes the name as a label of each. Make a Schedule with a shorter name", validation.LabelValueMaxLength)})
	}
	return list
}

// Wanted is what is wanted of a Backup that runs.
type Wanted struct {
	// LatestStart is when what is left of it must begin, taking as long as expected, to be
	// complete by its deadline, or by the end of its window where only that can be kept still;
	// zero: it has none, or can keep neither.
	LatestStart time.Time
	// PostponedUntil is when its next window opens; zero: it is not postponed. A namespace's
	// window postpones none: a Backup that is InProgress keeps a slot, which others need too.
	PostponedUntil time.Time
	// Unknown: the Backups have not been read yet.
	Unknown bool
}

// of a Backup that has begun.
func (w *wanted) of(o *Object) Wanted {
	b := o.Backup // a copy
	a := w.set(&b, o.Annotations)
	var out Wanted
	elapsed := time.Duration(0)
	if !b.Began.IsZero() {
		elapsed = max(0, w.now.Sub(b.Began))
	}
	left := b.Takes.Left(elapsed)
	if by := b.Due.Still(w.now.Add(left.Low)); !by.IsZero() {
		out.LatestStart = by.Add(-left.Mid)
	}
	if w.settings.OnMiss == OnMissPostpone && a.Window.Set() && !a.Bounded.Window && !w.isFirst(a.Objective, &b, w.newest[b.Schedule]) {
		_, closes := a.Window.Next(later(b.Created, b.Began))
		if opens, _ := a.Window.Next(w.now); !w.now.Before(closes) && opens.After(w.now) {
			out.PostponedUntil = opens
		}
	}
	return out
}
