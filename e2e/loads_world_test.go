package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// veleroWorld is a cluster with a Velero whose node-agents are stand-ins, behind the
// policies of deploy.
type veleroWorld struct {
	t         *testing.T
	c         *cluster.Cluster
	client    dynamic.Interface
	namespace string // Velero's
	nodes     []string
	config    string
	agents    velero.StandInAgent // what they have in common
	// Where the node-agents are Velero's own.
	real    []*cluster.Process
	root    velero.Root
	storage *velero.StandInStorage

	mu     sync.Mutex // guards events
	events []seen
}

// seen is a load as a watch brought it.
type seen struct {
	*admission.Object
	version uint64
	at      time.Time
}

// quickLoads: a leader is missed after 5 s.
const quickLoads = "election: {duration: 5s}\nagents: {monitorGracePeriod: 1h, taintRemovalDelay: 1h}\nvgdp: {%s}\n"

// withoutKubelets: nobody taints nodes whose kubelet is not there.
func withoutKubelets() cluster.Options {
	return cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}}
}

func newVeleroWorld(t *testing.T, c *cluster.Cluster, nodes int, nodeAgent, settings string) *veleroWorld {
	t.Helper()
	version, err := cluster.Pinned(cluster.Velero)
	require.NoError(t, err)
	return veleroWorldOf(t, c, version, nodes, nodeAgent, settings)
}

// veleroWorldOf a version of Velero.
func veleroWorldOf(t *testing.T, c *cluster.Cluster, version string, nodes int, nodeAgent, settings string) *veleroWorld {
	t.Helper()
	definitions, err := velero.Definitions(version)
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), append(definitions, deploy.RBAC, deploy.ControllerRBAC, deploy.GateCRD, deploy.Gate)...))
	c.ApplyServed(t, deploy.GateMutating, deploy.GateMutatingV1beta1)
	client, err := dynamic.NewForConfig(c.Admin)
	require.NoError(t, err)
	h := &veleroWorld{t: t, c: c, client: client, namespace: c.Namespace(t)}
	h.config = filepath.Join(t.TempDir(), "controller.yaml")
	h.configure("enabled: true" + settings)
	_, err = c.Client.CoreV1().ConfigMaps(h.namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "node-agents"}, Data: map[string]string{"config": nodeAgent},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range nodes {
		h.node(fmt.Sprintf("n%d-%s", i+1, h.namespace[len(h.namespace)-5:]))
	}
	h.agents = velero.StandInAgent{Namespace: h.namespace, Concurrency: 2, Prepares: 200 * time.Millisecond, Moves: 300 * time.Millisecond}
	h.through(0)
	return h
}

// through an API server the node-agents do all.
func (h *veleroWorld) through(i int) {
	h.t.Helper()
	h.agents.Client = h.clientAt(i)
	var err error
	h.agents.Core, err = kubernetes.NewForConfig(h.c.AdminAt(i))
	require.NoError(h.t, err)
}

func (h *veleroWorld) clientAt(i int) dynamic.Interface {
	h.t.Helper()
	as := h.c.AdminAt(i)
	as.QPS = 50
	client, err := dynamic.NewForConfig(as)
	require.NoError(h.t, err)
	return client
}

// configure anew how loads are held.
func (h *veleroWorld) configure(settings string) {
	h.t.Helper()
	write(h.t, h.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: %s}]\n%s", h.namespace, fmt.Sprintf(quickLoads, settings)))
}

// node with the pod of a node-agent, that says of itself what Velero's says.
func (h *veleroWorld) node(name string) {
	h.t.Helper()
	short, _, _ := strings.Cut(name, "-")
	_, err := h.c.AddNode(h.t.Context(), name, map[string]string{"node": short})
	require.NoError(h.t, err)
	h.t.Cleanup(func() {
		require.NoError(h.t, h.c.Client.CoreV1().Nodes().Delete(contextWithoutCancel(h.t), name, metav1.DeleteOptions{}))
	})
	// The API server taints a new Node until a controller finds it ready.
	_, err = h.c.Client.CoreV1().Nodes().Patch(h.t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	require.NoError(h.t, err)
	h.nodes = append(h.nodes, name)
	h.pod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "node-agent-" + name, Labels: map[string]string{"role": "node-agent"}},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{
			Name: "node-agent", Image: "none", Command: []string{"/velero"}, Args: []string{"node-agent", "server", "--node-agent-configmap=node-agents"},
		}}},
	}, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "node-agent", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}})
}

