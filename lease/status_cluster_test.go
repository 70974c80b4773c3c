package lease

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// plane is the control plane of all tests here, none of which makes a pod.
func plane(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.Shared(t, cluster.Options{Audit: true, Without: []string{cluster.Scheduler}})
}

// onCluster is a client with the agent's own rights, and a Node.
func onCluster(t *testing.T, name string) (*cluster.Cluster, *kubernetes.Clientset) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	path, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = c.AddNode(t.Context(), name, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	return c, client
}

// run lets a status loop run until stop is called.
func run(t *testing.T, s *Status) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// eventually asks the Node until it is as it should be.
func eventually(t *testing.T, c *cluster.Cluster, name string, is func(*corev1.Node) bool) *corev1.Node {
	var node *corev1.Node
	deadline.Eventually(t, func() bool {
		var err error
		node, err = c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && is(node)
	}, time.Minute, 20*time.Millisecond)
	return node
}

func has(node *corev1.Node, kind corev1.NodeConditionType, reason string) *corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind && c.Reason == reason {
			return &c
		}
	}
	return nil
}

// asKubelet writes Ready the way a kubelet does: a strategic merge patch.
func asKubelet(t *testing.T, c *cluster.Cluster, name, reason string) {
	patch := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"` + reason + `"}]}}`
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	require.NoError(t, err)
}

func TestStatusBesideKubelet(t *testing.T) {
	c, client := onCluster(t, "status-beside")
	g := &given{}
	g.set(pressed("Stall"), Condition{Type: "plimsoll.dev/Disk", Status: corev1.ConditionFalse, Reason: "Calm"})
	s := &Status{
		Node: "status-beside", Nodes: client.CoreV1(), Conditions: g.get,
		Every: 20 * time.Millisecond, ReportEvery: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	stop := run(t, s)
	eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Stall") != nil })
	asKubelet(t, c, s.Node, "KubeletSaysSo")
	g.set(pressed("Floor"), Condition{Type: "plimsoll.dev/Disk", Status: corev1.ConditionFalse, Reason: "Calm"})
	s.Wake()
	node := eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Floor") != nil })
	assert.NotNil(t, has(node, corev1.NodeReady, "KubeletSaysSo"), "the kubelet's was lost")
	assert.NotNil(t, has(node, "plimsoll.dev/Disk", "Calm"))
	asKubelet(t, c, s.Node, "KubeletAgain")
	eventually(t, c, s.Node, func(*corev1.Node) bool { return s.Writes()[Changed] == 2 }) // counted once it is answered

	// A restart, after which one of the two is no longer given.
	stop()
	before := has(node, "plimsoll.dev/Mem", "Floor")
	g.set(pressed("Floor"))
	again := &Status{
		Node: s.Node, Nodes: client.CoreV1(), Conditions: g.get,
		Every: 20 * time.Millisecond, ReportEvery: 1500 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
	stop = run(t, again)
	node = eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Disk", "Calm") == nil })
	assert.NotNil(t, has(node, corev1.NodeReady, "KubeletAgain"))
	node = eventually(t, c, s.Node, func(n *corev1.Node) bool {
		now := has(n, "plimsoll.dev/Mem", "Floor")
		return now != nil && now.LastHeartbeatTime.After(before.LastHeartbeatTime.Add(time.Second))
	})
	assert.Equal(t, before.LastTransitionTime, has(node, "plimsoll.dev/Mem", "Floor").LastTransitionTime)
	eventually(t, c, s.Node, func(*corev1.Node) bool { return again.Writes()[Report] > 0 })
	stop()
	assert.Equal(t, counts(2, 0, 0), s.Writes())
	writes := again.Writes()
	assert.EqualValues(t, 1, writes[Changed])
	assert.Zero(t, writes[WriteFailed])
}

func TestStatusWithoutManagedFields(t *testing.T) {
	c, client := onCluster(t, "unrecorded")
	asKubelet(t, c, "unrecorded", "KubeletReady")
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "unrecorded", types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	g := &given{list: []Condition{{Type: "plimsoll.dev/A", Status: corev1.ConditionTrue, Reason: "Hard"}, {Type: "plimsoll.dev/B", Status: corev1.ConditionFalse, Reason: "Clear"}}}
	s := &Status{Node: "unrecorded", Nodes: client.CoreV1(), Conditions: g.get, Every: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	stop := run(t, s)
	defer stop()
	eventually(t, c, "unrecorded", func(n *corev1.Node) bool { return has(n, "plimsoll.dev/B", "Clear") != nil })
	g.set()
	node := eventually(t, c, "unrecorded", func(n *corev1.Node) bool {
		return has(n, "plimsoll.dev/A", "Hard") == nil && has(n, "plimsoll.dev/B", "Clear") == nil
	})
	assert.NotNil(t, has(node, corev1.NodeReady, "KubeletReady"))
}

func TestStatusTakenBackFromOtherManager(t *testing.T) {
	c, client := onCluster(t, "status-taken")
	g := &given{}
	g.set(pressed("Stall"))
	s := &Status{
		Node: "status-taken", Nodes: client.CoreV1(), Conditions: g.get,
		Every: 20 * time.Millisecond, ReportEvery: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	stop := run(t, s)
	defer func() { stop() }()
	eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Stall") != nil })
	unknown := applycorev1.NodeCondition().WithType("plimsoll.dev/Mem").WithStatus(corev1.ConditionUnknown).WithReason("Silent")
	_, err := c.Client.CoreV1().Nodes().ApplyStatus(t.Context(),
		applycorev1.Node(s.Node).WithStatus(applycorev1.NodeStatus().WithConditions(unknown)),
		metav1.ApplyOptions{FieldManager: "somebody", Force: true})
	require.NoError(t, err)
	g.set(pressed("Floor"))
	s.Wake()
	eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Floor") != nil })
	eventually(t, c, s.Node, func(*corev1.Node) bool { return s.Writes()[Changed] == 2 }) // counted once it is answered
	assert.Equal(t, counts(2, 0, 0), s.Writes())
}

func TestStatusNeverCreatesNode(t *testing.T) {
	c, client := onCluster(t, "status-other")
	g := &given{}
	g.set(pressed("Stall"))
	s := &Status{
		Node: "status-none", Nodes: client.CoreV1(), Conditions: g.get,
		Every: 20 * time.Millisecond, ReportEvery: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	stop := run(t, s)
	defer func() { stop() }()
	_, err := c.AddNode(t.Context(), "status-none", nil)
	require.NoError(t, err, "it is there already")
	eventually(t, c, s.Node, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Stall") != nil })
	require.NoError(t, c.Client.CoreV1().Nodes().Delete(t.Context(), s.Node, metav1.DeleteOptions{}))
	g.set(pressed("Floor"))
	deadline.Eventually(t, func() bool { return s.Writes()[WriteFailed] > 0 }, time.Minute, 20*time.Millisecond)
	_, err = c.Client.CoreV1().Nodes().Get(t.Context(), s.Node, metav1.GetOptions{})
	require.Error(t, err, "writing a status made the Node")
}

func TestStatusRightsUsed(t *testing.T) {
	c, client := onCluster(t, "status-audit")
	g := &given{}
	g.set(pressed("Stall"))
	stop := run(t, &Status{Node: "status-audit", Nodes: client.CoreV1(), Conditions: g.get, Log: slog.New(slog.DiscardHandler)})
	eventually(t, c, "status-audit", func(n *corev1.Node) bool { return has(n, "plimsoll.dev/Mem", "Stall") != nil })
	stop()
	deadline.Eventually(t, func() bool {
		events, err := c.AuditEvents()
		require.NoError(t, err)
		asked := map[string]bool{}
		for _, e := range events {
			if e.Name == "status-audit" {
				asked[e.Verb+" "+e.Resource+"/"+e.Subresource] = true
			}
		}
		return len(asked) == 2 && asked["get nodes/"] && asked["patch nodes/status"]
	}, time.Minute, 50*time.Millisecond)
}

// asUs applies conditions under the field manager of agents, as anybody who may
// write the Node's status can.
func asUs(t *testing.T, c *cluster.Cluster, name string, conditions ...corev1.NodeCondition) {
	t.Helper()
	status := applycorev1.NodeStatus()
	for _, is := range conditions {
		status.WithConditions(applycorev1.NodeCondition().WithType(is.Type).WithStatus(is.Status).WithReason(is.Reason))
	}
	_, err := c.Client.CoreV1().Nodes().ApplyStatus(t.Context(), applycorev1.Node(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	require.NoError(t, err)
}

func ours(kind corev1.NodeConditionType, reason string) Condition {
	return Condition{Type: string(kind), Status: corev1.ConditionTrue, Reason: reason}
}

// clearRecord of who owns what, which anybody who may write the Node can.
func clearRecord(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestStatusOtherWriterUnderOurName(t *testing.T) {
	const name = "under-our-name"
	c, client := onCluster(t, name)
	asKubelet(t, c, name, "KubeletReady")
	g := &given{}
	g.set(ours("plimsoll.dev/A", "Hard"), ours("plimsoll.dev/B", "Hard"))
	s := &Status{Node: name, Nodes: client.CoreV1(), Conditions: g.get, Every: 20 * time.Millisecond, ReportEvery: time.Second, Log: slog.New(slog.DiscardHandler)}
	stop := run(t, s)
	defer stop()
	isAsGiven := func(n *corev1.Node) bool {
		return has(n, "plimsoll.dev/A", "Hard") != nil && has(n, "plimsoll.dev/B", "Hard") != nil && has(n, "plimsoll.dev/Made", "Up") == nil && has(n, corev1.NodeReady, "KubeletReady") != nil
	}
	eventually(t, c, name, isAsGiven)
	asUs(t, c, name, corev1.NodeCondition{Type: "plimsoll.dev/A", Status: corev1.ConditionFalse, Reason: "Lie"})
	eventually(t, c, name, isAsGiven)
	asUs(t, c, name, corev1.NodeCondition{Type: "plimsoll.dev/Made", Status: corev1.ConditionTrue, Reason: "Up"})
	eventually(t, c, name, isAsGiven)
	clearRecord(t, c, name)
	cleared := time.Now()
	eventually(t, c, name, func(n *corev1.Node) bool {
		return isAsGiven(n) && has(n, "plimsoll.dev/A", "Hard").LastHeartbeatTime.After(cleared)
	})
	g.set(ours("plimsoll.dev/A", "Hard"))
	s.Wake()
	eventually(t, c, name, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/B", "Hard") == nil })
}

func TestUnknownWithoutManagedFields(t *testing.T) {
	const name = "silent-unrecorded"
	c, _ := onCluster(t, name)
	asKubelet(t, c, name, "KubeletReady")
	asUs(t, c, name, corev1.NodeCondition{Type: "plimsoll.dev/A", Status: corev1.ConditionTrue, Reason: "Hard"})
	clearRecord(t, c, name)
	node := eventually(t, c, name, func(n *corev1.Node) bool { // somebody else may write between
		return SetUnknown(t.Context(), c.Client.CoreV1(), n, "silence") == nil
	})
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotNil(t, has(node, "plimsoll.dev/A", ReasonSilent))
	assert.NotNil(t, has(node, corev1.NodeReady, "KubeletReady"))
}

func TestStatusKubeletConditionClaimed(t *testing.T) {
	const name, network = "claimed", corev1.NodeNetworkUnavailable
	c, client := onCluster(t, name)
	kubelet := func(reason string) {
		patch := `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"` + reason + `"}]}}`
		_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
		require.NoError(t, err)
	}
	kubelet("RouteCreated")
	asUs(t, c, name,
		corev1.NodeCondition{Type: "plimsoll.dev/A", Status: corev1.ConditionTrue, Reason: "Hard"},
		corev1.NodeCondition{Type: network, Status: corev1.ConditionTrue, Reason: "Lie"})
	kubelet("KubeletAgain")
	eventually(t, c, name, func(n *corev1.Node) bool { return SetUnknown(t.Context(), c.Client.CoreV1(), n, "silence") == nil })
	node := eventually(t, c, name, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/A", ReasonSilent) != nil })
	assert.NotNil(t, has(node, network, "KubeletAgain"), "a silent agent's conditions are made Unknown, and no other's")
	kubelet("KubeletOnceMore")
	g := &given{}
	g.set(ours("plimsoll.dev/A", "Hard"))
	stop := run(t, &Status{Node: name, Nodes: client.CoreV1(), Conditions: g.get, Every: 20 * time.Millisecond, ReportEvery: time.Hour, Log: slog.New(slog.DiscardHandler)})
	defer stop()
	node = eventually(t, c, name, func(n *corev1.Node) bool { return has(n, "plimsoll.dev/A", "Hard") != nil })
	assert.NotNil(t, has(node, network, "KubeletOnceMore"))
}

// status of a condition of the Node; empty without it.
func status(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// withoutReady removes the condition that AddNode has made.
func withoutReady(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	patch := `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// The agent of a node without a kubelet has written Ready, and then a kubelet starts. What the
// kubelet does not change, here the status, is recorded as the agent's.
func TestStatusReadyTakenOverByKubelet(t *testing.T) {
	const name = "kubelet-comes"
	c, client := onCluster(t, name)
	withoutReady(t, c, name)
	g := &given{}
	g.set(pressed("Stall"), ours(corev1.NodeReady, "AgentBeats"))
	s := &Status{Node: name, Nodes: client.CoreV1(), Conditions: g.get, Every: 20 * time.Millisecond, ReportEvery: time.Second, Log: slog.New(slog.DiscardHandler)}
	stop := run(t, s)
	defer stop()
	eventually(t, c, name, func(n *corev1.Node) bool { return has(n, corev1.NodeReady, "AgentBeats") != nil })
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	require.NoError(t, err)
	for _, list := range [][]Condition{
		{pressed("Floor"), ours(corev1.NodeReady, "AgentBeats")}, // it still renews the Node's Lease
		{pressed("Soft")}, // lease.target: agent
		{},                // and a dry run
	} {
		g.set(list...)
		s.Reread()
		node := eventually(t, c, name, func(n *corev1.Node) bool {
			return len(list) == 0 && status(n, "plimsoll.dev/Mem") == "" || len(list) > 0 && has(n, "plimsoll.dev/Mem", list[0].Reason) != nil
		})
		require.NotNil(t, has(node, corev1.NodeReady, "KubeletReady"))
		require.Equal(t, corev1.ConditionTrue, status(node, corev1.NodeReady))
	}
}

