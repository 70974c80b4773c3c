package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

func TestReleaseRemovesHoldsAndMarks(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, withoutKubelets())
	t.Run("limits of resized pods", func(t *testing.T) { releaseResizedPods(t, c) })
	t.Run("holds and marks", func(t *testing.T) { releaseHoldsAndMarks(t, c) })
}

// A real controller holds and hides loads behind the policies, and marks are
// there as agents leave them. Each time with less of the manifests left.
func releaseHoldsAndMarks(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"prepareQueueLength":1}}`, ", leaseDuration: 30s, hideAbove: 2")
	require.NoError(t, h.c.Apply(t.Context(), deploy.ReleaseRBAC, deploy.RBACKatalyst, []byte(customNodeResources)))
	eventually(t, "CustomNodeResources are served", func() error {
		_, err := h.client.Resource(customNodes()).List(t.Context(), metav1.ListOptions{})
		return err
	})
	h.releaseOfANode()
	as, err := h.c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-release", cluster.BoundTo{})
	require.NoError(t, err)
	release := func(want int, more ...string) (said, stderr string) {
		t.Helper()
		began := time.Now()
		status, said, stderr := run(t, append([]string{"release", "--kubeconfig", as}, more...)...)
		t.Logf("status %d after %s\n%s%s", status, time.Since(began).Round(10*time.Millisecond), said, stderr)
		require.Equal(t, want, status)
		return said, stderr
	}

	a := h.controller().start()
	h.hide("hidden")
	h.isOpenWithoutItsPolicy(a)
	h.mark()
	_, stderr := release(1)
	assert.Contains(t, stderr, "plimsoll: release: lease plimsoll-system/plimsoll-controller: ")
	assert.Contains(t, stderr, "which brings back what is removed: stop it first\n")
	assert.True(t, yes(h.gate(gate.Main), "spec", "limited"), "nothing was done")
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	h.postpones("postponed")
	said, _ := release(0)
	assert.Contains(t, said, "BackupRepository "+h.namespace+"/postponed: maintenance frequency handed back\n")
	assert.Contains(t, said, "Gate "+h.namespace+"/main: deleted\n")
	assert.Contains(t, said, "DataUpload "+h.namespace+"/hidden: released\n")
	h.unmarked()
	said, _ = release(0)
	assert.Equal(t, "nothing of Plimsoll found\n", said)

	h.mark()
	h.pretend("left")
	for _, policy := range []string{"plimsoll-admit", "plimsoll-start", "plimsoll-load-annotations"} {
		h.remove("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", policy)
		h.remove("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", policy)
	}
	said, _ = release(0)
	assert.Contains(t, said, "DataUpload "+h.namespace+"/left: released\n")
	h.unmarked()

	require.NoError(t, h.c.Apply(t.Context(), deploy.Gate))
	h.mark()
	h.pretend("without-kind")
	h.remove("apiextensions.k8s.io", "v1", "customresourcedefinitions", "gates.plimsoll.dev")
	said, _ = release(0)
	assert.Contains(t, said, "DataUpload "+h.namespace+"/without-kind: released\n")
	h.unmarked()
}

// hide a load, as the controller does while many wait. It is made when another has the
// only slot: of loads of one second any may be the first.
func (h *veleroWorld) hide(name string) {
	h.t.Helper()
	for i := range 4 {
		h.load(vgdp.DataUpload, fmt.Sprintf("%s-waits-%d", name, i), "b", nil)
	}
	eventually(h.t, "three are hidden", func() error {
		return wanted(h.hiddenLoads(), 3)
	})
	h.load(vgdp.DataUpload, name, "b", nil)
	eventually(h.t, "it is hidden", func() error {
		return wanted(text(h.get(vgdp.DataUpload, name), "spec", "datamover"), gate.HiddenMover)
	})
}

// isOpenWithoutItsPolicy: a controller whose policies hold nothing says so, until
// they do, and hides nothing without the one that hands back.
func (h *veleroWorld) isOpenWithoutItsPolicy(a *agent) {
	h.t.Helper()
	problem := func(want string) {
		h.t.Helper()
		took := within(h.t, 2*patience, "plimsoll_vgdp_gate_problem "+want, func() error {
			return wanted(metric(a, `plimsoll_vgdp_gate_problem{velero="`+h.namespace+`"}`), want)
		})
		h.t.Logf("the gate's problem is %s after %s", want, took.Round(10*time.Millisecond))
	}
	problem("0")
	h.remove("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "plimsoll-admit")
	problem("1")
	assert.Contains(h.t, veleroOf(a).GateOpen, "gate.yaml is not applied")
	require.NoError(h.t, h.c.Apply(h.t.Context(), deploy.Gate))
	problem("0")

	// Nor does it hide what nobody would hand back if it ended.
	h.remove("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "plimsoll-release-hidden")
	seen := func() int {
		v := veleroOf(a)
		return len(v.Waiting) - v.Hidden
	}
	n := 0
	within(h.t, 2*patience, "a new load is not hidden", func() error {
		if seen() == 0 {
			n++
			h.load(vgdp.DataUpload, fmt.Sprintf("late-%d", n), "b", nil)
		}
		if !strings.Contains(a.stderr.String(), "hidden=false") {
			return errors.New(a.stderr.String())
		}
		return nil
	})
	assert.Positive(h.t, seen())
	require.NoError(h.t, h.c.Apply(h.t.Context(), deploy.GateMutating))
	within(h.t, 2*patience, "all are hidden", func() error { return wanted(seen(), 0) })
}

// pretend that a load was hidden: nobody is there who would do it.
func (h *veleroWorld) pretend(name string) {
	h.t.Helper()
	h.load(vgdp.DataUpload, name, "b", func(o map[string]any) {
		o["spec"].(map[string]any)["datamover"] = gate.HiddenMover
		o["metadata"].(map[string]any)["annotations"] = map[string]any{
			gate.OriginalDataMover: "velero", gate.Waiting: "{}", gate.Priority: "3",
		}
	})
}

// mark the cluster as agents do, beside what is not ours.
func (h *veleroWorld) mark() {
	h.t.Helper()
	node := h.nodes[0]
	h.patch(corev1.SchemeGroupVersion.WithResource("nodes"), node, `{"metadata":{"annotations":{"plimsoll.dev/taints":"[{\"key\":\"plimsoll.dev/DiskContention\",\"effect\":\"NoSchedule\",\"since\":\"2026-03-01T12:00:00Z\"}]"}},
		"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"},{"key":"plimsoll.dev/DiskContention","effect":"NoSchedule"}]}}`)
	body := `{"status":{"conditions":[{"type":"plimsoll.dev/DiskContention","status":"True","reason":"a","message":"b"}]}}`
	_, err := h.c.Client.CoreV1().Nodes().Patch(h.t.Context(), node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	require.NoError(h.t, err)
	now := lease.Micro(time.Now().Add(-time.Hour))
	h.report(node, lease.NodeReport{})
	h.patch(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, lease.Namespace+"/"+node, fmt.Sprintf(`{"spec":{"renewTime":%q,"leaseDurationSeconds":3}}`, now.Format(metav1.RFC3339Micro)))
	h.backup("waits", map[string]any{}, map[string]any{})
	h.patch(velero.Resource(), h.namespace+"/waits", `{"metadata":{"annotations":{"plimsoll.dev/waiting":"{\"reason\":\"velero\",\"since\":\"2026-03-01T12:00:00Z\"}"}},"status":{"phase":"ReadyToStart"}}`)
	h.customNode(node)
}

func (h *veleroWorld) customNode(name string) {
	h.t.Helper()
	of := customNodes()
	u := &unstructured.Unstructured{}
	require.NoError(h.t, json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":%q}}`, name), &u.Object))
	_, err := h.client.Resource(of).Apply(h.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "katalyst"})
	require.NoError(h.t, err)
	h.patch(of, name, `{"metadata":{"annotations":{"plimsoll.dev/taints":"[{\"key\":\"plimsoll.dev/A\",\"effect\":\"shared_cores/NoSchedule\",\"since\":\"2026-03-01T12:00:00Z\"}]"}},
		"spec":{"taints":[{"key":"plimsoll.dev/A","effect":"NoSchedule","qosLevel":"shared_cores"},{"key":"katalyst/a","effect":"NoSchedule","qosLevel":"shared_cores"}]}}`)
	_, err = h.client.Resource(of).Patch(h.t.Context(), name, types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"AgentReady","status":"True"},{"type":"plimsoll.dev/A","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(h.t, err)
}

