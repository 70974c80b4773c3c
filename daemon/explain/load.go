package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// ErrNoMoverLoad means that no data mover load has the name, or more than one has it.
var ErrNoMoverLoad = errors.New("no such data mover load")

// MoverLoad is the state of one data mover load, and what would be decided about it
// now.
type MoverLoad struct {
	Namespace string     `json:"namespace"`
	Kind      vgdp.Kind  `json:"kind"`
	Name      string     `json:"name"`
	Phase     vgdp.Phase `json:"phase"`
	Created   time.Time  `json:"created"`
	Node      string     `json:"node,omitempty"`
	// OtherMover is the foreign data mover that handles it; Plimsoll leaves it alone.
	OtherMover string `json:"otherDataMover,omitempty"`
	// StartedAtOnce: its node-agent does not accept it before it starts it.
	StartedAtOnce bool `json:"startedAtOnce,omitempty"`
	// Leaves: it is cancelled or deleted, which needs no ticket.
	Leaves bool `json:"leaves,omitempty"`
	// MayBeHeld: pressure may still hold it, which is prepared. Only the controller knows
	// since when; here its time counts from when it was accepted.
	MayBeHeld bool `json:"mayBeHeld,omitempty"`
	// Ticket of the present epoch; nil: none.
	Ticket *vgdp.Ticket `json:"ticket,omitempty"`
	// Place is why it would wait, decided now; nil: it does not wait. Ahead
	// counts those that wait before it.
	Place *admission.WaitingLoad `json:"place,omitempty"`
	Ahead int                    `json:"ahead"`
	// Note is the controller's annotation, and Diagnosis what keeps the load from
	// being prepared; empty for none.
	Note            *vgdp.Note `json:"waiting,omitempty"`
	Diagnosis       string     `json:"diagnosis,omitempty"`
	AnnotationError string     `json:"odd,omitempty"`
	// GateRenewed is when the Gate was renewed; zero: there is no Gate, and
	// nothing is held.
	GateRenewed time.Time `json:"gateRenewed,omitzero"`
	GateHolds   bool      `json:"gateHolds"`
	// Velero of the load.
	Velero admission.Report `json:"velero"`
}

// AskMoverLoad reads a data mover load and decides about its Velero as the
// controller would. A name may have a kind before it: du/NAME, DataUpload/NAME.
func AskMoverLoad(ctx context.Context, r *admission.Reconciler, namespace, name string) (*MoverLoad, error) {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	kinds, name, err := kindOf(name)
	if err != nil {
		return nil, err
	}
	a, err := r.Preview(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var found []*admission.Object
	for _, o := range a.All {
		if o.Name == name && slices.Contains(kinds, o.Load.Kind) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, ErrNoMoverLoad)
	case 1:
		return loadOf(found[0], a), nil
	}
	return nil, fmt.Errorf("%s/%s: %w by name alone: there is a %s and a %s; use KIND/%s", namespace, name, ErrNoMoverLoad, found[0].Load.Kind, found[1].Load.Kind, name)
}

// kindOf is the kind before a name; without one, every kind.
func kindOf(name string) ([]vgdp.Kind, string, error) {
	before, rest, has := strings.Cut(name, "/")
	if !has {
		return admission.Kinds(), name, nil
	}
	var short []string
	for _, kind := range admission.Kinds() {
		given := strings.ToLower(before)
		if given == kind.Facts().Short || strings.TrimSuffix(given, "s") == strings.ToLower(string(kind)) {
			return []vgdp.Kind{kind}, rest, nil
		}
		short = append(short, kind.Facts().Short)
	}
	return nil, "", fmt.Errorf("%q: want one of %s or a kind's name: %w", before, strings.Join(short, ", "), ErrNoMoverLoad)
}

func loadOf(o *admission.Object, a *admission.Preview) *MoverLoad {
	l := &o.Load
	out := &MoverLoad{
		Namespace: o.Namespace, Kind: l.Kind, Name: o.Name, Phase: l.Phase, Created: l.Created, Node: l.Node,
		Diagnosis: o.Diagnosis, Velero: a.Report,
	}
	if out.Phase == "" {
		out.Phase = vgdp.New
	}
	if !l.ByVelero() {
		out.OtherMover = l.Mover
	}
	out.Leaves = l.Cancel || l.Deleted
	out.MayBeHeld = slices.ContainsFunc(a.Decision.Start, func(g vgdp.Grant) bool { return g.UID == l.UID && g.Overdue })
	out.StartedAtOnce = l.Direct || slices.Contains(a.Report.StartedAtOnce, l.Kind)
	if l.Ticket != nil && l.Ticket.Epoch == a.Report.Epoch {
		out.Ticket = l.Ticket
	}
	if l.Note != (vgdp.Note{}) {
		out.Note = &l.Note
	}
	if o.AnnotationErr != nil {
		out.AnnotationError = o.AnnotationErr.Error()
	}
	if a.Gate != nil && a.Gate.Spec.RenewTime != nil {
		out.GateRenewed = a.Gate.Spec.RenewTime.Time
		out.GateHolds = a.Gate.Spec.Limited && a.Input.Time.Before(out.GateRenewed.Add(time.Duration(a.Gate.Spec.LeaseDurationSeconds)*time.Second))
	}
	out.Place, out.Ahead = placeOf(l, a)
	return out
}

