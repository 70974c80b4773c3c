package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Kind of an edit.
type Kind string

// The kinds.
const (
	KindAdmit   Kind = "admit"
	KindStart   Kind = "start"
	KindRevoke  Kind = "revoke"
	KindRelease Kind = "release"
	// KindHide hides a load from Velero's node-agents, and writes the reason.
	KindHide Kind = "hide"
	KindNote Kind = "note"
	// KindDiagnose writes why a load is not prepared.
	KindDiagnose Kind = "diagnose"
)

// EditKinds are all kinds.
func EditKinds() []Kind {
	return []Kind{KindAdmit, KindStart, KindRevoke, KindRelease, KindHide, KindNote, KindDiagnose}
}

// edit is a write of one load.
type edit struct {
	load *vgdp.Load
	kind Kind
	// annotations are annotations by name; a nil value removes one.
	annotations map[string]any
	// restoreMover: the original data mover is restored.
	restoreMover bool
	// grant of a ticket, and the wait that a note describes.
	grant *vgdp.Grant
	wait  *vgdp.Wait
	note  *vgdp.Note
}

// body is the merge patch for the version that was observed.
func (e *edit) body(version string) ([]byte, error) {
	meta := map[string]any{"resourceVersion": version}
	if len(e.annotations) > 0 {
		meta["annotations"] = e.annotations
	}
	patch := map[string]any{"metadata": meta}
	if e.kind == KindHide {
		patch["spec"] = map[string]any{"datamover": gate.HiddenMover}
	}
	if e.restoreMover {
		var original any // nil where it was left out
		if e.load.Mover != "" {
			original = e.load.Mover
		}
		e.annotations[gate.OriginalDataMover] = nil
		meta["annotations"] = e.annotations
		patch["spec"] = map[string]any{"datamover": original}
	}
	return json.Marshal(patch)
}

// edits of a decision, in the order in which they are made: revocations, then
// tickets and releases, then hiding, then notes.
func edits(d *vgdp.Decision, hidden []*vgdp.Waiting, now time.Time) ([]edit, error) {
	list, notes, err := noteEdits(d, now)
	if err != nil {
		return nil, err
	}
	for i := range d.Admit {
		e, err := admit(&d.Admit[i])
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	for i := range d.Start {
		g := &d.Start[i]
		list = append(list, edit{load: g.Load, kind: KindStart, grant: g, annotations: map[string]any{gate.Started: gate.Ticket{Node: g.Ticket.Node, Epoch: g.Ticket.Epoch}.String()}})
	}
	for _, l := range d.Release {
		list = append(list, edit{load: l, kind: KindRelease, restoreMover: true, annotations: map[string]any{}})
	}
	hides := map[*vgdp.Load]bool{}
	for _, w := range hidden {
		e, err := hide(w, now)
		if err != nil {
			return nil, err
		}
		hides[w.Load], list = true, append(list, e)
	}
	notes = slices.DeleteFunc(notes, func(e edit) bool { return hides[e.load] })
	return append(list, notes...), nil
}

// noteEdits are the revocations with their reasons, and the other notes.
func noteEdits(d *vgdp.Decision, now time.Time) (revokes, notes []edit, err error) {
	revoked := map[*vgdp.Load]string{}
	for _, r := range d.Revoke {
		revoked[r.Load] = gate.Admitted
		if r.Start {
			revoked[r.Load] = gate.Started
		}
	}
	waits := map[*vgdp.Load]*vgdp.Wait{}
	for i := range d.Waiting {
		waits[d.Waiting[i].Load] = &d.Waiting[i].Wait
	}
	for _, n := range d.Notes(now) {
		text, err := noteText(n.Note)
		if err != nil {
			return nil, nil, err
		}
		e := edit{load: n.Load, kind: KindNote, annotations: map[string]any{gate.Waiting: text}, wait: waits[n.Load], note: &n.Note}
		if ticket, is := revoked[n.Load]; is {
			e.kind, e.annotations[ticket] = KindRevoke, nil
			revokes = append(revokes, e)
			continue
		}
		notes = append(notes, e)
	}
	return revokes, notes, nil
}

// hide is the edit that hides a waiting load, with a note: the write is made anyway.
func hide(w *vgdp.Waiting, now time.Time) (edit, error) {
	e := edit{load: w.Load, kind: KindHide, annotations: map[string]any{gate.OriginalDataMover: w.Mover}, wait: &w.Wait}
	note, news := w.NextNote(now)
	if !news && w.Note.Reason != "" {
		return e, nil
	}
	text, err := noteText(note)
	e.annotations[gate.Waiting] = text
	return e, err
}

// admit is the edit with the ticket. The note keeps its counters, without a reason.
func admit(g *vgdp.Grant) (edit, error) {
	node := g.Ticket.Node
	if node == "" {
		node = gate.AnyNode
	}
	e := edit{
		load: g.Load, kind: KindAdmit, grant: g, restoreMover: g.Hidden,
		annotations: map[string]any{gate.Admitted: gate.Ticket{Node: node, Epoch: g.Ticket.Epoch}.String()},
	}
	note := g.Note
	if note == (vgdp.Note{}) {
		return e, nil
	}
	note.Reason, note.Since, note.BlockedBy = "", time.Time{}, ""
	if note == (vgdp.Note{}) {
		e.annotations[gate.Waiting] = nil
		return e, nil
	}
	text, err := noteText(note)
	e.annotations[gate.Waiting] = text
	return e, err
}

func noteText(n vgdp.Note) (string, error) {
	n.Since, n.PressureSince, n.UnusedAt = toSecond(n.Since), toSecond(n.PressureSince), toSecond(n.UnusedAt)
	text, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("note: %w", err)
	}
	return string(text), nil
}

func toSecond(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Second)
}
