package backup

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// Annotations on a Backup.
const (
	// AnnotationWaiting is the controller's: a Waiting as JSON, while the Backup waits.
	AnnotationWaiting = names.Waiting
	// AnnotationPriority is the user's: an int32, the higher comes first.
	AnnotationPriority = names.Priority
)

// labelSchedule is Velero's: the Schedule that created a Backup.
const labelSchedule = "velero.io/schedule-name"

// Resource of Velero's Backups.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "backups"}
}

// Waiting is the content of a Backup's annotation.
type Waiting struct {
	Reason Code `json:"reason"`
	// Since is when the reason began.
	Since time.Time `json:"since"`
	// BlockedBy is the name of the first Backup that it waits for.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Namespaces that it shares with BlockedBy, the first of them, and how many there are.
	Namespaces []string `json:"namespaces,omitempty"`
	Shared     int      `json:"sharedNamespaces,omitempty"`
	// Invalid is why it, or BlockedBy, counts as overlapping with every other, or why Velero
	// will reject it.
	Invalid string `json:"invalid,omitempty"`
	// Touched is when the Backup was last touched to remind Velero; with reason velero
	// only.
	Touched time.Time `json:"touched,omitzero"`
	// Turn of the Backup, while it is Queued.
	Turn Turn `json:"turn,omitzero"`
}

// Object is a Backup, trimmed to what the queue needs.
type Object struct {
	// ObjectMeta has identity, version and times only.
	metav1.ObjectMeta

	Backup Backup
	// Waiting is the content of its annotation; zero where it has none, or an
	// unreadable one. Marked: it has the annotation.
	Waiting   Waiting
	Annotated bool
	// AnnotationErr is why an annotation of the user is invalid; it counts as absent.
	AnnotationErr error
	// Annotations are those of the user that say what is wanted (objective.Of).
	Annotations map[string]string
	// Completed is when it ended, well or not; zero: not yet.
	Completed time.Time
}

// Read converts a Backup. Missing fields, and those of a wrong type, count as unset.
func Read(u *unstructured.Unstructured) *Object {
	o := &Object{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(),
	}}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	position, _, _ := unstructured.NestedInt64(u.Object, "status", "queuePosition")
	include, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "includedNamespaces")
	exclude, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "excludedNamespaces")
	o.Backup = Backup{
		UID: string(o.UID), Namespace: o.Namespace, Name: o.Name, Phase: Phase(phase), Position: int(position),
		Created: o.CreationTimestamp.Time, Include: include, Exclude: exclude, Schedule: u.GetLabels()[labelSchedule],
		Began: timeOf(u, "startTimestamp"),
	}
	o.Completed = timeOf(u, "completionTimestamp")
	annotations := u.GetAnnotations()
	o.Annotations = objective.Of(annotations)
	if text, there := annotations[AnnotationPriority]; there {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			o.AnnotationErr = fmt.Errorf("annotation %s: want a 32-bit integer, got %q; using 0", AnnotationPriority, text)
		}
		o.Backup.Priority = int32(n)
		if err != nil {
			o.Backup.Priority = 0
		}
	}
	var text string
	if text, o.Annotated = annotations[AnnotationWaiting]; o.Annotated {
		if json.Unmarshal([]byte(text), &o.Waiting) != nil {
			o.Waiting = Waiting{} // not written by a controller: replaced later
		}
	}
	o.Backup.Version = versionOf(o.ResourceVersion)
	// A turn later than the object is not a leader's: from another cluster, or forged.
	if o.Waiting.Turn.Version < o.Backup.Version {
		o.Backup.Turn = o.Waiting.Turn
	}
	if o.Backup.Phase == Ready && o.Waiting.Reason == CodeVelero {
		o.Backup.ReadySince = o.Waiting.Since
	}
	return o
}

// timeOf is a time in the status; zero: there is none.
func timeOf(u *unstructured.Unstructured, field string) time.Time {
	text, _, _ := unstructured.NestedString(u.Object, "status", field)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// versionOf is a resource version as a number, which it is with etcd
// (KEP-5504); elsewhere 1, so that the creation time decides.
func versionOf(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 63)
	if err != nil {
		return 1
	}
	return max(1, n)
}

// active tells whether the queue handles it. A Backup that is being deleted and has not
// started never starts.
func (o *Object) active() bool {
	return o.Backup.running() || o.Backup.waits() && o.DeletionTimestamp == nil
}

// good tells whether it is complete, without a failure.
func (o *Object) good() bool { return o.Backup.Phase == Completed }

// ended tells whether it has, and its phase says how.
func (o *Object) ended() bool { return !o.Completed.IsZero() && o.Backup.Phase != Deleting }

// failed tells whether it has ended and is not good, or was failing when it left its slot.
func (o *Object) failed() bool {
	return !o.good() && o.ended() || o.Backup.Phase.failed() || o.Backup.Phase.failing()
}

// made is when it was created. One that Velero has read from its storage location is created by
// that, long after it began.
func (o *Object) made() time.Time {
	if b := &o.Backup; !b.Began.IsZero() {
		return earlier(b.Created, b.Began)
	}
	return o.Backup.Created
}

// run is what it teaches about durations, if it has ended. of is the size of its data mover
// loads; zero: unknown.
func (o *Object) run(of uploads.Size) durations.Run {
	r := durations.Run{Schedule: o.Backup.Schedule, Started: o.Backup.Began, Completed: o.Completed, Good: o.good()}
	r.Kind, r.Bytes = sizeOf(of)
	return r
}

// sizeOf the data mover loads of a Backup, as durations count it. How many of the bytes are
// new is known once all have ended.
func sizeOf(s uploads.Size) (durations.Kind, int64) {
	if s.Open > 0 || s.New == 0 {
		return durations.Unknown, s.Total
	}
	kind := durations.KindOf(s.Total, s.New)
	if kind == durations.Incremental {
		return kind, s.New
	}
	return kind, s.Total
}

// staleAnnotation tells whether it has an obsolete annotation: it neither waits nor is
// ReadyToStart.
func (o *Object) staleAnnotation() bool {
	return o.Annotated && !o.Backup.waits() && o.Backup.Phase != Ready
}
