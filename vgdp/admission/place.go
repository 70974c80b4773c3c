package admission

import (
	"context"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// storageClass is what one says of where a mover may run.
type storageClass struct {
	known bool
	// delayed: a claim is bound when its pod is scheduled (WaitForFirstConsumer).
	delayed bool
	// windows: its volumes have a file system of Windows.
	windows bool
	// topology where its volumes can be; nil: everywhere.
	topology *corev1.NodeSelector
}

// classes that were read, by name.
type classes struct {
	of      storagev1client.StorageClassesGetter
	known   map[string]readClass
	changes uint64 // of what was known
}

type readClass struct {
	storageClass
	at time.Time
}

// classInterval is how often a storage class is read again: next to all of it never
// changes.
const classInterval = time.Minute

// class is a storage class; false: there is no lookup left to read it now. One that
// cannot be read is unknown, and Velero will check it.
func (t *targets) class(ctx context.Context, name string, now time.Time) (storageClass, bool) {
	if name == "" { // the claim is bound to a volume that is there
		return storageClass{known: true}, true
	}
	was, read := t.classes.known[name]
	if read && now.Sub(was.at).Abs() < classInterval {
		return was.storageClass, true
	}
	if !t.take() {
		return was.storageClass, read
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	is := readClass{at: now}
	c, err := t.classes.of.StorageClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		is.storageClass = classOf(c)
	case !apierrors.IsNotFound(err) && !t.mayNot(err):
		t.fail()
		return was.storageClass, true
	}
	t.classes.known[name] = is
	if !read || !reflect.DeepEqual(was.storageClass, is.storageClass) {
		t.classes.changes++
	}
	return is.storageClass, true
}

func classOf(c *storagev1.StorageClass) storageClass {
	return storageClass{
		known:    true,
		delayed:  c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer,
		windows:  isNTFS(c.Parameters["csi.storage.k8s.io/fstype"]),
		topology: vgdp.AllowedTopologies(c.AllowedTopologies),
	}
}

func isNTFS(fsType string) bool { return strings.EqualFold(fsType, "ntfs") }

// mover is what determines where the pod of a DataUpload or DataDownload may run.
type mover struct {
	kind vgdp.Kind
	// class of the volume that the pod gets, by name and as it is. Of a DataUpload that is
	// a copy, which may have another class than its source.
	class  string
	copied storageClass
	source storageClass
	volume volume
	// windows: it moves a volume of Windows.
	windows bool
}

// spec is where the pod may run, as Velero 1.18 makes it and the scheduler places it.
func (m *mover) spec(c *vgdp.NodeAgent, agents []corev1.Toleration) vgdp.PlaceSpec {
	s := vgdp.PlaceSpec{Tolerations: vgdp.MoverTolerations(agents, m.windows)}
	if m.source.delayed && m.volume.topology != nil {
		s.Volumes = append(s.Volumes, m.volume.topology)
	}
	if m.copied.delayed && m.copied.topology != nil {
		s.Volumes = append(s.Volumes, m.copied.topology)
	}
	affinity := vgdp.AffinityFor(c.LoadAffinity, m.class)
	if m.followsPod(c) {
		// Velero waits for the node of the restored pod, and leaves loadAffinity out.
		affinity = nil
		if m.volume.selected != "" {
			affinity = &vgdp.LoadAffinity{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: m.volume.selected}}}
		}
	}
	s.Affinity = vgdp.PodAffinity(&vgdp.OnOS(affinity, m.windows).NodeSelector, nil)
	return s
}

// followsPod tells whether Velero restores the volume on the node of the pod that will
// use it. One whose class is unknown may be such a volume.
func (m *mover) followsPod(c *vgdp.NodeAgent) bool {
	return m.kind == vgdp.DataDownload && !c.RestorePVC.IgnoreDelayBinding && (m.copied.delayed || !m.copied.known)
}

// places are those of loads, by what they are made of. They are made anew when the
// configuration, the cluster or a storage class changes.
type places struct {
	known   map[placeKey]vgdp.Place
	version [2]uint64 // of the cluster and of the storage classes
}

type placeKey struct {
	kind           vgdp.Kind
	class          string
	windows        bool
	node, topology string
}

// place of a mover. version is that of the cluster and the storage classes.
func (c *configuration) place(m *mover, agents []corev1.Toleration, version [2]uint64) vgdp.Place {
	if c.places.known == nil || c.places.version != version {
		c.places = places{known: map[placeKey]vgdp.Place{}, version: version}
	}
	key := placeKey{kind: m.kind, class: m.class, windows: m.windows, node: m.volume.selected}
	if m.source.delayed {
		key.topology = m.volume.text
	}
	if m.kind == vgdp.DataUpload {
		key.node = "" // it may follow its source's topology, never its node
	}
	p, known := c.places.known[key]
	if !known {
		p = vgdp.NewPlace(m.spec(&c.live, agents))
		c.places.known[key] = p
	}
	return p
}

// windows tells whether a volume that is backed up is one of Windows, as Velero does: by
// the node that was selected for its claim, else by its file system. Velero asks before
// which node it is attached to, which differs only for a class that binds at once and
// names no file system.
func (c *cluster) windows(v volume, class storageClass) bool {
	if v.block {
		return false
	}
	if n, there := c.nodes.Get("", v.selected); there && v.selected != "" {
		return n.Labels[corev1.LabelOSStable] == "windows"
	}
	return isNTFS(v.fsType) || class.windows
}
