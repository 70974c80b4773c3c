package admission

import (
	"encoding/json"
	"fmt"
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
	// KindPostpone and KindHandBack write the maintenance frequency of a BackupRepository.
	KindPostpone Kind = "postpone"
	KindHandBack Kind = "hand-back"
)

// EditKinds are all kinds.
func EditKinds() []Kind {
	return []Kind{KindAdmit, KindStart, KindRevoke, KindRelease, KindHide, KindNote, KindDiagnose, KindPostpone, KindHandBack}
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
	// instead of hiding a load, its note is written where it would not be released; nil:
	// there is nothing to write.
	instead *edit
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

// hide is the edit that hides a waiting load, with a note: the write is made anyway.
func hide(w *vgdp.Waiting, now time.Time) (edit, error) {
	e := edit{load: w.Load, kind: KindHide, annotations: map[string]any{gate.OriginalDataMover: w.Mover}, wait: &w.Wait}
	note, news := w.NextNote(now)
	if !news && w.Note.Reason != "" {
		return e, nil
	}
	return e, annotate(e.annotations, note)
}

// admit is the edit with the ticket. The note keeps its counters, without a reason; until
// when it was postponed stays as it is.
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
	note.Reason, note.Since, note.BlockedBy, note.PostponedUntil = "", time.Time{}, "", time.Time{}
	if note == (vgdp.Note{}) {
		e.annotations[gate.Waiting] = nil
		return e, nil
	}
	return e, annotate(e.annotations, note)
}

// annotate adds the annotations of a note.
func annotate(annotations map[string]any, n vgdp.Note) error {
	text, err := noteText(n)
	annotations[gate.Waiting] = text
	if !n.PostponedUntil.IsZero() {
		annotations[gate.PostponedUntil] = utc(n.PostponedUntil)
	}
	return err
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
