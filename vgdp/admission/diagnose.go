package admission

import (
	"cmp"
	"context"
	"slices"
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

// needsDiagnosis tells whether a load was accepted long ago and does not run, or has a
// pod that cannot run, or runs without one. What another data mover does is not known.
func (v *velero) needsDiagnosis(l *vgdp.Load, now time.Time, after time.Duration) bool {
	pod, moves := v.movers.Get(l.Namespace, l.Name)
	switch {
	case !l.ByVelero() || v.unnamed:
		return false
	case l.Phase == vgdp.InProgress:
		return !moves && !l.Direct
	case l.Phase == vgdp.Accepted && moves && vgdp.CannotRun(pod) != "":
		return true
	}
	return (l.Phase == vgdp.Accepted || l.Phase == vgdp.Prepared) && !l.AcceptedAt.IsZero() && now.Sub(l.AcceptedAt) >= after
}

// diagnosis in lines: our own findings first, then Velero's.
func diagnosis(in *vgdp.Input, l *vgdp.Load, f *vgdp.Facts, stuck vgdp.Stuck) string {
	var lines []string
	if stuck.Why != "" {
		lines = append(lines, "stuck: "+stuck.Why)
	}
	if why := unschedulable(in, l, f); why != "" {
		lines = append(lines, "unschedulable: "+why)
	}
	text := vgdp.Diagnose(f)
	lines = append(lines, text[1:len(text)-1]...) // without begin and end
	return clip(lines, maxDiagnosis)
}

// unschedulable is why no node is possible for a load, its volumes as they were made;
// empty: one is.
func unschedulable(in *vgdp.Input, l *vgdp.Load, f *vgdp.Facts) string {
	with := *l
	with.Place = l.Place.With(topologyOf(f.PV)).With(topologyOf(f.CachePV))
	if reach := in.Topology.ReachOf(&with); len(reach.Nodes) == 0 {
		return reach.String()
	}
	return ""
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
		if o := &in.Loads[i]; o.ByVelero() && o.Namespace == l.Namespace && o.Node == l.Node && (o.Phase == vgdp.InProgress || o.Phase == vgdp.Canceling) {
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
	f.Events = v.warnings(ctx, l.Namespace, l.Name)
	if hasPlace(l) {
		f.PVC, f.PV = v.volume(ctx, f, l.Namespace, l.Name, "")
	}
	if l.Kind.Facts().Restores && v.config.live.CachePVC != (vgdp.CachePVC{}) {
		v.cache(ctx, f, l)
	}
	if l.Kind == vgdp.DataUpload {
		v.snapshot(ctx, f, l)
	}
	return f
}

// warnings are the warning Events of the objects of a name. They are an extra: without
// them the other facts stand.
func (v *velero) warnings(ctx context.Context, namespace, name string) []corev1.Event {
	events, err := v.core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + name})
	if err != nil {
		return nil
	}
	return events.Items
}

// cache reads the claim of a restore's cache. Velero makes none for a small restore.
func (v *velero) cache(ctx context.Context, f *vgdp.Facts, l *vgdp.Load) {
	name := l.Name + "-cache"
	f.Cache, f.CachePV = v.volume(ctx, f, l.Namespace, name, "cache ")
	f.Errors = slices.DeleteFunc(f.Errors, func(e vgdp.ReadError) bool { return e.What == "cache pvc" && apierrors.IsNotFound(e.Err) })
	if f.Cache != nil {
		f.Events = append(f.Events, v.warnings(ctx, l.Namespace, name)...)
	}
}

// volume reads a claim and its volume; nil: it does not exist, or cannot be read. of is
// the beginning of what an error calls them.
func (v *velero) volume(ctx context.Context, f *vgdp.Facts, namespace, name, of string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim, err := v.core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		f.Errors = append(f.Errors, vgdp.ReadError{What: of + "pvc", Name: name, Err: err})
		return nil, nil
	}
	if claim.Spec.VolumeName == "" {
		return claim, nil
	}
	pv, err := v.core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		f.Errors = append(f.Errors, vgdp.ReadError{What: of + "pv", Name: claim.Spec.VolumeName, Err: err})
		return claim, nil
	}
	return claim, pv
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
