package backup

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"
)

// kind of a write, in one word.
type kind string

// The kinds.
const (
	kindStart    kind = "start"    // set it ReadyToStart
	kindQueue    kind = "queue"    // set it Queued
	kindPosition kind = "position" // update its position
	kindWaiting  kind = "waiting"  // update why it waits
	kindTouch    kind = "touch"    // change its annotation, so that Velero sees an update
	kindClean    kind = "clean"    // remove the annotation of one that does not wait any more
	kindReturn   kind = "return"   // requeue one that Velero did not take up
)

// Kinds are all keys of Counts.Writes.
func Kinds() []string {
	return []string{string(kindStart), string(kindQueue), string(kindPosition), string(kindWaiting), string(kindTouch), string(kindClean), string(kindReturn)}
}

// write is a change of one Backup.
type write struct {
	object *Object
	kind   kind
	patch  patch
	entry  *Entry // nil for a Backup that does not wait
}

// patch of a Backup: only set fields change. Velero's Backups have no status
// subresource.
type patch struct {
	phase    Phase // empty: unchanged
	position *int
	waiting  *Waiting // nil: unchanged; the zero value: removed
}

// body is the JSON merge patch (RFC 7396) with the resource version (optimistic
// concurrency): a leader with a stale object changes nothing.
func (p *patch) body(version string) ([]byte, error) {
	meta := map[string]any{"resourceVersion": version}
	if p.waiting != nil {
		var value any
		if p.waiting.Reason != "" {
			text, err := json.Marshal(p.waiting)
			if err != nil {
				return nil, err
			}
			value = string(text)
		}
		meta["annotations"] = map[string]any{AnnotationWaiting: value}
	}
	body := map[string]any{"metadata": meta}
	status := map[string]any{}
	if p.phase != "" {
		status["phase"] = p.phase
	}
	if p.position != nil {
		status["queuePosition"] = *p.position
	}
	if len(status) > 0 {
		body["status"] = status
	}
	return json.Marshal(body)
}

// planner derives the writes that make the objects match the decision.
type planner struct {
	now     time.Time
	config  Config
	quiet   bool
	objects map[string]*Object // by UID, all of one Velero
	refused *Refusals
	// handedBack: the positions are Velero's own queue's.
	handedBack bool
}

// writes are ordered so that after any prefix the written positions still have the
// queue's order.
func (p *planner) writes(d *Decision) []write {
	var list []write
	for i := range d.Queue {
		if w, needed := p.entry(&d.Queue[i]); needed {
			list = append(list, w)
		}
	}
	return p.accepted(append(ordered(list), p.others(d)...))
}

// accepted are the writes that the API server has not refused.
func (p *planner) accepted(list []write) []write {
	return slices.DeleteFunc(list, func(w write) bool { return p.refused.hold(&w.object.Backup) })
}

// ordered sorts the writes of a queue: first starts; then positions that rise,
// from the back; then the others, from the front. So no Backup ever has the
// position of another, nor passes one.
func ordered(list []write) []write {
	var starts, rises, others []write
	for _, w := range list {
		switch now := w.object.Backup.Position; {
		case w.kind == kindStart:
			starts = append(starts, w)
		case now > 0 && *w.patch.position > now:
			rises = append(rises, w)
		default:
			others = append(others, w)
		}
	}
	slices.Reverse(rises)
	return slices.Concat(starts, rises, others)
}

// entry is the write for a Backup that waits or starts now.
func (p *planner) entry(e *Entry) (w write, needed bool) {
	o := p.objects[e.UID]
	w = write{object: o, entry: e}
	if e.Start {
		w.kind, w.patch = kindStart, patch{phase: Ready, position: new(0), waiting: &Waiting{Reason: CodeVelero, Since: p.now}}
		return w, true
	}
	waiting, news := p.waiting(o, e)
	switch {
	case e.Phase != Queued:
		w.kind = kindQueue
	case e.Position != e.WritePosition, e.WriteTurn != e.turn():
		w.kind = kindPosition
	case news && (e.Place <= exactPositions || p.quiet):
		w.kind = kindWaiting
	default:
		return w, false
	}
	w.patch = patch{phase: Queued, position: &e.WritePosition}
	if news || waiting.BlockedBy != o.Waiting.BlockedBy || waiting.Turn != o.Waiting.Turn {
		w.patch.waiting = &waiting
	}
	return w, true
}