// pod as if its kubelet ran it.
func (h *veleroWorld) pod(p *corev1.Pod, status corev1.PodStatus) {
	h.t.Helper()
	pods := h.c.Client.CoreV1().Pods(h.namespace)
	made, err := pods.Create(h.t.Context(), p, metav1.CreateOptions{})
	require.NoError(h.t, err)
	if h.root != "" {
		require.NoError(h.t, h.root.Mount(made))
	}
	if status.Phase == corev1.PodRunning {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	made.Status, made.ResourceVersion = status, "" // whatever a stand-in has written meanwhile
	_, err = pods.UpdateStatus(h.t.Context(), made, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

// runAgents until the test ends, or until they are told to.
func (h *veleroWorld) runAgents() (stop func()) {
	h.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(h.t))
	var running sync.WaitGroup
	for _, node := range h.nodes {
		a := velero.StandInAgent{
			Client: h.agents.Client, Core: h.agents.Core, Namespace: h.agents.Namespace, Node: node, Concurrency: h.agents.Concurrency,
			PrepareLimit: h.agents.PrepareLimit, Old: h.agents.Old, Prepares: h.agents.Prepares, Moves: h.agents.Moves,
		}
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				h.t.Error(err)
			}
		})
	}
	stop = func() { end(); running.Wait() }
	h.t.Cleanup(stop)
	return stop
}

// nodeOf a load of a pod: the number at the end of its name says it.
func (h *veleroWorld) nodeOf(name string) string {
	if i, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]); err == nil {
		return h.nodes[i%len(h.nodes)]
	}
	return h.nodes[len(name)%len(h.nodes)]
}

// load makes one, as Velero does; a PodVolumeRestore with the pod that waits for
// it, a DataDownload with its claim.
func (h *veleroWorld) load(kind vgdp.Kind, name, of string, change func(map[string]any)) {
	h.t.Helper()
	node := h.nodeOf(name)
	spec := map[string]any{"backupStorageLocation": "default"}
	labels := map[string]any{"velero.io/backup-name": of}
	pod := map[string]any{"kind": "Pod", "namespace": h.namespace, "name": "app-" + name}
	switch kind {
	case vgdp.DataUpload:
		spec["operationTimeout"], spec["snapshotType"], spec["sourceNamespace"], spec["sourcePVC"] = "10m", "CSI", "shop", name
	case vgdp.DataDownload:
		labels = map[string]any{"velero.io/restore-name": of}
		spec["operationTimeout"], spec["snapshotID"], spec["sourceNamespace"] = "10m", "s", "shop"
		spec["targetVolume"] = map[string]any{"namespace": h.namespace, "pv": "", "pvc": "to-" + name}
		h.claim("to-" + name)
	case vgdp.PodVolumeBackup:
		spec["node"], spec["pod"], spec["repoIdentifier"], spec["volume"] = node, pod, "r", "v"
	case vgdp.PodVolumeRestore:
		labels = map[string]any{"velero.io/restore-name": of}
		spec["pod"], spec["repoIdentifier"], spec["snapshotID"], spec["sourceNamespace"], spec["volume"] = pod, "r", "s", "shop", "v"
		h.pod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "app-" + name},
			Spec: corev1.PodSpec{
				NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "none"}},
				InitContainers: []corev1.Container{{Name: "restore-wait", Image: "none"}}, Volumes: []corev1.Volume{{Name: "v"}},
			},
		}, corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "restore-wait", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}})
	}
	resource := admission.Resource(kind)
	object := map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": string(kind), "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
	}
	if change != nil {
		change(object)
	}
	_, err := h.client.Resource(resource).Namespace(h.namespace).Create(h.t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	require.NoError(h.t, err)
}

