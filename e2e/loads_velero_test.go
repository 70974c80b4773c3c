package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// moorings are what a node-agent of Velero's makes its data movers after, a volume
// to back up, and one that no node here reaches.
const moorings = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-agent, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {name: node-agent}}
  template:
    metadata: {labels: {name: node-agent, role: node-agent}}
    spec:
      containers: [{name: node-agent, image: none, args: [node-agent, server]}]
      volumes: [{name: host-pods, hostPath: {path: /var/lib/kubelet/pods}}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: stand-in
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data-NAMESPACE}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  storageClassName: disks
  hostPath: {path: /none}
  claimRef: {namespace: NAMESPACE, name: data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], storageClassName: disks, volumeName: data-NAMESPACE, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: elsewhere-NAMESPACE}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  storageClassName: disks
  hostPath: {path: /none}
  claimRef: {namespace: NAMESPACE, name: elsewhere}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [none]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: elsewhere, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], storageClassName: disks, volumeName: elsewhere-NAMESPACE, resources: {requests: {storage: 1Gi}}}
`

// volumeSnapshot of the volume, which a DataUpload is made from.
const volumeSnapshot = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: of-NAME, namespace: NAMESPACE}
spec: {source: {persistentVolumeClaimName: data}}
status: {readyToUse: true, boundVolumeSnapshotContentName: of-NAME-NAMESPACE, restoreSize: 1Gi}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: of-NAME-NAMESPACE}
spec:
  deletionPolicy: Delete
  driver: stand-in
  source: {volumeHandle: none}
  volumeSnapshotRef: {name: of-NAME, namespace: NAMESPACE}
status: {readyToUse: true, snapshotHandle: none}
`

// newRealVeleroWorld is a harbour whose node-agents are Velero's own, and whose
// storage and kubelets are a stand-in.
func newRealVeleroWorld(t *testing.T, nodes int, nodeAgent, settings string) *veleroWorld {
	t.Helper()
	needsRoot(t)
	c := cluster.New(t, cluster.Options{Without: []string{cluster.ControllerManager}})
	h := newVeleroWorld(t, c, nodes, nodeAgent, settings)
	h.root = velero.Root(t.TempDir())
	pods, err := c.Client.CoreV1().Pods(h.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range pods.Items {
		require.NoError(t, h.root.Mount(&pods.Items[i]))
	}
	require.NoError(t, c.Apply(t.Context(), []byte(velero.Snapshots), h.named(moorings, "")))
	h.storage = &velero.StandInStorage{Core: c.Client, Namespace: h.namespace, Moves: 300 * time.Millisecond}
	ctx, end := context.WithCancel(contextWithoutCancel(t))
	ended := make(chan error, 1)
	go func() { ended <- h.storage.Run(ctx) }()
	t.Cleanup(func() { end(); assert.NoError(t, <-ended) })
	as, err := c.User("velero", "system:masters")
	require.NoError(t, err)
	for _, node := range h.nodes {
		p, err := velero.NodeAgent(t.Context(), c, as, h.root, h.namespace, node, "node-agents")
		require.NoError(t, err)
		require.NoError(t, p.Start())
		h.real = append(h.real, p)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("a node-agent said last:\n%s", p.Tail())
			}
			require.NoError(t, p.Kill())
		})
	}
	for _, p := range h.real {
		require.NoError(t, p.WaitReady(t.Context()))
	}
	return h
}

func (h *veleroWorld) named(manifest, name string) []byte {
	return []byte(strings.NewReplacer("NAMESPACE", h.namespace, "NAME", name).Replace(manifest))
}

// moves makes a load of a kind, with all that Velero's own node-agents need for
// it; one of a pod is on the node that the number in its name says.
func (h *veleroWorld) moves(kind vgdp.Kind, name string) {
	h.t.Helper()
	switch kind {
	case vgdp.DataUpload:
		h.uploads("data", name)
		return
	case vgdp.PodVolumeBackup:
		h.pod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app-" + name},
			Spec: corev1.PodSpec{
				NodeName: h.nodeOf(name), Containers: []corev1.Container{{Name: "app", Image: "none"}}, Volumes: []corev1.Volume{{Name: "v"}},
			},
		}, corev1.PodStatus{Phase: corev1.PodRunning})
	}
	h.load(kind, name, "b", func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		switch kind {
		case vgdp.PodVolumeBackup:
			spec["uploaderType"] = "kopia"
			// Without an owner a node-agent of 1.18.3 panics when the backup is done.
			o["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "velero.io/v1", "kind": "Backup", "name": "b", "uid": "b"}}
		case vgdp.PodVolumeRestore:
			spec["uploaderType"] = "kopia"
		}
	})
}