// As the chart does it: with lease.target: agent it removes the right to renew the Node's own
// Lease, and with that the policy refuses every change of Ready.
func TestStatusReadyAfterRightIsRemoved(t *testing.T) {
	const name = "switched-back"
	c := cluster.New(t, cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}})
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.RBACLeaseNode, deploy.Identity))
	_, err := c.AddNode(t.Context(), name, nil)
	require.NoError(t, err)
	withoutReady(t, c, name)
	path, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: name})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	g := &given{}
	agent := func() (s *Status, stop func()) {
		s = &Status{Node: name, Nodes: client.CoreV1(), Conditions: g.get, Every: 20 * time.Millisecond, ReportEvery: time.Second, Log: slog.New(slog.DiscardHandler)}
		return s, run(t, s)
	}
	shows := func(reason string) {
		t.Helper()
		node := eventually(t, c, name, func(n *corev1.Node) bool {
			return reason == "" && status(n, "plimsoll.dev/Mem") == "" || has(n, "plimsoll.dev/Mem", reason) != nil
		})
		require.NotNil(t, has(node, corev1.NodeReady, "AgentBeats"), "the node lifecycle controller's, or a kubelet's, to change")
	}
	ready := ours(corev1.NodeReady, "AgentBeats")
	g.set(pressed("Stall"), ready)
	s, stop := agent()
	eventually(t, c, name, func(n *corev1.Node) bool { return has(n, corev1.NodeReady, "AgentBeats") != nil })
	shows("Stall")
	roles := c.Client.RbacV1()
	require.NoError(t, roles.RoleBindings("kube-node-lease").Delete(t.Context(), "plimsoll-agent", metav1.DeleteOptions{}))
	require.NoError(t, roles.Roles("kube-node-lease").Delete(t.Context(), "plimsoll-agent", metav1.DeleteOptions{}))
	before := s.Writes()[WriteFailed]
	deadline.Eventually(t, func() bool { return s.Writes()[WriteFailed] > before+5 }, time.Minute, 20*time.Millisecond) // reports of Ready
	g.set(pressed("Floor"), ready)
	shows("Floor")
	stop()
	g.set(pressed("Soft")) // lease.target: agent
	s, stop = agent()
	shows("Soft")
	g.set()
	s.Wake()
	shows("")
	assert.Zero(t, s.Writes()[WriteFailed])
	stop()
}
