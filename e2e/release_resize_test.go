package e2e_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// A CPU limit that an agent has lowered is restored without the agent and without its disk,
// with the rights of the manifests; without these it is said what is left.
func releaseResizedPods(t *testing.T, c *cluster.Cluster) {
	err := resize.Served(t.Context(), c.Client.CoreV1().RESTClient())
	if errors.Is(err, resize.ErrNotServed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC, deploy.ReleaseRBAC))
	as, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-release", cluster.BoundTo{})
	require.NoError(t, err)
	_, err = c.AddNode(t.Context(), "n1", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Client.CoreV1().Nodes().Delete(contextWithoutCancel(t), "n1", metav1.DeleteOptions{}))
	})
	namespace := c.Namespace(t)
	of := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	made, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: of("100m"), Limits: of("2")},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	limit := func() string {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		return p.Spec.Containers[0].Resources.Limits.Cpu().String()
	}

	agent := (&resize.API{Core: c.Client.CoreV1(), Node: "n1"}).Pass(t.Context())
	knobs, err := agent.Knobs("/pod", throttle.Container{Namespace: namespace, Pod: "web", UID: string(made.UID)})
	require.NoError(t, err)
	require.NoError(t, (&throttle.Journal{Files: agent, Save: agent.Record}).Set(map[throttle.Knob]float64{knobs[0]: 0.3}))
	require.Equal(t, "300m", limit())

	status, _, stderr := run(t, "release", "--kubeconfig", as)
	require.Equal(t, 1, status)
	assert.Contains(t, stderr, `limit CPU of container c of `+namespace+`/web: pods "web" is forbidden`)
	assert.Equal(t, "300m", limit())

	require.NoError(t, c.Apply(t.Context(), deploy.ReleaseRBACResize))
	t.Cleanup(func() { // without it the others show that they need it not
		require.NoError(t, c.Client.RbacV1().ClusterRoleBindings().Delete(contextWithoutCancel(t), "plimsoll-release-resize", metav1.DeleteOptions{}))
	})
	for _, want := range []string{"CPU of container c of " + namespace + "/web: as before\n", "nothing of Plimsoll found\n"} {
		status, said, stderr := run(t, "release", "--kubeconfig", as)
		require.Zero(t, status, stderr)
		assert.Equal(t, want, said)
	}
	assert.Equal(t, "2", limit())
}
