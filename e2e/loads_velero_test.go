package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// moorings are what a node-agent of Velero's makes its data movers after, and a
// volume to back up.
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
`

// snapshot of the volume, which a DataUpload is made from.
const snapshot = `
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

// velerosHarbour is a harbour whose node-agents are Velero's own, and whose
// storage and kubelets are a stand-in.
func velerosHarbour(t *testing.T, nodes int, nodeAgent, settings string) *harbour {
	t.Helper()
	needsRoot(t)
	c := cluster.New(t, cluster.Options{Without: []string{cluster.ControllerManager}})
	h := newHarbour(t, c, nodes, nodeAgent, settings)
	require.NoError(t, c.Apply(t.Context(), []byte(velero.Snapshots), h.named(moorings, "")))
	h.storage = &velero.StandInStorage{Core: c.Client, Namespace: h.namespace, Moves: 300 * time.Millisecond}
	ctx, end := context.WithCancel(contextWithoutCancel(t))
	ended := make(chan error, 1)
	go func() { ended <- h.storage.Run(ctx) }()
	t.Cleanup(func() { end(); assert.NoError(t, <-ended) })
	as, err := c.User("velero", "system:masters")
	require.NoError(t, err)
	for _, node := range h.nodes {
		p, err := velero.NodeAgent(t.Context(), c, as, h.namespace, node, "node-agents")
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

func (h *harbour) named(manifest, name string) []byte {
	return []byte(strings.NewReplacer("NAMESPACE", h.namespace, "NAME", name).Replace(manifest))
}

// uploads of snapshots.
func (h *harbour) uploads(prefix string, n int) {
	h.t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		require.NoError(h.t, h.c.Apply(h.t.Context(), h.named(snapshot, name)))
		h.load(vgdp.DataUpload, name, "b", func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			spec["csiSnapshot"] = map[string]any{"volumeSnapshot": "of-" + name, "storageClass": "disks", "snapshotClass": "disks"}
			spec["sourceNamespace"], spec["sourcePVC"] = h.namespace, "data"
		})
	}
}

// wrote is how many writes to DataUploads were answered, by all clients, and how
// many of them were refused.
func (h *harbour) wrote() (all, refused int) {
	h.t.Helper()
	raw, err := h.c.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(h.t.Context())
	require.NoError(h.t, err)
	for _, m := range regexp.MustCompile(`(?m)^apiserver_request_total\{(.*resource="datauploads".*)\} (\d+)$`).FindAllStringSubmatch(string(raw), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(h.t, err)
		if !strings.Contains(m[1], `verb="PUT"`) && !strings.Contains(m[1], `verb="PATCH"`) {
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
func (h *harbour) accepted(limit int) (afterTicket, afterSlot []time.Duration) {
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
	at := func(q float64) time.Duration {
		return list[int(q*float64(len(list)-1)+0.5)].Round(time.Millisecond)
	}
	return fmt.Sprintf("median %s, 9 of 10 %s, most %s (of %d)", at(0.5), at(0.9), at(1), len(list))
}

// What Velero's own node-agents do by themselves, and what they do behind the
// gate, with the same ConfigMap.
func TestRealNodeAgentsTakeUpWhatTheGateLetsThem(t *testing.T) {
	t.Parallel()
	const limit, each = 3, 9
	h := velerosHarbour(t, 3, `{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":3}}`, ", leaseDuration: 8s, quietAbove: 4, diagnoseAfter: 1s")
	h.see()
	before, _ := h.wrote()
	began := time.Now()
	h.uploads("stock", each)
	h.allEnd(each, 8*patience)
	all, _ := h.wrote()
	most, _ := h.most()
	_, afterSlot := h.accepted(limit)
	t.Logf("Velero by itself: %d loads in %s, %d accepted and prepared at once at most (limit %d), %.1f writes a load\n"+
		"  a free slot -> Accepted: %s", each, time.Since(began).Round(time.Second), most, limit, float64(all-before)/each, quantiles(afterSlot))

	h.forgetHistory()
	a := h.controller().start()
	h.holds()
	before, was := h.wrote()
	began = time.Now()
	h.uploads("gated", each)
	within(t, 4*patience, "one of them is done", func() error {
		if is := h.phases(); is[vgdp.Completed] <= each {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	assert.NotZero(t, h.phases()[vgdp.New], "when it was killed some waited")
	again := h.controller().start()
	h.allEnd(2*each, 8*patience)
	all, refused := h.wrote()
	most, order := h.most()
	afterTicket, afterSlot := h.accepted(limit)
	t.Logf("behind the gate, the controller killed once: %d loads in %s, %d at once at most, %.1f writes a load, of all %d refused\n"+
		"  a free slot -> Accepted: %s\n  ticket -> Accepted: %s", each, time.Since(began).Round(time.Second), most, float64(all-before)/each, refused-was, quantiles(afterSlot), quantiles(afterTicket))
	assert.LessOrEqual(t, most, limit)
	assert.Len(t, order, each, "each had a ticket")
	assert.Contains(t, again.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
	h.isDiagnosed(again)
	again.end(syscall.SIGTERM)
}

// isDiagnosed: what keeps an accepted load from being prepared stands on it, and
// stays when Velero has taken away what it was about.
func (h *harbour) isDiagnosed(a *agent) {
	t := h.t
	h.storage.Keep(true)
	h.uploads("unbound", 1)
	diagnosis := ""
	within(t, 2*patience, "it is diagnosed", func() error {
		diagnosis = h.get(vgdp.DataUpload, "unbound-0").GetAnnotations()[gate.Diagnosis]
		if !strings.Contains(diagnosis, "Pod condition PodScheduled, status False") {
			return fmt.Errorf("%q", diagnosis)
		}
		return nil
	})
	t.Logf("the diagnosis:\n%s", diagnosis)
	assert.Contains(t, diagnosis, "reason Unschedulable, message 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims")
	assert.Contains(t, diagnosis, "PVC "+h.namespace+"/unbound-0, phase Pending")
	assert.Contains(t, diagnosis, "VS "+h.namespace+"/unbound-0")
	_, said, _ := run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "du/unbound-0")
	assert.Contains(t, said, "unbound immediate PersistentVolumeClaims")
	// As Velero does after 30 min, before it deletes the pod.
	h.patch(admission.Resource(vgdp.DataUpload), h.namespace+"/unbound-0", `{"status":{"phase":"Failed","message":"timeout on preparing data upload"}}`)
	require.NoError(t, gone(h.c.Client.CoreV1().Pods(h.namespace).Delete(t.Context(), "unbound-0", metav1.DeleteOptions{})))
	eventually(t, "the controller knows", func() error { return wanted(loadsOf(a).Veleros[0].Slots, 0) })
	assert.Equal(t, diagnosis, h.get(vgdp.DataUpload, "unbound-0").GetAnnotations()[gate.Diagnosis])
	assert.NotEqual(t, "0", metric(a, `plimsoll_vgdp_writes_total{result="diagnose"}`))
}

// forgetHistory of what was seen.
func (h *harbour) forgetHistory() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = nil
}