// reasonDebounce debounces reasons: how long one must be unchanged before another is
// written for its own sake.
const reasonDebounce = time.Minute

// waiting is the desired annotation, and whether it is worth a write of its own.
// BlockedBy changes with each Backup that ends, and is only written together with
// something else.
func (p *planner) waiting(o *Object, e *Entry) (w Waiting, news bool) {
	w = Waiting{Reason: e.Wait.Code, Since: p.now, Namespaces: e.Wait.Namespaces, Shared: e.Wait.Shared, Turn: e.WriteTurn}
	if by, known := p.objects[e.Wait.By]; known {
		w.BlockedBy = by.Name
	}
	if e.Wait.Invalid != nil {
		w.Invalid = e.Wait.Invalid.Error()
	}
	if w.Reason == o.Waiting.Reason {
		w.Since = o.Waiting.Since
		return w, false
	}
	// The reason of a new Backup is replaced at once.
	return w, o.Waiting.Reason == CodeNew || p.now.Sub(o.Waiting.Since) >= reasonDebounce
}

// others are the writes for Backups that do not wait. Those that are queued again come last, until
// their positions are written anew.
func (p *planner) others(d *Decision) (list []write) {
	position := len(d.Queue)
	for _, o := range p.objects {
		switch {
		case p.postponed(o, d):
			position++
			w := Waiting{Reason: CodeWindow, Since: p.now, Turn: o.Backup.turn()}
			list = append(list, write{object: o, kind: kindReturn, patch: patch{phase: Queued, position: new(position), waiting: &w}})
		case o.Backup.Phase == Ready && !p.now.Before(p.touchAt(o)):
			w := Waiting{Reason: CodeVelero, Since: o.Waiting.Since, Touched: p.now}
			if !p.readySinceKnown(o) {
				w.Since = p.now
			}
			list = append(list, write{object: o, kind: kindTouch, patch: patch{waiting: &w}})
		case o.staleAnnotation():
			list = append(list, write{object: o, kind: kindClean, patch: patch{waiting: &Waiting{}}})
		}
	}
	return list
}

// postponed tells whether a Backup that we let start is to wait for its next window.
func (p *planner) postponed(o *Object, d *Decision) bool {
	return o.Backup.Phase == Ready && p.readySinceKnown(o) && p.now.Sub(o.Waiting.Since) >= requeueAfter &&
		slices.ContainsFunc(d.Postponed, func(b *Backup) bool { return b.UID == o.Backup.UID })
}

// The exponential backoff of touches, which remind Velero of a Backup: bounds of
// the first and of the longest interval.
const (
	firstTouch = 30 * time.Second
	lastTouch  = 10 * time.Minute
	// minTouches is the least number of them before a Backup counts as stuck.
	minTouches = 8
)

// readySinceKnown tells whether the time since which it is ReadyToStart is valid: not where
// another client set it so, nor where that time is in the future, by which it
// would keep a slot until then.
func (p *planner) readySinceKnown(o *Object) bool {
	return o.Waiting.Reason == CodeVelero && !inFuture(o.Waiting.Since, p.now)
}

// inFuture tells whether a time is further in the future than clock skew between
// leaders explains.
func inFuture(t, now time.Time) bool { return t.Sub(now) > time.Minute }

