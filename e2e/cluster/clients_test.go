package cluster_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// whoami is who the API server takes the holder of a kubeconfig file for.
func whoami(t *testing.T, kubeconfig string) authenticationv1.UserInfo {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	review, err := client(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.UserInfo
}

func TestTokenBoundToNode(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	node, err := c.AddNode(t.Context(), ns+"-n", nil)
	require.NoError(t, err)

	file, err := c.ServiceAccount(t.Context(), ns, "agent", cluster.BoundTo{Kind: "Node", Name: node.Name, UID: node.UID})
	require.NoError(t, err)
	stat, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), stat.Mode())
	who := whoami(t, file)
	assert.Equal(t, "system:serviceaccount:"+ns+":agent", who.Username)
	assert.Equal(t, authenticationv1.ExtraValue{node.Name}, who.Extra["authentication.kubernetes.io/node-name"])
	assert.Equal(t, authenticationv1.ExtraValue{string(node.UID)}, who.Extra["authentication.kubernetes.io/node-uid"])

	other, err := c.ServiceAccount(t.Context(), ns, "agent", cluster.BoundTo{})
	require.NoError(t, err)
	assert.NotEqual(t, file, other)
	assert.NotContains(t, whoami(t, other).Extra, "authentication.kubernetes.io/node-name", "bound to nothing")

	_, err = c.ServiceAccount(t.Context(), ns, "agent", cluster.BoundTo{Kind: "Node", Name: node.Name, UID: "another"})
	require.Error(t, err, "a node of another UID")
}

func TestTokenBoundToPod(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	_, err := c.ServiceAccount(t.Context(), ns, "agent", cluster.BoundTo{})
	require.NoError(t, err)
	node, err := c.AddNode(t.Context(), ns+"-n", nil)
	require.NoError(t, err)
	pod, err := c.Client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-1"},
		Spec: corev1.PodSpec{
			NodeName: node.Name, ServiceAccountName: "agent",
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	file, err := c.ServiceAccount(t.Context(), ns, "agent", cluster.BoundTo{Kind: "Pod", Name: pod.Name, UID: pod.UID})
	require.NoError(t, err)
	who := whoami(t, file)
	assert.Equal(t, authenticationv1.ExtraValue{pod.Name}, who.Extra["authentication.kubernetes.io/pod-name"])
	assert.Equal(t, authenticationv1.ExtraValue{node.Name}, who.Extra["authentication.kubernetes.io/node-name"])
	assert.Equal(t, authenticationv1.ExtraValue{string(node.UID)}, who.Extra["authentication.kubernetes.io/node-uid"])

	require.NoError(t, c.Client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	_, err = c.AddNode(t.Context(), node.Name, nil)
	require.NoError(t, err)
	who = whoami(t, file)
	assert.Equal(t, authenticationv1.ExtraValue{string(node.UID)}, who.Extra["authentication.kubernetes.io/node-uid"], "until the token is renewed")
}

func TestServiceAccountRoles(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	file, err := c.ServiceAccount(t.Context(), ns, "reader", cluster.BoundTo{})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	pods := client(t, config).CoreV1().Pods(ns)
	_, err = pods.List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, c.Apply(t.Context(), []byte(strings.ReplaceAll(`
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: reader, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
kind: RoleBinding
apiVersion: rbac.authorization.k8s.io/v1
metadata: {name: reader, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
`, "NS", ns))))
	eventually(t, "the role is in force", func() bool {
		_, err := pods.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
}

func TestAdminKubeconfig(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	who := whoami(t, c.Kubeconfig)
	assert.Equal(t, "admin", who.Username)
	assert.Contains(t, who.Groups, "system:masters")
}

func TestNodeUserOnlyOwnNode(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	mine, theirs := c.Namespace(t), c.Namespace(t) // only for their names
	for _, name := range []string{mine, theirs} {
		_, err := c.AddNode(t.Context(), name, map[string]string{corev1.LabelTopologyZone: "zone-b"})
		require.NoError(t, err)
	}
	config, err := c.User("system:node:"+mine, "system:nodes")
	require.NoError(t, err)
	nodes := client(t, config).CoreV1().Nodes()
	own, err := nodes.Get(t.Context(), mine, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "zone-b", own.Labels[corev1.LabelTopologyZone])
	assert.Equal(t, "110", own.Status.Allocatable.Pods().String())
	other, err := c.Client.CoreV1().Nodes().Get(t.Context(), theirs, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = nodes.UpdateStatus(t.Context(), other, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
}
