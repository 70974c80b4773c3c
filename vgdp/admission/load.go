package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Kinds of data mover loads.
func Kinds() (kinds []vgdp.Kind) {
	for _, f := range names.MoverKinds() {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// Resource of a kind; zero for an unknown one.
func Resource(k vgdp.Kind) schema.GroupVersionResource {
	f := k.Facts()
	if f.Resource == "" {
		return schema.GroupVersionResource{} // the API server has none: an unknown kind is no other
	}
	return schema.GroupVersionResource{Group: names.VeleroGroup, Version: f.Version, Resource: f.Resource}
}

// Object is a load, trimmed to what admission needs.
type Object struct {
	// ObjectMeta has identity and version only.
	metav1.ObjectMeta

	Load vgdp.Load
	// Backup that it is part of; empty for restores.
	Backup string
	// Target is the pod whose volume a PodVolumeBackup or PodVolumeRestore moves,
	// the claim that a DataDownload fills, or the one that a DataUpload reads.
	Target types.NamespacedName
	// AcceptedBy is the node whose node-agent accepted it, and Marked tells whether it has
	// the finalizer of Velero's node-agents; only DataUploads and DataDownloads have either.
	AcceptedBy string
	Marked     bool
	// Class of the volume that a DataUpload reads, and OS that a DataDownload names for
	// its pod; empty: none.
	Class, OS string
	// Volume of the pod that a PodVolumeBackup or PodVolumeRestore moves.
	Volume string
	// Started is when it began to move data, and Completed when it ended; zero: unknown.
	Started, Completed time.Time
	// Done of Total bytes, and Fresh, those that are new since the Backup before, as the
	// data mover wrote them; 0: unknown, or none.
	Done, Total, Fresh int64
	// Diagnosis is its annotation plimsoll.dev/diagnosis.
	Diagnosis string
	// AnnotationErr is why one of its annotations is invalid and ignored.
	AnnotationErr error
}

// Read converts a load. Missing fields, and those of a wrong type, count as unset.
func Read(kind vgdp.Kind, u *unstructured.Unstructured) *Object {
	f := fields(u.Object)
	created := u.GetCreationTimestamp()
	o := &Object{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		Load: vgdp.Load{
			UID: string(u.GetUID()), Namespace: u.GetNamespace(), Name: u.GetName(), Kind: kind,
			Phase: vgdp.Phase(f.text("status", "phase")), Created: created.Time, AcceptedAt: f.time("status", "acceptedTimestamp"),
			Mover: f.text("spec", "datamover"), Cancel: f.yes("spec", "cancel"), Deleted: u.GetDeletionTimestamp() != nil,
			Node: f.text("status", "node"),
		},
		AcceptedBy: f.text("status", "acceptedByNode"), Marked: slices.Contains(u.GetFinalizers(), names.MoverFinalizer),
		Class: f.text("spec", "csiSnapshot", "storageClass"), Volume: f.text("spec", "volume"),
		Started: f.time("status", "startTimestamp"), Completed: f.time("status", "completionTimestamp"),
		Done: f.number("status", "progress", "bytesDone"), Total: f.number("status", "progress", "totalBytes"), Fresh: f.number("status", "incrementalBytes"),
	}
	o.readKind(f)
	o.readOwner(u)
	o.readAnnotations(u.GetAnnotations())
	return o
}

// readKind reads the fields in which the kinds differ.
func (o *Object) readKind(f fields) {
	o.Load.Repository = vgdp.RepositoryKey{VolumeNamespace: f.text("spec", "sourceNamespace"), Location: f.text("spec", "backupStorageLocation")}
	switch o.Load.Kind {
	case vgdp.DataDownload:
		o.OS = f.text("spec", "nodeOS")
		o.Target = types.NamespacedName{Namespace: f.text("spec", "targetVolume", "namespace"), Name: f.text("spec", "targetVolume", "pvc")}
	case vgdp.PodVolumeBackup:
		o.Load.Node = f.text("spec", "node")
		o.Load.Repository.VolumeNamespace = f.text("spec", "pod", "namespace")
		fallthrough
	case vgdp.PodVolumeRestore:
		o.Load.Direct = f.text("spec", "uploaderType") == "restic" // in any Velero
		o.Target = types.NamespacedName{Namespace: f.text("spec", "pod", "namespace"), Name: f.text("spec", "pod", "name")}
		o.Load.PodNamespace = o.Target.Namespace
	case vgdp.DataUpload:
		o.Target = types.NamespacedName{Namespace: f.text("spec", "sourceNamespace"), Name: f.text("spec", "sourcePVC")}
	}
}

// Labels that Velero puts on loads, and on Backups that a schedule made.
const (
	labelBackup   = "velero.io/backup-name"
	labelRestore  = "velero.io/restore-name"
	labelSchedule = "velero.io/schedule-name"
)

// readOwner reads which Backup or Restore it is part of. A label truncates long
// names; the owner reference does not.
func (o *Object) readOwner(u *unstructured.Unstructured) {
	labels := u.GetLabels()
	o.Backup = labels[labelBackup]
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == "Backup" {
			o.Backup = owner.Name
		}
	}
	if o.Load.Kind.Facts().Restores {
		o.Backup = ""
		o.Load.Backup = "Restore " + labels[labelRestore]
	} else {
		o.Load.Backup = "Backup " + o.Backup
	}
}

// readAnnotations reads the annotations of the controller and of the user.
func (o *Object) readAnnotations(words map[string]string) {
	l := &o.Load
	if l.Mover == gate.HiddenMover {
		l.Hidden, l.Mover = true, words[gate.OriginalDataMover]
	}
	l.Ticket, l.Started = ticket(words[gate.Admitted]), ticket(words[gate.Started])
	o.Diagnosis = words[gate.Diagnosis]
	if text, there := words[gate.Waiting]; there && json.Unmarshal([]byte(text), &l.Note) != nil {
		l.Note = vgdp.Note{} // not written by a controller: replaced later
	}
	l.Note.PostponedUntil = timeOf(words[gate.PostponedUntil])
	text, there := words[gate.Priority]
	if !there {
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		o.AnnotationErr = fmt.Errorf("annotation %s: want a 32-bit integer, got %q; ignored", gate.Priority, text)
		return
	}
	l.Priority = new(int32(n))
}

// ticket parses a valid ticket; nil: none. It does not contain the time of issue.
func ticket(text string) *vgdp.Ticket {
	t, err := gate.ParseTicket(text)
	if err != nil {
		return nil
	}
	if t.Node == gate.AnyNode {
		t.Node = ""
	}
	return &vgdp.Ticket{Node: t.Node, Epoch: t.Epoch}
}

// fields of an unstructured object.
type fields map[string]any

func (f fields) text(path ...string) string {
	text, _, err := unstructured.NestedString(f, path...)
	if err != nil {
		return ""
	}
	return text
}

func (f fields) texts(path ...string) []string {
	list, _, err := unstructured.NestedStringSlice(f, path...)
	if err != nil {
		return nil
	}
	return list
}

func (f fields) yes(path ...string) bool {
	is, _, err := unstructured.NestedBool(f, path...)
	return err == nil && is
}

func (f fields) number(path ...string) int64 {
	n, _, err := unstructured.NestedInt64(f, path...)
	if err != nil {
		return 0
	}
	return n
}

func (f fields) time(path ...string) time.Time { return timeOf(f.text(path...)) }

// timeOf a text; zero: it is none.
func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// carryOver carries over what the object does not contain: the times of issue of its
// tickets, and since when it is prepared.
func carryOver(was, is *Object, now time.Time) {
	is.Load.Ticket = keepIssueTime(was.Load.Ticket, is.Load.Ticket, now)
	is.Load.Started = keepIssueTime(was.Load.Started, is.Load.Started, now)
	switch {
	case is.Load.Phase != vgdp.Prepared:
	case was.Load.Phase == vgdp.Prepared:
		is.Load.PreparedAt = was.Load.PreparedAt
	default:
		is.Load.PreparedAt = now
	}
}

// keepIssueTime keeps the time of issue of an unchanged ticket; a new one counts from now.
func keepIssueTime(was, is *vgdp.Ticket, now time.Time) *vgdp.Ticket {
	switch {
	case is == nil:
		return nil
	case was != nil && was.Node == is.Node && was.Epoch == is.Epoch:
		return was
	}
	return &vgdp.Ticket{Node: is.Node, Epoch: is.Epoch, At: now}
}

// isNew tells whether it is not accepted yet.
func isNew(l *vgdp.Load) bool { return l.Phase == "" || l.Phase == vgdp.New }

// ended tells whether its phase is final.
func ended(l *vgdp.Load) bool {
	return l.Phase == vgdp.Completed || l.Phase == vgdp.Failed || l.Phase == vgdp.Canceled
}