// touchAt is when the Backup is to be touched next, with exponential backoff; zero: now.
// Velero's server takes a Backup up on an update event, and misses those before
// its start.
func (p *planner) touchAt(o *Object) time.Time {
	if !p.readySinceKnown(o) {
		return time.Time{}
	}
	first := firstTouch
	if p.config.StuckAfter > 0 {
		first = min(first, p.config.StuckAfter/minTouches)
	}
	since := o.Waiting.Since
	last := since
	if o.Waiting.Touched.After(since) && !inFuture(o.Waiting.Touched, p.now) {
		last = o.Waiting.Touched
	}
	wait := min(max(first, last.Sub(since)), lastTouch)
	return last.Add(wait + time.Second - 1).Truncate(time.Second) // p.now has whole seconds
}

// pause until time alone may change what is decided or written: a window opens or closes, a
// Backup is to be touched, or becomes stuck.
func (p *planner) pause(in *Input) time.Duration {
	pause := time.Duration(math.MaxInt64)
	until := func(t time.Time) {
		if t.After(in.Time) {
			pause = min(pause, t.Sub(in.Time))
		}
	}
	for i := range in.Backups {
		until(p.refused.Until(key(&in.Backups[i])))
		switch b := &in.Backups[i]; {
		case b.waits():
			until(b.Due.Opens)
			until(b.Due.Closes)
		case b.Phase == Ready:
			until(p.touchAt(p.objects[b.UID]))
			until(b.ReadySince.Add(in.Config.StuckAfter))
			until(b.Due.Closes)
		}
	}
	return pause
}

// handBack are the next writes of the hand-back to Velero's own queue. First each
// position as it is, once. Then our annotations are removed, from the front (a Backup
// without a turn comes before all that have one, should the queue be enabled again
// meanwhile), and Backups that Velero did not take up are requeued at the front,
// because a server that has just started ignores them. last: nothing is to be
// written after that.
func (p *planner) handBack(d *Decision) (list []write, last bool) {
	first := p.notTakenUp()
	if !p.handedBack {
		if list = p.exact(d, len(first)); len(list) > 0 {
			return ordered(list), false
		}
	}
	for i := range d.Queue {
		if o := p.objects[d.Queue[i].UID]; o.Annotated {
			list = append(list, write{object: o, entry: &d.Queue[i], kind: kindClean, patch: patch{waiting: &Waiting{}}})
		}
	}
	for i, o := range first {
		list = append(list, write{object: o, kind: kindReturn, patch: patch{phase: Queued, position: new(i + 1), waiting: &Waiting{}}})
	}
	for _, o := range p.objects {
		if o.staleAnnotation() {
			list = append(list, write{object: o, kind: kindClean, patch: patch{waiting: &Waiting{}}})
		}
	}
	return p.accepted(list), true
}

// exact are the writes of positions that are not the Backups' places behind the first ones.
func (p *planner) exact(d *Decision, first int) (list []write) {
	place := first
	for i := range d.Queue {
		e, o := &d.Queue[i], p.objects[d.Queue[i].UID]
		if place++; e.Refused {
			place = max(place, e.Position) // which stays
			continue
		}
		if e.Phase == Queued && e.Position == place {
			continue
		}
		w := write{object: o, entry: e, kind: kindPosition, patch: patch{phase: Queued, position: new(place)}}
		if e.Turn == (Turn{}) {
			w.patch.waiting = &Waiting{Reason: CodeNew, Since: p.now, Turn: e.turn()}
		}
		list = append(list, w)
	}
	return list
}

// notTakenUp are the ReadyToStart Backups of ours that Velero did not take up, in order. One
// without our annotation was let start by Velero's own queue.
func (p *planner) notTakenUp() (list []*Object) {
	for _, o := range p.objects {
		if since := o.Backup.ReadySince; o.Annotated && o.Backup.Phase == Ready && (p.now.Sub(since) >= requeueAfter || inFuture(since, p.now)) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *Object) int {
		return cmp.Or(a.Backup.Created.Compare(b.Backup.Created), cmp.Compare(a.UID, b.UID))
	})
	return list
}

// requeueAfter is how long a Backup must have been ReadyToStart to be requeued:
// Velero takes up what it sees at once.
const requeueAfter = 10 * time.Second