// placeOf is the place of a load that waits and how many are ahead of it; nil:
// it does not wait.
func placeOf(l *vgdp.Load, a *admission.Preview) (*admission.WaitingLoad, int) {
	ahead := 0
	for i := range a.Decision.Waiting {
		w := &a.Decision.Waiting[i]
		if w.UID == l.UID {
			p := admission.NewWaitingLoad(w, a.Input.Time)
			return &p, ahead
		}
		if (w.Phase == vgdp.Prepared) == (l.Phase == vgdp.Prepared) {
			ahead++
		}
	}
	return nil, 0
}

// WriteMoverLoad writes what a data mover load waits for.
func WriteMoverLoad(w io.Writer, l *MoverLoad, now time.Time) error {
	t := text{now: now}
	state := fmt.Sprintf("%s %s/%s is %s", l.Kind, l.Namespace, l.Name, l.Phase)
	if l.Node != "" {
		state += " on node " + l.Node
	}
	state += ", " + age(now, l.Created) + " old"
	switch {
	case l.OtherMover != "":
		t.line("%s. Data mover %s handles it: Plimsoll neither holds nor counts it.", state, l.OtherMover)
	case l.StartedAtOnce:
		t.line("%s. Its node-agent starts it at once, without accepting it: Plimsoll cannot hold it.", state)
	case l.Place != nil:
		t.line("%s, with %d ahead of it: %s.", state, l.Ahead, l.Place.Why)
	case l.Leaves && l.Phase == vgdp.New:
		t.line("%s. It is cancelled or deleted: Plimsoll does not hold it, and it needs no ticket.", state)
	case l.MayBeHeld:
		t.line("%s. Pressure on its node may hold it for %s after it was prepared, which only the controller saw.", state, vgdp.MaxPreparedHold)
	case l.Ticket != nil && l.Phase == vgdp.New:
		t.line("%s. It has its ticket; no node-agent has accepted it yet.", state)
	case l.Phase == vgdp.New && l.Velero.Limited:
		t.line("%s. It would get its ticket now.", state)
	default:
		t.line("%s. Plimsoll does not hold it.", state)
	}
	if l.Note != nil && l.Note.Reason != "" {
		t.line("The controller wrote: %s, for %s.", l.Note.Reason, age(now, l.Note.Since))
	}
	if l.Note != nil && l.Note.Unused > 0 {
		t.line("%d tickets were not used by any node-agent, the last one %s ago.", l.Note.Unused, age(now, l.Note.UnusedAt))
	}
	if l.AnnotationError != "" {
		t.line("%s.", l.AnnotationError)
	}
	t.gate(l)
	t.velero(&l.Velero)
	if l.Diagnosis != "" {
		t.line("")
		t.line("%s", l.Diagnosis)
	}
	return t.writeTo(w)
}

func (t *text) gate(l *MoverLoad) {
	switch {
	case l.GateRenewed.IsZero():
		t.line("There is no Gate in %s: nothing is held there.", l.Namespace)
	case l.GateHolds:
		t.line("The Gate is in force, renewed %s ago, epoch %d.", age(t.now, l.GateRenewed), l.Velero.Epoch)
	default:
		t.line("The Gate holds nothing, renewed %s ago.", age(t.now, l.GateRenewed))
	}
}

func (t *text) velero(r *admission.Report) {
	if r.PrepareLimit > 0 {
		t.line("%d of %d slots of prepareQueueLength are taken.", r.Slots, r.PrepareLimit)
	}
	for _, n := range r.Nodes {
		t.line("Node %s is under pressure: %s.", n.Name, n.Why)
	}
	if r.ConfigMapError != "" {
		t.line("The last valid configuration of the node-agents is in use: %s.", r.ConfigMapError)
	}
	for _, hint := range r.Hints {
		t.line("In ConfigMap %s: %s.", r.ConfigMap, hint)
	}
	if r.Drift > 0 {
		t.line("%d node-agents started before ConfigMap %s changed: kubectl -n %s rollout restart daemonset node-agent.", r.Drift, r.ConfigMap, r.Namespace)
	}
}
