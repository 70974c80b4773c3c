package velero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Snapshots are kinds of the external-snapshotter as far as Velero reads and
// writes them: what it writes is kept as it is.
const Snapshots = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshots.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: VolumeSnapshot, listKind: VolumeSnapshotList, plural: volumesnapshots, singular: volumesnapshot}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshotcontents.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: VolumeSnapshotContent, listKind: VolumeSnapshotContentList, plural: volumesnapshotcontents, singular: volumesnapshotcontent}
  scope: Cluster
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshotclasses.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: VolumeSnapshotClass, listKind: VolumeSnapshotClassList, plural: volumesnapshotclasses, singular: volumesnapshotclass}
  scope: Cluster
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// StandInSnapshots stands in for the snapshot controller and a CSI driver in a
// namespace, until ctx is done: each VolumeSnapshot there has a content and is
// ready. Nothing is read of the volume.
func StandInSnapshots(ctx context.Context, client dynamic.Interface, namespace string) error {
	group := schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	contents := client.Resource(group.WithResource("volumesnapshotcontents"))
	snapshots := client.Resource(group.WithResource("volumesnapshots")).Namespace(namespace)
	w, err := snapshots.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		snapshot, is := e.Object.(*unstructured.Unstructured)
		if e.Type != watch.Added || !is {
			continue
		}
		name := "content-" + string(snapshot.GetUID())
		_, err := contents.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group.String(), "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"deletionPolicy": "Delete", "driver": "stand-in", "source": map[string]any{"volumeHandle": "none"},
				"volumeSnapshotRef": map[string]any{"name": snapshot.GetName(), "namespace": namespace},
			},
			"status": map[string]any{"readyToUse": true, "snapshotHandle": "none"},
		}}, metav1.CreateOptions{})
		if err == nil {
			body := fmt.Appendf(nil, `{"status":{"readyToUse":true,"boundVolumeSnapshotContentName":%q,"restoreSize":"1Gi"}}`, name)
			_, err = snapshots.Patch(ctx, snapshot.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errors.New("the watch of the stand-in for snapshots ended")
	}
	return nil
}

// StandInStorage stands in for a CSI driver, and for the kubelets that run data
// movers: it binds the claims that node-agents make (those with a selector wait
// for a volume that is there), and pretends of each mover's pod that has a node
// that it runs, moves, and has succeeded. Nothing is moved.
type StandInStorage struct {
	Core      kubernetes.Interface
	Namespace string
	// Moves is how long a mover takes.
	Moves time.Duration

	keep, still atomic.Bool
	node        atomic.Pointer[string] // where new volumes are; nil: everywhere
	mu          sync.Mutex             // guards known
	known       map[types.UID]bool
	work        sync.WaitGroup
}

// Keep says whether new claims are left unbound.
func (s *StandInStorage) Keep(yes bool) { s.keep.Store(yes) }

// PutOn says on which node new volumes are, and nowhere else; empty: everywhere.
func (s *StandInStorage) PutOn(node string) {
	if s.node.Store(nil); node != "" {
		s.node.Store(&node)
	}
}

// Still says whether pods of data movers that have a node are not run yet.
func (s *StandInStorage) Still(yes bool) { s.still.Store(yes) }

// moved is the load that a pod moves; empty: it is no data mover's.
func moved(p *corev1.Pod) (kind, name string) {
	for kind, label := range map[string]string{
		"DataUpload": "velero.io/data-upload", "DataDownload": "velero.io/data-download",
		"PodVolumeBackup": "velero.io/pod-volume-backup", "PodVolumeRestore": "velero.io/pod-volume-restore",
	} {
		if name := p.Labels[label]; name != "" {
			return kind, name
		}
	}
	return "", ""
}

// IsMover tells whether a pod is a data mover's, for whoever else runs pods.
func IsMover(p *corev1.Pod) bool {
	kind, _ := moved(p)
	return kind != ""
}

