package backup

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// reference is the object of an Event.
func reference(o *Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "velero.io/v1", Kind: "Backup", Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// Reasons of Events.
const (
	ReasonQueued  = "BackupQueued"
	ReasonStarts  = "BackupStarts"
	ReasonStuck   = "BackupNotTakenUp"
	ReasonOdd     = "BackupInvalidAnnotation"
	ReasonInvalid = "BackupInvalidNamespaces"
	ReasonPilesUp = "ScheduleTooFrequent"
	ReasonRefused = "BackupChangeRefused"
)

// publishedState is what was last logged and published of a Backup.
type publishedState struct {
	code            Code
	by              string
	queued          bool // by an Event
	stuck, odd, bad bool
	piled           bool
}

type uidPhase struct {
	uid   types.UID
	phase Phase
}

// publish logs changed reasons of waiting Backups, and publishes as Events what needs
// attention.
func (r *Reconciler) publish(v *velero, p *planner, d *Decision) {
	ahead := map[string]string{} // by schedule
	for i := range d.Queue {
		e := &d.Queue[i]
		o := p.objects[e.UID]
		t := v.published[e.UID]
		t.stuck = false // it waits, again where it was postponed
		r.publishInvalid(v, &t, o, e)
		if !e.Start && !e.Overtakes && e.Wait.Code != CodeNew {
			r.logWait(&t, p, o, e)
		}
		if first, same := ahead[e.Schedule]; same && e.Schedule != "" && !t.piled {
			t.piled = true
			r.Events.Event(reference(o), corev1.EventTypeWarning, ReasonPilesUp, fmt.Sprintf("schedule %s already has Backup %s waiting: it creates Backups faster than they run", e.Schedule, first))
		}
		ahead[e.Schedule] = e.Name
		v.published[e.UID] = t
	}
	for _, b := range d.Stuck {
		r.publishStuck(v, p, b, beyond(len(d.Stuck), d.Limit) == 0)
	}
	for uid := range v.published {
		if _, there := p.objects[uid]; !there {
			delete(v.published, uid)
		}
	}
}

// logWait logs a new reason. Far behind in the queue BlockedBy changes with every
// Backup that ends, which is not logged.
func (r *Reconciler) logWait(t *publishedState, p *planner, o *Object, e *Entry) {
	if t.code == e.Wait.Code && (t.by == e.Wait.By || e.Place > exactPositions) {
		return
	}
	t.code, t.by = e.Wait.Code, e.Wait.By
	why := "the limit of running Backups is reached"
	switch e.Wait.Code { //nolint:exhaustive // the others are told by what it waits for
	case CodeWindow:
		why = e.Due.Waits()
	case CodeRefused:
		why = "the API server refuses to change it"
	}
	by, known := p.objects[e.Wait.By]
	if known {
		why = fmt.Sprintf("it shares %s with Backup %s, which %s", namespacesOf(e.Wait), by.Name, map[Code]string{CodeRunning: "runs", CodeAhead: "waits ahead of it", CodeRefused: "was queued before it and which the API server refuses to change"}[e.Wait.Code])
	}
	attributes := []any{"backup", o.Namespace + "/" + o.Name, "reason", why, "code", string(e.Wait.Code), "place", e.Place}
	if known {
		attributes = append(attributes, "blockedBy", by.Name, "namespaces", strings.Join(e.Wait.Namespaces, ","), "shared", e.Wait.Shared)
	}
	r.Log.Info("backup waits", attributes...)
	if t.queued {
		return
	}
	t.queued = true
	r.Events.Event(reference(o), corev1.EventTypeNormal, ReasonQueued, fmt.Sprintf("at place %d: %s", e.Place, why))
}

// namespacesOf lists the namespaces of a conflict.
func namespacesOf(w Wait) string {
	switch {
	case w.Invalid != nil:
		return "everything"
	case w.Shared == 1:
		return "namespace " + w.Namespaces[0]
	case w.Shared > len(w.Namespaces):
		return fmt.Sprintf("%d namespaces (%s, …)", w.Shared, strings.Join(w.Namespaces, ", "))
	}
	return "namespaces " + strings.Join(w.Namespaces, ", ")
}

func (r *Reconciler) publishInvalid(v *velero, t *publishedState, o *Object, e *Entry) {
	wrong := v.wrongAnnotations(o)
	if wrong != "" && !t.odd {
		r.Events.Event(reference(o), corev1.EventTypeWarning, ReasonOdd, wrong)
	}
	t.odd = wrong != ""
	set := r.names.setOf(e.Backup)
	if (set.Invalid != nil || set.Rejected != nil) && !t.bad {
		t.bad = true
		r.Events.Event(reference(o), corev1.EventTypeWarning, ReasonInvalid, invalidText(set))
	}
}

// wrongAnnotations are those of a Backup, or of its namespace, that are not followed; those
// of its Schedule are said there.
func (v *velero) wrongAnnotations(o *Object) string {
	a, followed := v.aims[string(o.UID)]
	if !followed && o.AnnotationErr != nil {
		return o.AnnotationErr.Error()
	}
	var list []string
	for _, p := range a.Problems {
		switch p.Kind {
		case objective.Schedule:
		case objective.Namespace:
			list = append(list, "namespace "+p.Name+": "+p.Text)
		case objective.Backup:
			list = append(list, p.Text)
		}
	}
	return strings.Join(list, "; ")
}

// invalidText says what follows from invalid patterns.
func invalidText(s Set) string {
	if s.Rejected != nil {
		return s.Rejected.Error() + "; Velero will fail it as soon as it starts (FailedValidation)"
	}
	return s.Invalid.Error() + "; it counts as overlapping with every other Backup"
}

// publishStuck publishes that a Backup is stuck. freed: all that are free their slots.
func (r *Reconciler) publishStuck(v *velero, p *planner, b *Backup, freed bool) {
	t := v.published[b.UID]
	if t.stuck {
		return
	}
	t.stuck = true
	v.published[b.UID] = t
	since := p.now.Sub(b.ReadySince).Round(time.Second)
	r.Log.Warn("backup is stuck: velero does not take it up; check that its server runs", "backup", b.Namespace+"/"+b.Name, "since", since, "freedSlot", freed)
	r.Events.Event(reference(p.objects[b.UID]), corev1.EventTypeWarning, ReasonStuck,
		fmt.Sprintf("ReadyToStart for %s and Velero does not take it up: check that its server runs, with --concurrent-backups equal to the queue's limit", since))
}

// logWrite logs a successful write.
func (r *Reconciler) logWrite(w write) {
	name := w.object.Namespace + "/" + w.object.Name
	switch w.kind {
	case kindStart:
		waited := time.Since(w.object.Backup.Created)
		r.counters.Change(func(c *Counts) { c.Waits.Add(w.object.Namespace, waited, Buckets()) })
		waited = waited.Round(time.Second)
		r.Log.Info("backup starts", "backup", name, "waited", waited)
		r.Events.Event(reference(w.object), corev1.EventTypeNormal, ReasonStarts, fmt.Sprintf("waited %s", waited))
	case kindTouch:
		r.Log.Info("touched backup to remind velero of it", "backup", name, "since", w.patch.waiting.Since)
	case kindReturn:
		r.Log.Info("requeued backup that velero did not take up", "backup", name)
	case kindQueue, kindPosition, kindWaiting, kindClean:
		r.Log.Debug("wrote backup", "backup", name, "write", string(w.kind))
	}
}

// publishRefusal publishes that a write is refused. The Event has the version of the Backup; so
// has its text, since Events of the same text are one, with the version of the first.
func (r *Reconciler) publishRefusal(w write, err error) {
	b, version, why := &w.object.Backup, w.object.ResourceVersion, reconcile.Why(err)
	follows := ""
	if b.waits() {
		follows = "; it does not start, and Backups queued after it that share a namespace with it wait for it"
	}
	r.Log.Warn("the api server refuses to change a backup; others go on; correct what refuses it, such as an admission policy, or delete the backup", "backup", w.object.Namespace+"/"+w.object.Name, "write", string(w.kind), "error", why)
	about := reference(w.object)
	about.ResourceVersion = version
	r.Events.Event(about, corev1.EventTypeWarning, ReasonRefused,
		fmt.Sprintf("the API server refuses to change it: %s%s; correct what refuses it, such as an admission policy, or delete the Backup; it is tried again after %s, or when it has changed; its resourceVersion is %s", why, follows, problems.Duration(RefusedFor), version))
}