// uploads makes a DataUpload of a claim.
func (h *veleroWorld) uploads(claim, name string, finalizers ...any) {
	h.t.Helper()
	require.NoError(h.t, h.c.Apply(h.t.Context(), h.named(volumeSnapshot, name)))
	h.load(vgdp.DataUpload, name, "b", func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		spec["csiSnapshot"] = map[string]any{"volumeSnapshot": "of-" + name, "storageClass": "disks", "snapshotClass": "disks"}
		spec["sourceNamespace"], spec["sourcePVC"] = h.namespace, claim
		if len(finalizers) > 0 {
			o["metadata"].(map[string]any)["finalizers"] = finalizers
		}
	})
}

// mixed makes so many loads of each kind.
func (h *veleroWorld) mixed(prefix string, each int) {
	h.t.Helper()
	for i := range each {
		for _, kind := range admission.Kinds() {
			h.moves(kind, fmt.Sprintf("%s-%s-%d", prefix, strings.ToLower(string(kind)), i))
		}
	}
}

// wrote is how many writes to loads were answered, by all clients, and how many
// of them were refused.
func (h *veleroWorld) wrote() (all, refused int) {
	h.t.Helper()
	raw, err := h.c.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(h.t.Context())
	require.NoError(h.t, err)
	for _, m := range regexp.MustCompile(`(?m)^apiserver_request_total\{(.*resource="(?:datauploads|datadownloads|podvolumebackups|podvolumerestores)".*)\} (\d+)$`).FindAllStringSubmatch(string(raw), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(h.t, err)
		if !strings.Contains(m[1], `verb="PUT"`) && !strings.Contains(m[1], `verb="PATCH"`) {
			continue
		}
		if strings.Contains(m[1], `dry_run="All"`) { // the controller's, by which it knows its Gate
			continue
		}
		all += n
		if strings.Contains(m[1], `code="403"`) {
			refused += n
		}
	}
	return all, refused
}

// accepted are the waits of all loads that were seen until they were: how long
// after its ticket each, where it had one, and how long after a slot was free for
// it, as a watch sees it.
func (h *veleroWorld) accepted(limit int) (afterTicket, afterSlot []time.Duration) {
	phases, tickets, free := map[string]vgdp.Phase{}, map[string]time.Time{}, time.Time{}
	for _, e := range h.history() {
		l := &e.Load
		if l.Ticket != nil && tickets[l.UID].IsZero() {
			tickets[l.UID] = e.at
		}
		if l.Phase == phases[l.UID] {
			continue
		}
		phases[l.UID] = l.Phase
		if l.Phase == vgdp.Accepted {
			afterTicket, afterSlot = after(afterTicket, tickets[l.UID], e.at), after(afterSlot, free, e.at)
		}
		if free = e.at; slots(phases) >= limit {
			free = time.Time{}
		}
	}
	slices.Sort(afterTicket)
	slices.Sort(afterSlot)
	return afterTicket, afterSlot
}

// after appends how long it took since then, where that is known.
func after(list []time.Duration, then, at time.Time) []time.Duration {
	if then.IsZero() {
		return list
	}
	return append(list, at.Sub(then))
}

// slots that are taken.
func slots(phases map[string]vgdp.Phase) (n int) {
	for _, p := range phases {
		if p == vgdp.Accepted || p == vgdp.Prepared {
			n++
		}
	}
	return n
}

func quantiles(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	return fmt.Sprintf("median %s, 9 of 10 %s, most %s (of %d)", quantile(list, 0.5), quantile(list, 0.9), quantile(list, 1), len(list))
}

// quantile of a sorted list.
func quantile(list []time.Duration, q float64) time.Duration {
	return list[int(q*float64(len(list)-1)+0.5)].Round(time.Millisecond)
}