// patch an object, named with its namespace where it has one.
func (h *veleroWorld) patch(of schema.GroupVersionResource, name, body string) {
	h.t.Helper()
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "", namespace
	}
	_, err := h.client.Resource(of).Namespace(namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	require.NoError(h.t, err)
}

func (h *veleroWorld) remove(group, version, resource, name string) {
	h.t.Helper()
	of := h.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	require.NoError(h.t, of.Delete(h.t.Context(), name, metav1.DeleteOptions{}))
	eventually(h.t, name+" is gone", func() error {
		if _, err := of.Get(h.t.Context(), name, metav1.GetOptions{}); gone(err) != nil || err == nil {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// unmarked: nothing has a word of ours but what is the user's, and what is not
// ours is still there.
func (h *veleroWorld) unmarked() {
	h.t.Helper()
	resources := []schema.GroupVersionResource{
		velero.Resource(),
		{Version: "v1", Resource: "nodes"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		customNodes(),
	}
	for _, kind := range admission.Kinds() {
		resources = append(resources, admission.Resource(kind))
	}
	all := ""
	for _, of := range resources {
		list, err := h.client.Resource(of).List(h.t.Context(), metav1.ListOptions{})
		require.NoError(h.t, err)
		for i := range list.Items {
			list.Items[i].SetManagedFields(nil)
			raw, err := list.Items[i].MarshalJSON()
			require.NoError(h.t, err)
			all += string(raw)
			assert.NotContains(h.t, strings.ReplaceAll(string(raw), gate.Priority, ""), "plimsoll.dev/")
			assert.False(h.t, of.Resource == "leases" && list.Items[i].GetNamespace() == lease.Namespace)
		}
	}
	assert.Contains(h.t, all, `"key":"theirs"`)
	assert.Contains(h.t, all, `"key":"katalyst/a"`)
	assert.Contains(h.t, all, `"type":"MemoryPressure"`)
	assert.Contains(h.t, all, `"type":"AgentReady"`)
	assert.Contains(h.t, all, `"phase":"Queued"`)
	h.delete(velero.Resource(), h.namespace, "waits")
}

// releaseOfANode is what a package does that is removed from one machine, with the
// agent's own rights.
func (h *veleroWorld) releaseOfANode() {
	t := h.t
	h.mark()
	as, err := h.c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	release := func(node string) (status int, said, stderr string) {
		return run(t, "release", "--kubeconfig", as, "--node", node, "--state.dir", t.TempDir())
	}
	status, said, stderr := release(h.nodes[1])
	assert.Equal(t, []any{0, "nothing of Plimsoll found\n"}, []any{status, said}, "it is the other node that is marked: %s", stderr)
	status, said, stderr = release(h.nodes[0])
	assert.Zero(t, status, stderr)
	node, err := h.c.Client.CoreV1().Nodes().Get(t.Context(), h.nodes[0], metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)
	assert.Empty(t, node.Annotations["plimsoll.dev/taints"])
	for _, c := range node.Status.Conditions {
		assert.False(t, lease.IsOurs(c.Type), c.Type)
	}
	assert.Contains(t, said, "CustomNodeResource "+h.nodes[0]+": marks removed\n")
	assert.Contains(t, said, "Lease plimsoll-node-lease/"+h.nodes[0]+": not deleted (no right to); it is deleted with its Node\n")

	// A taint under our name that is on no record is somebody's who does not know.
	h.patch(corev1.SchemeGroupVersion.WithResource("nodes"), h.nodes[0], `{"spec":{"taints":[{"key":"plimsoll.dev/Mine","effect":"NoExecute"}]}}`)
	status, _, stderr = release(h.nodes[0])
	assert.Equal(t, 1, status)
	assert.Equal(t, "plimsoll: release: node "+h.nodes[0]+": taint plimsoll.dev/Mine:NoExecute is on no agent's record and stays; to remove it: kubectl taint node "+h.nodes[0]+" plimsoll.dev/Mine:NoExecute-\n", stderr)
	h.patch(corev1.SchemeGroupVersion.WithResource("nodes"), h.nodes[0], `{"spec":{"taints":null}}`)
	h.delete(velero.Resource(), h.namespace, "waits")
	status, _, stderr = release("nobody")
	assert.Zero(t, status, stderr)

	// Without Katalyst an agent has no right on its kind.
	require.NoError(t, h.c.Client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "plimsoll-agent-katalyst", metav1.DeleteOptions{}))
	eventually(t, "the right is gone", func() error {
		may, err := h.c.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:plimsoll-system:plimsoll-agent",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: customNodes().Group, Resource: customNodes().Resource},
			},
		}, metav1.CreateOptions{})
		if err == nil && may.Status.Allowed {
			err = errors.New("not yet")
		}
		return err
	})
	status, said, stderr = release(h.nodes[1])
	assert.Equal(t, []any{0, "nothing of Plimsoll found\n"}, []any{status, said}, stderr)
}

func (h *veleroWorld) delete(of schema.GroupVersionResource, namespace, name string) {
	h.t.Helper()
	require.NoError(h.t, h.client.Resource(of).Namespace(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}

func customNodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Resource: "customnoderesources"}
}
