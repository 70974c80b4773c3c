package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
)

// evictionRequests are the arguments of an API server that serves them.
func evictionRequests() map[string][]string {
	return map[string][]string{cluster.APIServer: {"--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"}}
}

// What agents requested with eviction.via: request is withdrawn, with the rights of the
// manifest, and requests of others stay. No pod exists: a request may name any.
func releaseEvictionRequests(t *testing.T, c *cluster.Cluster) {
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC, deploy.ReleaseRBAC))
	as, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-release", cluster.BoundTo{})
	require.NoError(t, err)
	agent := kube.EvictionRequester{REST: c.Client.CoreV1().RESTClient()}
	const other = "00000000-0000-0000-0000-000000000009" // a pod
	for i := range 2 {
		v := evict.Victim{UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: c.Namespace(t), Name: "web-0"}
		got := agent.Evict(t.Context(), v, false)
		require.Equal(t, evict.InProgress, got.Outcome, got.Text)
	}
	theirs := c.Namespace(t)
	for name, requester := range map[string]string{"plimsoll-" + other: "acme.io/drain", "drain": "plimsoll.dev/agent"} {
		_, err := c.Client.LifecycleV1alpha1().EvictionRequests(theirs).Create(t.Context(), &lifecyclev1alpha1.EvictionRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: lifecyclev1alpha1.EvictionRequestSpec{
				Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: "web-2", UID: other}},
				Requester: requester, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, want := range []string{"2 EvictionRequests: withdrawn\n", "nothing of Plimsoll found\n"} {
		status, said, stderr := run(t, "release", "--kubeconfig", as)
		require.Zero(t, status, stderr)
		assert.Equal(t, want, said)
	}
	left, err := c.Client.LifecycleV1alpha1().EvictionRequests(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Namespace+"/"+left.Items[i].Name)
	}
	assert.ElementsMatch(t, []string{theirs + "/plimsoll-" + other, theirs + "/drain"}, names)
}
