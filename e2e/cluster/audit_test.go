package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func auditRecordsWatchedUsers(t *testing.T, c *cluster.Cluster) {
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.AuditNamespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	file, err := c.ServiceAccount(t.Context(), cluster.AuditNamespace, "agent", cluster.BoundTo{})
	require.NoError(t, err)
	agent, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	spy, err := c.User("spy", "system:masters")
	require.NoError(t, err)
	spy.Host = c.AdminAt(1).Host

	_, err = client(t, agent).CoreV1().Nodes().PatchStatus(t.Context(), "n7", []byte(`{}`))
	require.Error(t, err, "it has no role")
	w, err := client(t, spy).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(w.Stop)

	var events []cluster.AuditEvent
	eventually(t, "both requests are in the log", func() bool {
		events, err = c.AuditEvents()
		require.NoError(t, err)
		return len(events) >= 2
	})
	require.Len(t, events, 2, "and nobody else's: %+v", events)
	for _, e := range events {
		assert.False(t, e.Time.IsZero())
		assert.NotEmpty(t, e.UserAgent)
	}
	patch, watch := events[0], events[1]
	assert.Equal(t, cluster.AuditEvent{
		Time: patch.Time, User: "system:serviceaccount:plimsoll-system:agent", Verb: "patch",
		Resource: "nodes", Subresource: "status", Name: "n7", URI: "/api/v1/nodes/n7/status", UserAgent: patch.UserAgent, Code: 403,
	}, patch)
	assert.Equal(t, cluster.AuditEvent{
		Time: watch.Time, User: "spy", Verb: "watch",
		Resource: "pods", Namespace: "default", URI: "/api/v1/namespaces/default/pods?watch=true", UserAgent: watch.UserAgent, Code: 200,
	}, watch)

	w.Stop()
	_, err = client(t, spy).Discovery().RESTClient().Get().AbsPath("/apis/coordination.k8s.io/v1/leases").DoRaw(t.Context())
	require.NoError(t, err)
	eventually(t, "the next one is too", func() bool {
		events, err = c.AuditEvents()
		require.NoError(t, err)
		return len(events) == 3 && events[2].Group == "coordination.k8s.io" && events[2].Verb == "list"
	})
}

func TestAuditOffByDefault(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	events, err := c.AuditEvents()
	require.NoError(t, err)
	assert.Empty(t, events)
}
