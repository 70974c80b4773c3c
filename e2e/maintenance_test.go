package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// veleroDeployment is what Velero's server makes its maintenance jobs after.
const veleroDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: velero, namespace: NAMESPACE}
spec:
  replicas: 0
  selector: {matchLabels: {deploy: velero}}
  template:
    metadata: {labels: {deploy: velero}}
    spec: {containers: [{name: velero, image: none, command: [/velero], args: [server]}]}
`

// maintenanceWorld is a cluster with a real server of Velero, whose repositories are
// objects alone: their maintenance is due when they say so, and its Jobs and their pods are
// real, but no kubelet runs them.
type maintenanceWorld struct {
	*veleroWorld
	server *velero.Server
}

func newMaintenanceWorld(t *testing.T) *maintenanceWorld {
	t.Helper()
	if os.Getenv("PLIMSOLL_VELERO") == "" { // make matrix asks for one
		live.Long(t, "a whole Velero")
	}
	c := cluster.New(t, cluster.Options{Args: map[string][]string{
		cluster.ControllerManager: {"--controllers=job-controller,serviceaccount-controller"}, // no kubelet is there: none is missed
	}})
	w := &maintenanceWorld{veleroWorld: newVeleroWorld(t, c, 2, `{}`, ", leaseDuration: 12s")}
	version, err := cluster.Pinned(cluster.Velero)
	require.NoError(t, err)
	t.Attr(cluster.Velero, version)
	w.server, err = velero.NewServer(t.Context(), c, w.namespace, t.TempDir(), "--log-level=debug")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Velero said last:\n%s", w.server.Tail())
		}
		require.NoError(t, w.server.Kill())
		require.NoError(t, w.server.Store.Kill())
	})
	require.NoError(t, c.Apply(t.Context(), w.named(veleroDeployment, "")))
	return w
}

// repository of a namespace, whose maintenance is due each hour, and next in so long.
func (w *maintenanceWorld) repository(of string, due time.Duration) {
	w.repositoryAt(of, "default", due)
}

func (w *maintenanceWorld) repositoryAt(of, location string, due time.Duration) {
	w.t.Helper()
	_, err := w.client.Resource(admission.RepositoryResource()).Namespace(w.namespace).Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "BackupRepository", "metadata": map[string]any{"name": of},
		"spec": map[string]any{
			"volumeNamespace": of, "backupStorageLocation": location, "repositoryType": "kopia", "maintenanceFrequency": "1h0m0s", "resticIdentifier": "",
		},
		"status": map[string]any{"phase": "Ready", "lastMaintenanceTime": time.Now().Add(due - time.Hour).UTC().Format(time.RFC3339)},
	}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// postpones makes a repository whose maintenance an earlier controller postponed.
func (h *veleroWorld) postpones(name string) {
	h.t.Helper()
	require.NoError(h.t, h.c.Apply(h.t.Context(), velero.BackupRepositories))
	eventually(h.t, "BackupRepositories are served", func() error {
		_, err := h.client.Resource(admission.RepositoryResource()).Namespace(h.namespace).Create(h.t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "velero.io/v1", "kind": "BackupRepository",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{gate.Postponed: `{"was":"1h","set":"3h0m0s"}`}},
			"spec":     map[string]any{"volumeNamespace": "shop", "backupStorageLocation": "default", "maintenanceFrequency": "3h0m0s"},
			"status":   map[string]any{"phase": "Ready", "lastMaintenanceTime": time.Now().UTC().Format(time.RFC3339)},
		}}, metav1.CreateOptions{})
		return err
	})
}

// frequency of a repository, and what it is postponed by; nil: it is not.
func (w *maintenanceWorld) frequency(of string) (frequency string, postponed *vgdp.Postponed) {
	w.t.Helper()
	u, err := w.client.Resource(admission.RepositoryResource()).Namespace(w.namespace).Get(w.t.Context(), of, metav1.GetOptions{})
	require.NoError(w.t, err)
	if note, there := u.GetAnnotations()[gate.Postponed]; there {
		require.NoError(w.t, json.Unmarshal([]byte(note), &postponed))
	}
	return text(u, "spec", "maintenanceFrequency"), postponed
}

func (w *maintenanceWorld) isPostponed(of string) {
	w.t.Helper()
	eventually(w.t, of+" is postponed", func() error {
		frequency, postponed := w.frequency(of)
		if postponed == nil {
			return errors.New("its frequency is " + frequency)
		}
		return wanted(*postponed, vgdp.Postponed{Was: "1h0m0s", Set: frequency})
	})
}

func (w *maintenanceWorld) isHandedBack(of string) {
	w.t.Helper()
	eventually(w.t, of+" is handed back", func() error {
		frequency, postponed := w.frequency(of)
		if postponed != nil {
			return errors.New("its frequency is " + frequency)
		}
		return wanted(frequency, "1h0m0s")
	})
}

// looks makes Velero look at a repository, which it does when the spec changes.
func (w *maintenanceWorld) looks(of string) {
	w.t.Helper()
	looked := func() int {
		n := 0
		for line := range strings.Lines(w.server.Log()) {
			if strings.Contains(line, "not due for maintenance") && strings.Contains(line, w.namespace+"/"+of) {
				n++
			}
		}
		return n
	}
	before := looked()
	w.patch(admission.RepositoryResource(), w.namespace+"/"+of, fmt.Sprintf(`{"spec":{"resticIdentifier":"looked %d times"}}`, before))
	eventually(w.t, "Velero finds that "+of+" is not due", func() error {
		if looked() <= before {
			return errors.New("it has not looked")
		}
		return nil
	})
}

// wouldBeDue waits until a maintenance would be due.
func (w *maintenanceWorld) wouldBeDue(at time.Time) {
	w.t.Helper()
	within(w.t, max(0, time.Until(at))+patience, "it would be due", func() error {
		if time.Now().Before(at.Add(2 * time.Second)) {
			return errors.New("not yet")
		}
		return nil
	})
}

// jobs of a repository.
func (w *maintenanceWorld) jobs(of string) []batchv1.Job {
	w.t.Helper()
	list, err := w.c.Client.BatchV1().Jobs(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: names.MaintenanceLabel + "=" + of})
	require.NoError(w.t, err)
	return list.Items
}

// placed is the pod of the one maintenance of a repository, on its node.
func (w *maintenanceWorld) placed(of string) (pod *corev1.Pod) {
	w.t.Helper()
	within(w.t, 2*patience, "the maintenance of "+of+" has a node", func() error {
		list, err := w.c.Client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: names.MaintenanceLabel + "=" + of})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.NodeName == "" {
			return fmt.Errorf("%d pods, %d Jobs", len(list.Items), len(w.jobs(of)))
		}
		pod = &list.Items[0]
		return nil
	})
	return pod
}

// succeeds: what a kubelet says of a pod that has done its work.
func (h *veleroWorld) succeeds(pod *corev1.Pod) {
	h.t.Helper()
	now := metav1.Now()
	body, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodSucceeded, StartTime: &now,
		ContainerStatuses: []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}}},
	}})
	require.NoError(h.t, err)
	_, err = h.c.Client.CoreV1().Pods(pod.Namespace).Patch(h.t.Context(), pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	require.NoError(h.t, err)
}

// keptOff waits until a new pod of a maintenance would be kept off these nodes alone.
func (w *maintenanceWorld) keptOff(nodes ...string) {
	w.t.Helper()
	within(w.t, 2*patience, fmt.Sprintf("a maintenance is kept off %v", nodes), func() error {
		pod, err := w.c.Client.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: map[string]string{names.MaintenanceLabel: "probe"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		var off []string
		if a := pod.Spec.Affinity; a != nil {
			off = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values
		}
		return wanted(fmt.Sprint(off), fmt.Sprint(nodes))
	})
}

// pressed is what the agent of a node says, or that all is calm there.
func (w *maintenanceWorld) pressed(node string, yes bool) {
	w.t.Helper()
	r := lease.NodeReport{}
	if yes {
		r = lease.NodeReport{Pressure: map[string]string{"disk": "soft"}, DataMoverBudget: new(1)}
	}
	w.report(node, r)
}

// Velero's own server and its maintenance jobs.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	clock := deadline.Start()
	w := newMaintenanceWorld(t)
	w.load(vgdp.DataUpload, "upload", "nightly", func(o map[string]any) {
		o["status"] = map[string]any{"phase": "InProgress", "node": w.nodes[0]}
	}) // of namespace shop
	w.pressed(w.nodes[0], true)
	w.pressed(w.nodes[1], false)
	a := w.controller().start()
	eventually(t, "the controller decides", func() error {
		if l := loadsOf(a); len(l.Veleros) != 1 || l.Veleros[0].Problem != "" || l.Veleros[0].MaintenanceProblem != "" {
			return fmt.Errorf("%+v", l.Veleros)
		}
		return nil
	})

	// One beside a Backup of the same repository waits, also when Velero looks.
	due := time.Now().Add(clock.Stretch(30 * time.Second))
	w.repository("shop", time.Until(due))
	w.isPostponed("shop")
	v := veleroOf(a)
	require.Len(t, v.Maintenances, 1)
	assert.Equal(t, "DataUpload upload is on its way", v.Maintenances[0].Why)
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_vgdp_postponed_maintenances{velero="`+w.namespace+`"} 1`)
	assert.Contains(t, a.mustGet("/"), "DataUpload upload is on its way")
	w.wouldBeDue(due)
	w.looks("shop")
	assert.Empty(t, w.jobs("shop"))

	// When the load has ended, Velero starts it at once, on the node without pressure.
	w.keptOff(w.nodes[0])
	w.patch(admission.Resource(vgdp.DataUpload), w.namespace+"/upload", `{"status":{"phase":"Completed"}}`)
	w.isHandedBack("shop")
	began := time.Now()
	pod := w.placed("shop")
	t.Logf("the Job and its pod came %s after the frequency was handed back", time.Since(began).Round(10*time.Millisecond))
	assert.Equal(t, w.nodes[1], pod.Spec.NodeName)

	// While it runs no other is put on its node, and Velero looks at no other repository:
	// this is why no Job is held.
	w.repositoryAt("nowhere", "none", time.Hour)
	w.pressed(w.nodes[0], false)
	w.keptOff(w.nodes[1])
	looked := func() error {
		for line := range strings.Lines(w.server.Log()) {
			if strings.Contains(line, "Fail to get BSL") && strings.Contains(line, w.namespace+"/nowhere") {
				return nil
			}
		}
		return errors.New("it has not looked")
	}
	require.Error(t, looked())
	w.succeeds(pod)
	eventually(t, "Velero looks at another repository", looked)
	w.keptOff()
	eventually(t, "Velero knows that it was done", func() error {
		u, err := w.client.Resource(admission.RepositoryResource()).Namespace(w.namespace).Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		last, err := time.Parse(time.RFC3339, text(u, "status", "lastMaintenanceTime"))
		if err == nil && last.Before(due) {
			err = errors.New("last at " + last.String())
		}
		return err
	})

	// Without a node that could take it, it waits; switched off, it is handed back.
	w.pressed(w.nodes[0], true)
	w.pressed(w.nodes[1], true)
	due = time.Now().Add(clock.Stretch(30 * time.Second))
	w.repository("cart", time.Until(due))
	w.isPostponed("cart")
	postponed := veleroOf(a).Maintenances
	require.NotEmpty(t, postponed)
	assert.Contains(t, postponed[0].Why, "2 of 2 are under pressure (node "+w.nodes[0])
	w.configure("enabled: true, maintenance: false, leaseDuration: 12s")
	w.isHandedBack("cart")
	w.configure("enabled: true, leaseDuration: 12s")
	w.isPostponed("cart")
	w.configure("enabled: false")
	w.isHandedBack("cart")
	w.configure("enabled: true, leaseDuration: 12s")
	w.isPostponed("cart")

	// A controller that starts disabled hands back what another one left, and release does.
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	w.configure("enabled: false")
	a = w.controller().start()
	w.isHandedBack("cart")
	w.configure("enabled: true, leaseDuration: 12s")
	w.isPostponed("cart")
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	w.wouldBeDue(due) // else Velero looks again in 5 min
	for _, node := range w.nodes {
		require.NoError(t, gone(w.c.Client.CoordinationV1().Leases(lease.Namespace).Delete(t.Context(), node, metav1.DeleteOptions{})))
	}
	status, said, stderr := run(t, "release", "--kubeconfig", w.c.Kubeconfig)
	require.Zero(t, status, stderr)
	assert.Contains(t, said, "BackupRepository "+w.namespace+"/cart: maintenance frequency handed back\n")
	w.isHandedBack("cart")
	w.placed("cart")
}