// What Velero's own node-agents do behind the gate with loads of all kinds; in the
// long form also what they do by themselves, with the same ConfigMap.
func TestLoadsOnRealNodeAgents(t *testing.T) {
	t.Parallel()
	nodes, limit, gated, stock, nearly := 3, 3, 24, 0, 0.95
	long := os.Getenv("PLIMSOLL_LONG") != ""
	if long {
		nodes, limit, gated, nearly = 5, 4, 200, 0.99
	}
	h := newRealVeleroWorld(t, nodes, fmt.Sprintf(`{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":%d}}`, limit),
		// A controller that is killed is back before its Gate opens, on a busy machine too.
		fmt.Sprintf(", leaseDuration: %s, hideAbove: 4, diagnoseAfter: 1s", deadline.Scale(12*time.Second)))
	h.see()
	if long {
		stock = h.byThemselves(limit)
	}
	h.forgetHistory()
	a := h.controller().start()
	h.holds()
	before, was := h.wrote()
	began := time.Now()
	h.mixed("gated", gated/4)
	h.leaveHidden()
	within(t, 4*patience, "one of them is done", func() error {
		if is := h.phases(); is[vgdp.Completed] <= stock {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	assert.NotZero(t, h.phases()[vgdp.New], "when it was killed some waited")
	again, clock := h.controller().start(), deadline.Start()
	h.allEnd(stock+gated, time.Duration(gated/3)*patience)
	all, refused := h.wrote()
	most, order := h.most()
	afterTicket, afterSlot := h.accepted(limit)
	t.Logf("behind the gate, the controller killed once: %d loads in %s, %d at once at most, %.1f writes a load, of all %d refused\n"+
		"  a free slot -> Accepted: %s\n  ticket -> Accepted: %s", gated, time.Since(began).Round(time.Second), most, float64(all-before)/float64(gated), refused-was, quantiles(afterSlot), quantiles(afterTicket))
	assert.LessOrEqual(t, most, limit)
	assert.Equal(t, gated, len(order), "each had a ticket")
	assert.Less(t, quantile(afterTicket, nearly), clock.Stretch(2*time.Second), "wanted: a second for 99 of 100, twice for a busy machine")
	assert.Contains(t, again.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
	h.isDiagnosed(again)
	h.part("a pressed node takes up none", func() { h.pressedNodeTakesUpNone(limit) })
	again.end(syscall.SIGTERM)
}

// leaveHidden: of two loads that are hidden, one is canceled and one is deleted,
// and Velero's node-agents see to it at once. Their finalizer, which they put on a load that
// they see before it is hidden, is there from the beginning: which of the two comes first
// is chance.
func (h *veleroWorld) leaveHidden() {
	t := h.t
	loads := h.client.Resource(admission.Resource(vgdp.DataUpload)).Namespace(h.namespace)
	for _, name := range []string{"canceled-0", "deleted-0"} {
		h.uploads("elsewhere", name, names.MoverFinalizer)
		within(t, 2*patience, name+" is hidden", func() error {
			return wanted(text(h.get(vgdp.DataUpload, name), "spec", "datamover"), gate.HiddenMover)
		})
	}
	_, err := loads.Patch(t.Context(), "canceled-0", types.MergePatchType, []byte(`{"spec":{"cancel":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, loads.Delete(t.Context(), "deleted-0", metav1.DeleteOptions{}))
	canceled := within(t, 2*patience, "the one is canceled", func() error {
		return wanted(text(h.get(vgdp.DataUpload, "canceled-0"), "status", "phase"), string(vgdp.Canceled))
	})
	deleted := within(t, 2*patience, "the other is gone", func() error {
		_, err := loads.Get(t.Context(), "deleted-0", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%w)", err)
		}
		return nil
	})
	t.Logf("hidden, one was canceled after %s, one was gone after %s", canceled.Round(10*time.Millisecond), deleted.Round(10*time.Millisecond))
}

func (h *veleroWorld) byThemselves(limit int) (loads int) {
	loads = 8
	before, _ := h.wrote()
	began := time.Now()
	h.mixed("stock", loads/4)
	h.allEnd(loads, 8*patience)
	all, _ := h.wrote()
	most, _ := h.most()
	_, afterSlot := h.accepted(limit)
	h.t.Logf("Velero by itself: %d loads in %s, %d accepted and prepared at once at most (limit %d), %.1f writes a load\n"+
		"  a free slot -> Accepted: %s", loads, time.Since(began).Round(time.Second), most, limit, float64(all-before)/float64(loads), quantiles(afterSlot))
	return loads
}

// watchedDisk is this machine's, as that of one node.
type watchedDisk struct {
	agent *agent // of ours, on that node
	file  string // on the disk
	dirs  [][]string
}

func (h *veleroWorld) watchedDisk(node string) *watchedDisk {
	t := h.t
	require.NoError(t, h.c.Apply(t.Context(), deploy.Heartbeats, deploy.Identity))
	kubeconfig, err := h.c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	top, dirs := ioCgroups(t, victimPod, presserPod)
	file := bigFile(t, 64<<20)
	countIO(t, dirs[1][0], diskOf(t, file))
	return &watchedDisk{prepareAgent(t, "--config", configFile(t, fmt.Sprintf(moverConfig, top, kubeconfig, node, t.TempDir(), true, false, h.namespace))).start(), file, dirs}
}

// press it until loads are held on the node, within the bound, and return when
// its agent judged that, and until when nothing starts.
func (h *veleroWorld) press(d *watchedDisk, node string) (judged, until time.Time) {
	t, clock := h.t, deadline.Start()
	t.Run("the disk is pressed", func(t *testing.T) {
		startLoad(t, "read", append([]string{d.file, "1048576", "4", "0"}, d.dirs[1]...)...)
		startLoad(t, "read", append([]string{d.file, "8192", "1", "1000"}, d.dirs[0]...)...)
		took := within(t, 2*patience, "loads are held there", func() error {
			if holds := h.gate(gate.Holds); holds == nil || text(holds, "spec", "holds", node) == "" {
				return errors.New(d.agent.mustGet("/api/v1/pressure"))
			}
			return nil
		})
		t.Logf("after %s", took.Round(10*time.Millisecond))
	})
	held := time.Now()
	until = reportOf(t, h.c, node).HoldUntil.Time
	judged = until.Add(-vgdp.HoldStep)
	t.Logf("loads are held %s after the agent judged the disk", held.Sub(judged).Round(10*time.Millisecond))
	assert.Less(t, held.Sub(judged), clock.Stretch(2*3*time.Second), "promised: 3 s, twice for a busy machine")
	return judged, until
}

// part of a test, which may be skipped alone.
func (h *veleroWorld) part(name string, do func()) {
	whole := h.t
	whole.Run(name, func(t *testing.T) {
		h.t = t
		defer func() { h.t = whole }()
		do()
	})
}

// pressedNodeTakesUpNone: what an agent of ours says of one node. Of the others
// nobody says anything.
func (h *veleroWorld) pressedNodeTakesUpNone(limit int) {
	t := h.t
	needsBlkio(t)
	disk := h.watchedDisk(h.nodes[0])
	h.forgetHistory()
	h.storage.Keep(false)
	h.storage.Still(true)
	pressed, done := h.nodes[0], h.phases()[vgdp.Completed]
	h.moves(vgdp.PodVolumeBackup, "held-0")
	h.become(1, vgdp.Accepted)
	judged, until := h.press(disk, pressed)
	elsewhere := limit - 2 // the last slot is kept for the restore
	for i := range elsewhere {
		h.moves(vgdp.DataUpload, fmt.Sprintf("elsewhere-%d", i+1))
	}
	for i := range elsewhere {
		h.steeredAway(fmt.Sprintf("elsewhere-%d", i+1), judged, until)
	}
	h.moves(vgdp.PodVolumeBackup, "later-0")
	h.moves(vgdp.PodVolumeRestore, "back-0")
	h.storage.Still(false)
	eventually(t, "its node-agent is refused", func() error {
		if !strings.Contains(h.real[0].Log(), "no data mover load may start on node "+pressed+" until") {
			return fmt.Errorf("%v", h.phases())
		}
		return nil
	})
	h.allEnd(done+3+elsewhere, 4*patience)
	started := map[string]time.Time{}
	for _, e := range h.history() {
		l := &e.Load
		if l.Phase == vgdp.InProgress && started[l.Name].IsZero() {
			started[l.Name] = e.at
			t.Logf("%s runs on %s %s before the hold ends", l.Name, l.Node, until.Sub(e.at).Round(10*time.Millisecond))
		}
		if l.Name == "later-0" && l.Ticket != nil {
			assert.False(t, e.at.Before(until), "a ticket %s before the hold ends", until.Sub(e.at))
		}
	}
	assert.False(t, started["held-0"].Before(until), "Prepared, and nothing starts there")
	// By then the hold may have ended, on a busy machine.
	assert.True(t, started["back-0"].Before(started["later-0"]), "pressure holds no restore, and the backup before it is held")
	assert.Contains(t, h.get(vgdp.PodVolumeBackup, "held-0").GetAnnotations()[gate.Diagnosis], "Pod "+h.namespace+"/held-0, phase ")
	most, _ := h.most()
	assert.LessOrEqual(t, most, limit)
}

// steeredAway: a DataUpload that is accepted meanwhile goes to another node.
func (h *veleroWorld) steeredAway(name string, after, before time.Time) {
	t := h.t
	var pod *corev1.Pod
	eventually(t, name+" has a pod on a node", func() (err error) {
		if pod, err = h.c.Client.CoreV1().Pods(h.namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil && pod.Spec.NodeName == "" {
			err = fmt.Errorf("%+v", pod.Status.Conditions)
		}
		return err
	})
	assert.WithinRange(t, pod.CreationTimestamp.Time, after.Truncate(time.Second), before)
	assert.NotEqual(t, h.nodes[0], pod.Spec.NodeName)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.NotEmpty(t, terms)
	for _, term := range terms {
		assert.Contains(t, term.MatchExpressions, corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: h.nodes[:1]})
	}
}

// isDiagnosed: what keeps an accepted load from being prepared stands on it, and
// stays when Velero has taken away what it was about.
func (h *veleroWorld) isDiagnosed(a *agent) {
	t := h.t
	h.storage.Keep(true)
	h.moves(vgdp.DataUpload, "unbound-0")
	diagnosis := ""
	within(t, 2*patience, "it is diagnosed", func() error {
		diagnosis = h.get(vgdp.DataUpload, "unbound-0").GetAnnotations()[gate.Diagnosis]
		if !strings.Contains(diagnosis, "Pod condition PodScheduled, status False") {
			return fmt.Errorf("%q", diagnosis)
		}
		return nil
	})
	t.Logf("the diagnosis:\n%s", diagnosis)
	assert.Contains(t, diagnosis, fmt.Sprintf("reason Unschedulable, message 0/%d nodes are available: pod has unbound immediate PersistentVolumeClaims", len(h.nodes)))
	assert.Contains(t, diagnosis, "PVC "+h.namespace+"/unbound-0, phase Pending")
	assert.Contains(t, diagnosis, "VS "+h.namespace+"/unbound-0")
	_, said, _ := run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "du/unbound-0")
	assert.Contains(t, said, "unbound immediate PersistentVolumeClaims")
	// As Velero does after 30 min, before it deletes the pod.
	h.patch(admission.Resource(vgdp.DataUpload), h.namespace+"/unbound-0", `{"metadata":{"labels":{"velero.io/expose-on-going":null}},"status":{"phase":"Failed","message":"timeout on preparing data upload"}}`)
	require.NoError(t, gone(h.c.Client.CoreV1().Pods(h.namespace).Delete(t.Context(), "unbound-0", metav1.DeleteOptions{})))
	eventually(t, "the controller knows", func() error { return wanted(veleroOf(a).Slots, 0) })
	assert.Equal(t, diagnosis, h.get(vgdp.DataUpload, "unbound-0").GetAnnotations()[gate.Diagnosis])
	assert.NotEqual(t, "0", metric(a, `plimsoll_vgdp_writes_total{result="diagnose"}`))
}

// forgetHistory of what was seen.
func (h *veleroWorld) forgetHistory() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = nil
}
