package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// placeConfig is a ConfigMap as users write it: a large node, and nodes for classes.
const placeConfig = `{
  "loadConcurrency": {"globalConfig": 4, "perNodeConfig": [{"nodeSelector": {"matchLabels": {"node": "n1"}}, "number": 2}], "prepareQueueLength": 8},
  "loadAffinity": [
    {"nodeSelector": {"matchLabels": {"node": "n1"}}, "storageClass": "disks"},
    {"nodeSelector": {"matchExpressions": [{"key": "node", "operator": "In", "values": ["n2"]}]}, "storageClass": "tapes"},
    {"nodeSelector": {"matchLabels": {"node": "none"}}, "storageClass": "lost"}
  ]
}`

const placeClasses = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: tapes}
provisioner: stand-in
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: lost}
provisioner: stand-in
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: stand-in
volumeBindingMode: WaitForFirstConsumer
`

// Velero's own node-agents, the real scheduler, and a ConfigMap that says where. Nothing
// is prepared until it is told to, so what was accepted keeps its slot.
func TestLoadPlacesOnRealNodeAgents(t *testing.T) {
	t.Parallel()
	live.Long(t, "a Velero's node-agents of its own")
	h := newRealVeleroWorld(t, 3, placeConfig, fmt.Sprintf(", leaseDuration: %s, diagnoseAfter: 1h", deadline.Scale(12*time.Second)))
	require.NoError(t, h.c.Apply(t.Context(), []byte(placeClasses)))
	h.see()
	h.storage.Still(true)
	a := h.controller().start()
	done := h.loadAffinityAndPerNode(a)
	h.restoreSlot(a, done)
	h.volumeElsewhere()
	a.end(syscall.SIGTERM)
}

// restoreTo makes a DataDownload into a claim of a class, and its claim's annotation.
func (h *veleroWorld) restoreTo(name, class string, annotations map[string]string) {
	h.t.Helper()
	_, err := h.c.Client.CoreV1().PersistentVolumeClaims(h.namespace).Create(h.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"velero.io/dynamic-pv-restore": "x"}},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	h.load(vgdp.DataDownload, name, "back", func(o map[string]any) {
		o["spec"].(map[string]any)["targetVolume"] = map[string]any{"namespace": h.namespace, "pv": "", "pvc": "of-" + name}
	})
}

// nodeOfMover waits until the scheduler has put a load's pod somewhere.
func (h *veleroWorld) nodeOfMover(name string) (node string) {
	h.t.Helper()
	eventually(h.t, name+" has a pod on a node", func() error {
		p, err := h.c.Client.CoreV1().Pods(h.namespace).Get(h.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node = p.Spec.NodeName; node == "" {
			return fmt.Errorf("%+v", p.Status.Conditions)
		}
		return nil
	})
	return node
}

// waits until a load, and no other, waits for this reason, and returns its name.
func (h *veleroWorld) waits(a *agent, reason vgdp.Code, why string) (name string) {
	h.t.Helper()
	eventually(h.t, "one waits: "+why, func() error {
		list := veleroOf(a).Waiting
		if len(list) != 1 || list[0].Reason != reason || !strings.Contains(list[0].Why, why) {
			return fmt.Errorf("%+v", list)
		}
		name = list[0].Name
		return nil
	})
	return name
}

func (h *veleroWorld) loadAffinityAndPerNode(a *agent) (done int) {
	t := h.t
	h.holds()
	for i := range 3 {
		h.moves(vgdp.DataUpload, fmt.Sprintf("du-%d", i))
	}
	h.become(2, vgdp.Accepted)
	third := h.waits(a, vgdp.CodeFull, "the concurrency limit is reached on node "+h.nodes[0])
	h.restoreTo("tape", "tapes", nil)
	assert.Equal(t, h.nodes[1], h.nodeOfMover("tape"), "by the class of the claim that it fills")
	h.restoreTo("late", "late", map[string]string{"volume.kubernetes.io/selected-node": h.nodes[2]})
	assert.Equal(t, h.nodes[2], h.nodeOfMover("late"), "its claim's node was chosen")
	for i := range 3 {
		if name := fmt.Sprintf("du-%d", i); name != third {
			assert.Equal(t, h.nodes[0], h.nodeOfMover(name))
		}
	}
	// One of a class that no node serves is tried, for an autoscaler; the other waits.
	h.restoreTo("lost-1", "lost", nil)
	h.become(5, vgdp.Accepted)
	h.restoreTo("lost-2", "lost", nil)
	eventually(t, "it is unschedulable", func() error {
		for _, w := range veleroOf(a).Waiting {
			if w.Name == "lost-2" && w.Reason == vgdp.CodeUnschedulable && strings.Contains(w.Why, "3 excluded by loadAffinity or operating system") {
				return nil
			}
		}
		return fmt.Errorf("%+v", loadsOf(a).Veleros)
	})
	status, said, stderr := run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "dd/lost-2")
	assert.Zero(t, status, stderr)
	assert.Contains(t, said, "unschedulable: 3 excluded by loadAffinity or operating system")
	t.Logf("explained:\n%s", said)
	for _, name := range []string{"lost-1", "lost-2"} {
		h.finish(vgdp.DataDownload, name)
	}
	h.storage.Still(false)
	h.allEnd(7, 4*patience)
	h.storage.Still(true)
	return 7
}

// finish a load as if its data mover had, and take its pod away.
func (h *veleroWorld) finish(kind vgdp.Kind, name string) {
	h.t.Helper()
	h.patch(admission.Resource(kind), h.namespace+"/"+name, `{"metadata":{"labels":{"velero.io/expose-on-going":null}},"status":{"phase":"Completed"}}`)
	require.NoError(h.t, gone(h.c.Client.CoreV1().Pods(h.namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})))
}

// restoreSlot: as for the user whose eight PodVolumeBackups starved a PodVolumeRestore.
func (h *veleroWorld) restoreSlot(a *agent, done int) {
	t := h.t
	h.forgetHistory()
	for i := range 8 {
		h.moves(vgdp.PodVolumeBackup, fmt.Sprintf("full-%d", []int{1, 2}[i%2]+3*i))
	}
	h.become(7, vgdp.Accepted)
	last := h.waits(a, vgdp.CodeLimit, "7 of 8 slots of prepareQueueLength are taken and the last one is kept for restores")
	clock := deadline.Start()
	const each = 5
	for i := range each {
		for _, kind := range []vgdp.Kind{vgdp.PodVolumeRestore, vgdp.DataDownload} {
			name := fmt.Sprintf("%s-%d", strings.ToLower(string(kind)), 3*i) // on n1
			if kind == vgdp.DataDownload {
				h.restoreTo(name, "disks", nil)
			} else {
				h.moves(kind, name)
			}
			within(t, 2*patience, name+" is accepted", func() error {
				return wanted(text(h.get(kind, name), "status", "phase"), string(vgdp.Accepted))
			})
			h.finish(kind, name)
		}
	}
	ticket := h.fromMade(func(l *vgdp.Load) bool { return l.Ticket != nil }, "podvolumerestore-", "datadownload-")
	took := h.fromMade(func(l *vgdp.Load) bool { return l.Phase == vgdp.Accepted }, "podvolumerestore-", "datadownload-")
	t.Logf("a restore behind a full queue: made -> ticket: %s; made -> Accepted: %s", quantiles(ticket), quantiles(took))
	require.Len(t, ticket, 2*each)
	require.Len(t, took, 2*each)
	assert.Less(t, ticket[len(ticket)-1], clock.Stretch(time.Second), "what follows is Velero's own time")
	assert.Less(t, took[len(took)-1], clock.Stretch(2*time.Second), "promised: a second, twice for a busy machine")
	most, _ := h.most()
	assert.Equal(t, 8, most)
	assert.Equal(t, vgdp.New, h.phaseOf(vgdp.PodVolumeBackup, last), "the backup has not got the slot")
	h.storage.Still(false)
	h.allEnd(done+2*each+8, 4*patience)
}

func (h *veleroWorld) phaseOf(kind vgdp.Kind, name string) vgdp.Phase {
	if phase := text(h.get(kind, name), "status", "phase"); phase != "" {
		return vgdp.Phase(phase)
	}
	return vgdp.New
}

// fromMade is how long each load with one of these names took to get there, as a watch saw
// it, sorted.
func (h *veleroWorld) fromMade(there func(*vgdp.Load) bool, prefixes ...string) (list []time.Duration) {
	made, seen := map[string]time.Time{}, map[string]bool{}
	for _, e := range h.history() {
		l := &e.Load
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.Name, p) }) {
			continue
		}
		if made[l.UID].IsZero() {
			made[l.UID] = e.at
		}
		if there(l) && !seen[l.UID] {
			seen[l.UID] = true
			list = append(list, e.at.Sub(made[l.UID]))
		}
	}
	slices.Sort(list)
	return list
}

// volumeElsewhere: the copy is on a node where loadAffinity lets no pod go. The
// diagnosis, due in an hour, does not wait for that.
func (h *veleroWorld) volumeElsewhere() {
	t := h.t
	h.storage.PutOn(h.nodes[2])
	defer h.storage.PutOn("")
	h.moves(vgdp.DataUpload, "elsewhere-0")
	said := h.said("elsewhere-0", admission.ReasonStuck)
	t.Logf("the Event: %s", said)
	assert.Contains(t, said, "its volume is on nodes where its pod may not run: 0/3 nodes are available")
	eventually(t, "it is diagnosed", func() error {
		diagnosis := h.get(vgdp.DataUpload, "elsewhere-0").GetAnnotations()[gate.Diagnosis]
		if !strings.Contains(diagnosis, "unschedulable: 1 excluded by loadAffinity or operating system, 2 excluded by the volume's topology") {
			return errors.New(diagnosis)
		}
		return nil
	})
	h.finish(vgdp.DataUpload, "elsewhere-0")
}