// claim that a volume is restored for: its selector keeps provisioners away, as
// Velero does it.
func (h *veleroWorld) claim(name string) {
	h.t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(h.t, json.Unmarshal(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],"selector":{"matchLabels":{"velero.io/dynamic-pv-restore":"x"}},"resources":{"requests":{"storage":"1Gi"}}}}`, name), &u.Object))
	_, err := h.client.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(h.namespace).Create(h.t.Context(), u, metav1.CreateOptions{})
	require.NoError(h.t, err)
}

// backup that loads are part of.
func (h *veleroWorld) backup(name string, labels, spec map[string]any) {
	h.t.Helper()
	_, err := h.client.Resource(velero.Resource()).Namespace(h.namespace).Create(h.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
	}}, metav1.CreateOptions{})
	require.NoError(h.t, err)
}

// see every event of all loads from now on.
func (h *veleroWorld) see() {
	h.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(h.t))
	var watches sync.WaitGroup
	h.t.Cleanup(func() { end(); watches.Wait() })
	for _, kind := range admission.Kinds() {
		of := h.client.Resource(admission.Resource(kind)).Namespace(h.namespace)
		list, err := of.List(h.t.Context(), metav1.ListOptions{})
		require.NoError(h.t, err)
		w, err := of.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		require.NoError(h.t, err)
		watches.Go(func() {
			defer w.Stop()
			for e := range w.ResultChan() {
				if err := h.saw(kind, e); err != nil && ctx.Err() == nil {
					h.t.Error(err)
					return
				}
			}
		})
	}
}

func (h *veleroWorld) saw(kind vgdp.Kind, e watch.Event) error {
	u, is := e.Object.(*unstructured.Unstructured)
	if !is {
		return fmt.Errorf("the watch of %s ended: %v", kind, e.Object)
	}
	version, err := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, seen{admission.Read(kind, u), version, time.Now()})
	return nil
}

// history is every event in the order in which etcd has it.
func (h *veleroWorld) history() []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.events)
	slices.SortFunc(all, func(a, b seen) int { return cmp.Compare(a.version, b.version) })
	return all
}

// most that were Accepted or Prepared at one moment, and the order in which they
// got their tickets.
func (h *veleroWorld) most() (most int, order []*admission.Object) {
	phases := map[string]vgdp.Phase{}
	had := map[string]bool{}
	for _, e := range h.history() {
		phases[e.Load.UID] = e.Load.Phase
		if t := e.Load.Ticket; t != nil && !had[e.Load.UID] {
			had[e.Load.UID] = true
			order = append(order, e.Object)
		}
		n := 0
		for _, phase := range phases {
			if phase == vgdp.Accepted || phase == vgdp.Prepared {
				n++
			}
		}
		most = max(most, n)
	}
	return most, order
}

// phases of all loads, counted.
func (h *veleroWorld) phases() map[vgdp.Phase]int {
	h.t.Helper()
	all := map[vgdp.Phase]int{}
	for _, kind := range admission.Kinds() {
		list, err := h.client.Resource(admission.Resource(kind)).Namespace(h.namespace).List(h.t.Context(), metav1.ListOptions{})
		require.NoError(h.t, err)
		for i := range list.Items {
			all[cmp.Or(admission.Read(kind, &list.Items[i]).Load.Phase, vgdp.New)]++
		}
	}
	return all
}

// allEnd waits until every load is Completed.
func (h *veleroWorld) allEnd(n int, d time.Duration) {
	h.t.Helper()
	within(h.t, d, "all loads end", func() error {
		if is := h.phases(); is[vgdp.Completed] != n {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
}

func (h *veleroWorld) get(kind vgdp.Kind, name string) *unstructured.Unstructured {
	h.t.Helper()
	u, err := h.client.Resource(admission.Resource(kind)).Namespace(h.namespace).Get(h.t.Context(), name, metav1.GetOptions{})
	require.NoError(h.t, err)
	return u
}

// gate as it is; nil: there is none.
func (h *veleroWorld) gate(name string) *unstructured.Unstructured {
	h.t.Helper()
	list, err := h.client.Resource(gate.Resource()).Namespace(h.namespace).List(h.t.Context(), metav1.ListOptions{})
	require.NoError(h.t, err)
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			return &list.Items[i]
		}
	}
	return nil
}

// holds waits until the gate does.
func (h *veleroWorld) holds() {
	h.t.Helper()
	eventually(h.t, "the gate holds", func() error {
		g := h.gate(gate.Main)
		if g == nil {
			return errors.New("there is none")
		}
		is, _, err := unstructured.NestedBool(g.Object, "spec", "limited")
		if err == nil && !is {
			err = errors.New("it limits nothing")
		}
		return err
	})
}

// become waits until so many loads are in a phase.
func (h *veleroWorld) become(n int, phase vgdp.Phase) {
	h.t.Helper()
	eventually(h.t, string(phase), func() error {
		if is := h.phases(); is[phase] != n {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
}

// said waits for an Event of a load.
func (h *veleroWorld) said(name, reason string) string {
	h.t.Helper()
	return eventOf(h.t, h.c, h.namespace, name, reason)
}

// report of an agent of ours, as its heartbeat carries it.
func (h *veleroWorld) report(node string, r lease.NodeReport) {
	h.t.Helper()
	text, err := json.Marshal(r)
	require.NoError(h.t, err)
	now := lease.Micro(time.Now())
	leases := h.c.Client.CoordinationV1().Leases(lease.Namespace)
	err = leases.Delete(h.t.Context(), node, metav1.DeleteOptions{})
	require.NoError(h.t, gone(err))
	_, err = leases.Create(h.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{lease.NodeAnnotation: string(text)}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
	}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	h.t.Cleanup(func() {
		require.NoError(h.t, gone(leases.Delete(contextWithoutCancel(h.t), node, metav1.DeleteOptions{})))
	})
}

// configMap is written anew.
func (h *veleroWorld) configMap(text string) {
	h.t.Helper()
	body, err := json.Marshal(map[string]any{"data": map[string]string{"config": text}})
	require.NoError(h.t, err)
	_, err = h.c.Client.CoreV1().ConfigMaps(h.namespace).Patch(h.t.Context(), "node-agents", types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(h.t, err)
}

// controller is the built program, as its service account.
func (h *veleroWorld) controller() *agent {
	h.t.Helper()
	kubeconfig, err := h.c.ServiceAccount(h.t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(h.t, err)
	a := &agent{t: h.t, ended: make(chan struct{})}
	a.cmd = exec.Command(binary, "controller", "--config", h.config, "--kubeconfig", kubeconfig, "--web.listen-address", "127.0.0.1:0", "--log.level", "debug")
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("the controller said:\n%s", a.stderr.String())
		}
	})
	return a
}
