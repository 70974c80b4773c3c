package chart_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
)

const nodeName = "n1"

// world is a cluster that the chart is installed in, and the containers of its
// node.
type world struct {
	chart.Helm
	t          *testing.T
	c          *cluster.Cluster
	client     dynamic.Interface
	host       string // where pods keep what outlives them
	controller *container
	agent      *container
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.New(t, cluster.Options{})
	client, err := dynamic.NewForConfig(c.Admin)
	require.NoError(t, err)
	c.Node(t, nodeName)
	return &world{Helm: chart.NewHelm(t, c.Kubeconfig), t: t, c: c, client: client, host: t.TempDir()}
}

// all objects there are, by name.
func (w *world) all() map[string]schema.GroupVersionResource {
	w.t.Helper()
	return chart.All(w.t, w.c.Admin)
}

// refused says why the API server does not take an object that is there already,
// for nothing to be written: it refuses what it does not know.
func (w *world) refused(o *unstructured.Unstructured, there map[string]schema.GroupVersionResource) error {
	w.t.Helper()
	body, err := json.Marshal(o)
	require.NoError(w.t, err)
	of := there[chart.NameOf(o)].GroupResource().WithVersion(o.GroupVersionKind().Version)
	_, err = w.client.Resource(of).Namespace(o.GetNamespace()).Patch(w.t.Context(), o.GetName(), types.MergePatchType, body,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// What a pod needs of its node, which tells the forms of an agent apart.
const (
	nothing = "nothing" // a user without rights
	seeing  = "seeing"  // root with a few capabilities
	acting  = "acting"  // privileged
)

// needsOf a pod of ours, as its API object says.
func needsOf(pod *corev1.Pod) string {
	switch rules := pod.Spec.Containers[0].SecurityContext; {
	case rules.Privileged != nil && *rules.Privileged:
		return acting
	case pod.Spec.HostPID:
		return seeing
	}
	return nothing
}

// pod of ours that has a node, is not about to end and needs that; it is made soon.
func (w *world) pod(component, needs string) (pod *corev1.Pod) {
	w.t.Helper()
	eventually(w.t, "a pod of "+component, func() error {
		list, err := w.c.Client.CoreV1().Pods(chart.Namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if pod = &list.Items[i]; pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && needsOf(pod) == needs {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
	return pod
}

// runs is a container of ours that has become ready.
func (w *world) runs(component, needs string) *container {
	w.t.Helper()
	k := contain(w.t, w.c, w.pod(component, needs), w.host)
	k.ready()
	return k
}

// beaten is when the agent's Lease was renewed.
func (w *world) beaten() (time.Time, error) {
	l, err := w.c.Client.CoordinationV1().Leases("plimsoll-node-lease").Get(w.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != nodeName || l.Spec.RenewTime == nil {
		return time.Time{}, errors.New("nobody holds it")
	}
	return l.Spec.RenewTime.Time, nil
}

func (w *world) becomes(k *container, metric, want string) {
	w.t.Helper()
	eventually(w.t, metric+" is "+want, func() error {
		if have := k.metric(metric); have != want {
			return fmt.Errorf("it is %q", have)
		}
		return nil
	})
}

func (w *world) says(k *container, what string) {
	w.t.Helper()
	eventually(w.t, "it says "+what, func() error {
		if !strings.Contains(k.out.String(), what) {
			return errors.New("not yet")
		}
		return nil
	})
}

func (w *world) generation() int64 {
	w.t.Helper()
	set, err := w.c.Client.AppsV1().DaemonSets(chart.Namespace).Get(w.t.Context(), "plimsoll-agent", metav1.GetOptions{})
	require.NoError(w.t, err)
	return set.Generation
}

// hook is an object of the release that helm makes at a certain moment. Helm
// itself would wait for a kubelet.
func (w *world) hook(kind string) []*unstructured.Unstructured {
	w.t.Helper()
	var list []*unstructured.Unstructured
	for _, o := range chart.Objects(w.t, w.Run("get", "hooks", "plimsoll")) {
		if strings.HasPrefix(o.GetAnnotations()["helm.sh/hook"], kind) {
			list = append(list, o)
		}
	}
	require.NotEmpty(w.t, list)
	return list
}

// make objects as helm would.
func (w *world) make(list []*unstructured.Unstructured) {
	w.t.Helper()
	for _, o := range list {
		text, err := json.Marshal(o)
		require.NoError(w.t, err)
		require.NoError(w.t, w.c.Apply(w.t.Context(), text))
	}
}

// doctor is what helm test runs.
func (w *world) doctor(needs string) string {
	w.t.Helper()
	test := w.hook("test")
	w.make(test)
	k := contain(w.t, w.c, w.pod("doctor", needs), w.host)
	k.wait()
	assert.Zero(w.t, k.cmd.ProcessState.ExitCode(), k.out.String())
	require.NoError(w.t, w.c.Client.CoreV1().Pods(chart.Namespace).Delete(w.t.Context(), k.pod.Name, *metav1.NewDeleteOptions(0)))
	return k.out.String()
}

// hide a load of Velero's, as the policies do while nobody looks at it.
func (w *world) hide() {
	w.t.Helper()
	require.NoError(w.t, w.c.Apply(w.t.Context(), velero.DataUploads))
	require.NoError(w.t, w.c.Apply(w.t.Context(), []byte(`
{apiVersion: v1, kind: Namespace, metadata: {name: velero}}
---
apiVersion: velero.io/v2alpha1
kind: DataUpload
metadata: {name: hidden, namespace: velero, annotations: {plimsoll.dev/held-datamover: ""}}
spec: {datamover: plimsoll.dev/held, backupStorageLocation: a, operationTimeout: 10m, snapshotType: CSI, sourceNamespace: shop, sourcePVC: data}
`)))
}

// mark the Node as an agent does, once the one that is there, in a dry run again, has
// removed what it wrote: after that it leaves a calm Node alone.
func (w *world) mark() {
	w.t.Helper()
	eventually(w.t, "the load alone has a mark", func() error {
		if have := w.marks(); len(have) != 1 {
			return fmt.Errorf("%q", have)
		}
		return nil
	})
	const name = "plimsoll.dev/MemoryContention"
	tainter := kube.Tainter{Nodes: w.c.Client.CoreV1(), Node: nodeName, Log: slog.New(slog.DiscardHandler)}
	_, err := tainter.Apply(w.t.Context(), nil, []corev1.Taint{{Key: name, Effect: corev1.TaintEffectNoSchedule}})
	require.NoError(w.t, err)
	_, err = w.c.Client.CoreV1().Nodes().ApplyStatus(w.t.Context(), applycorev1.Node(nodeName).WithStatus(applycorev1.NodeStatus().WithConditions(
		applycorev1.NodeCondition().WithType(name).WithStatus(corev1.ConditionTrue).WithReason("Hard"))),
		metav1.ApplyOptions{FieldManager: "plimsoll-agent", Force: true})
	require.NoError(w.t, err)
	require.Len(w.t, w.marks(), 4, "a taint, its record, a condition, and a load")
}

// marks of ours on what is not ours.
func (w *world) marks() (list []string) {
	w.t.Helper()
	node, err := w.c.Client.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	require.NoError(w.t, err)
	for _, t := range node.Spec.Taints {
		list = append(list, t.Key)
	}
	for _, c := range node.Status.Conditions {
		list = append(list, string(c.Type))
	}
	for key := range node.Annotations {
		list = append(list, key)
	}
	load, err := w.client.Resource(schema.GroupVersionResource{Group: "velero.io", Version: "v2alpha1", Resource: "datauploads"}).
		Namespace("velero").Get(w.t.Context(), "hidden", metav1.GetOptions{})
	require.NoError(w.t, err)
	for key := range load.GetAnnotations() {
		list = append(list, key)
	}
	return slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, "plimsoll.dev/") })
}
