package admission

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// The rate limit of diagnoses: each costs several requests.
const (
	diagnoseInterval  = 20 * time.Second
	diagnosesPerRound = 5
	// maxDiagnosis is the maximum length of the annotation in bytes.
	maxDiagnosis = 4 << 10
)

// diagnosed is the time of a load's last diagnosis, and why it was stuck.
type diagnosed struct {
	at  time.Time
	why string
}

// needsDiagnosis tells whether a load was accepted long ago and does not run, or runs
// without a mover's pod.
func (v *velero) needsDiagnosis(l *vgdp.Load, now time.Time, after time.Duration) bool {
	if l.Phase == vgdp.InProgress {
		_, moves := v.movers.Get(l.Namespace, l.Name)
		return !moves && !l.Direct
	}
	return (l.Phase == vgdp.Accepted || l.Phase == vgdp.Prepared) && !l.AcceptedAt.IsZero() && now.Sub(l.AcceptedAt) >= after
}

// diagnosis in lines: our own findings first, then Velero's.
func diagnosis(in *vgdp.Input, l *vgdp.Load, f *vgdp.Facts, stuck vgdp.Stuck) string {
	var lines []string
	if stuck.Why != "" {
		lines = append(lines, "stuck: "+stuck.Why)
	}
	if reach := in.Topology.ReachOf(l); len(reach.Nodes) == 0 {
		lines = append(lines, "unschedulable: "+reach.String())
	}
	text := vgdp.Diagnose(f)
	lines = append(lines, text[1:len(text)-1]...) // without begin and end
	return clip(lines, maxDiagnosis)
}

// clip joins lines up to a total length; the last one marks an omission.
func clip(lines []string, most int) string {
	const more = "…"
	var b strings.Builder
	for i, line := range lines {
		need := len(line) + 1
		if i < len(lines)-1 {
			need += len(more) + 1
		}
		if b.Len()+need > most {
			b.WriteString(more)
			return b.String()
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// hasCapacity tells whether its node has capacity for one more load.
func hasCapacity(in *vgdp.Input, l *vgdp.Load) bool {
	running := 0
	for i := range in.Loads {
		if o := &in.Loads[i]; o.Namespace == l.Namespace && o.Node == l.Node && (o.Phase == vgdp.InProgress || o.Phase == vgdp.Canceling) {
			running++
		}
	}
	agent, _ := in.Topology.Agent(l.Node, l.Namespace)
	return running < agent.Concurrency
}

// facts reads the objects that Velero has created for a load, under its name.
func (v *velero) facts(ctx context.Context, in *vgdp.Input, l *vgdp.Load) *vgdp.Facts {
	f := &vgdp.Facts{Kind: l.Kind}
	node := l.Node
	if p, there := v.movers.Get(l.Namespace, l.Name); there {
		f.Pod, node = p, cmp.Or(p.Spec.NodeName, node)
	} else {
		f.Errors = append(f.Errors, vgdp.ReadError{What: "pod", Name: l.Name, Err: apierrors.NewNotFound(corev1.Resource("pods"), l.Name)})
	}
	agent, _ := in.Topology.Agent(node, l.Namespace)
	f.AgentMissing = node != "" && !agent.Ready
	if l.Kind == vgdp.DataUpload || l.Kind == vgdp.DataDownload {
		v.volume(ctx, f, l)
	}
	if l.Kind == vgdp.DataUpload {
		v.snapshot(ctx, f, l)
	}
	events, err := v.core.Events(l.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + l.Name})
	if err == nil {
		f.Events = events.Items
	}
	return f
}

func (v *velero) volume(ctx context.Context, f *vgdp.Facts, l *vgdp.Load) {
	var err error
	if f.PVC, err = v.core.PersistentVolumeClaims(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{}); err != nil {
		f.PVC, f.Errors = nil, append(f.Errors, vgdp.ReadError{What: "pvc", Name: l.Name, Err: err})
		return
	}
	if name := f.PVC.Spec.VolumeName; name != "" {
		if f.PV, err = v.core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			f.PV, f.Errors = nil, append(f.Errors, vgdp.ReadError{What: "pv", Name: name, Err: err})
		}
	}
}

func snapshots(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: resource}
}

func (v *velero) snapshot(ctx context.Context, f *vgdp.Facts, l *vgdp.Load) {
	u, err := v.dynamic.Resource(snapshots("volumesnapshots")).Namespace(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		f.Errors = append(f.Errors, vgdp.ReadError{What: "vs", Name: l.Name, Err: err})
		return
	}
	of := fields(u.Object)
	f.Snapshot = &vgdp.Snapshot{
		UID: u.GetUID(), Namespace: u.GetNamespace(), Name: u.GetName(), Content: of.text("status", "boundVolumeSnapshotContentName"),
		Ready: of.yes("status", "readyToUse"), Error: of.text("status", "error", "message"),
	}
	if f.Snapshot.Content == "" {
		return
	}
	var content *unstructured.Unstructured
	if content, err = v.dynamic.Resource(snapshots("volumesnapshotcontents")).Get(ctx, f.Snapshot.Content, metav1.GetOptions{}); err != nil {
		f.Errors = append(f.Errors, vgdp.ReadError{What: "vsc", Name: f.Snapshot.Content, Err: err})
		return
	}
	of = fields(content.Object)
	f.Content = &vgdp.SnapshotContent{
		Name: content.GetName(), Handle: of.text("status", "snapshotHandle"), Ready: of.yes("status", "readyToUse"), Error: of.text("status", "error", "message"),
	}
}