// Run until ctx is done.
func (s *StandInStorage) Run(ctx context.Context) error {
	s.known = map[types.UID]bool{}
	defer s.work.Wait()
	claims, err := s.Core.CoreV1().PersistentVolumeClaims(s.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer claims.Stop()
	pods, err := s.Core.CoreV1().Pods(s.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer pods.Stop()
	for {
		var e watch.Event
		var open bool
		select {
		case e, open = <-claims.ResultChan():
		case e, open = <-pods.ResultChan():
		}
		if !open {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("a watch of the stand-in for storage ended")
		}
		if err := s.serve(ctx, e); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
}

func (s *StandInStorage) serve(ctx context.Context, e watch.Event) error {
	switch o := e.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		switch {
		case e.Type == watch.Deleted:
		case o.DeletionTimestamp != nil && len(o.Finalizers) > 0:
			return s.unbind(ctx, o)
		case o.Spec.VolumeName == "" && o.Spec.Selector == nil && e.Type == watch.Added && !s.keep.Load():
			return s.bind(ctx, o)
		}
	case *corev1.Pod:
		if IsMover(o) && o.Spec.NodeName != "" && e.Type != watch.Deleted && s.first(o) {
			s.work.Go(func() { s.move(ctx, o) })
		}
	}
	return nil
}

func (s *StandInStorage) first(p *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.known[p.UID]
	s.known[p.UID] = true
	return !was
}

// bind a claim to a volume that is made for it, as a provisioner and the
// controller of claims do together.
func (s *StandInStorage) bind(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(c.UID)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
		},
	}
	if c.Spec.StorageClassName != nil {
		v.Spec.StorageClassName = *c.Spec.StorageClassName
	}
	if node := s.node.Load(); node != nil {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{*node}}},
		}}}}
	}
	if _, err := s.Core.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
		return err
	}
	bound := []byte(`{"status":{"phase":"Bound"}}`)
	if _, err := s.Core.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, bound, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	claims := s.Core.CoreV1().PersistentVolumeClaims(c.Namespace)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":%q}}`, v.Name)
	if _, err := claims.Patch(ctx, c.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := claims.Patch(ctx, c.Name, types.MergePatchType, bound, metav1.PatchOptions{}, "status")
	return err
}

// unbind a claim that is deleted, and take its volume away unless it is retained.
func (s *StandInStorage) unbind(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	none := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := s.Core.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
		return err
	}
	if c.Spec.VolumeName == "" {
		return nil
	}
	volumes := s.Core.CoreV1().PersistentVolumes()
	v, err := volumes.Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return err
	}
	if _, err := volumes.Patch(ctx, c.Spec.VolumeName, types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
		return err
	}
	return volumes.Delete(ctx, c.Spec.VolumeName, metav1.DeleteOptions{})
}

// move is the life of a mover's pod.
func (s *StandInStorage) move(ctx context.Context, p *corev1.Pod) {
	if !until(ctx, func() bool { return !s.still.Load() }) {
		return
	}
	now := metav1.Now()
	running := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
	}
	if s.status(ctx, p, running) != nil || !s.started(ctx, p) {
		return // it is gone
	}
	s.say(ctx, p, "Data-Path-Started", "started")
	select {
	case <-ctx.Done():
		return
	case <-time.After(s.Moves):
	}
	s.say(ctx, p, "Data-Path-Stopped", "stopped")
	_ = s.status(ctx, p, corev1.PodStatus{ // it may be gone
		Phase: corev1.PodSucceeded, StartTime: &now,
		ContainerStatuses: []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", Message: `{"snapshotID":"none","source":{"byPath":"/none","volumeMode":"Filesystem"},"target":{"byPath":"/none","volumeMode":"Filesystem"},"totalBytes":1}`,
		}}}},
	})
}

// started waits until a mover may begin: it does when its load is InProgress.
func (s *StandInStorage) started(ctx context.Context, p *corev1.Pod) (may bool) {
	kind, name := moved(p)
	of := LoadResources()[kind]
	until(ctx, func() bool {
		raw, err := s.Core.CoreV1().RESTClient().Get().AbsPath("/apis", of.Group, of.Version, "namespaces", p.Namespace, of.Resource, name).DoRaw(ctx)
		var load struct{ Status struct{ Phase string } }
		if err != nil || json.Unmarshal(raw, &load) != nil {
			return apierrors.IsNotFound(err)
		}
		may = load.Status.Phase == "InProgress"
		return may || slices.Contains([]string{"Completed", "Failed", "Canceled"}, load.Status.Phase)
	})
	return may
}

// until it is so, or ctx is done: false.
func until(ctx context.Context, so func() bool) bool {
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
}

func (s *StandInStorage) status(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.Core.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// say what a mover says of its load, which its node-agent listens to.
func (s *StandInStorage) say(ctx context.Context, p *corev1.Pod, reason, message string) {
	kind, load := moved(p)
	_, _ = s.Core.CoreV1().Events(p.Namespace).Create(ctx, &corev1.Event{ // without it the node-agent waits longer, and the test says so
		ObjectMeta:     metav1.ObjectMeta{GenerateName: load + "-", Namespace: p.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: LoadResources()[kind].GroupVersion().String(), Kind: kind, Namespace: p.Namespace, Name: load},
		Reason:         reason, Message: message, Type: corev1.EventTypeNormal, LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
}
