package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func TestStandInQoSCgroups(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	s := c.Node(t, ns+"-n")
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("10Mi")}
	for want, needs := range map[string]corev1.ResourceRequirements{
		"/kubepods/besteffort/": {}, "/kubepods/burstable/": {Requests: room}, "/kubepods/": {Requests: room, Limits: room},
	} {
		made, err := c.Client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
			Spec: corev1.PodSpec{NodeName: ns + "-n", Containers: []corev1.Container{{
				Name: "c", Image: "none", Command: []string{"sleep", "600"}, Resources: needs,
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		p := until(t, c, made, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		assert.True(t, strings.HasSuffix(s.Cgroup(p), want+"pod"+string(p.UID)), s.Cgroup(p))
		pids, err := s.Processes(p)
		require.NoError(t, err)
		assert.Len(t, pids, 1)
	}
}

func TestStandInPodEnds(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	c.Node(t, ns+"-n")
	for script, want := range map[string]struct {
		phase corev1.PodPhase
		code  int32
	}{
		"exit 0": {corev1.PodSucceeded, 0}, "exit 3": {corev1.PodFailed, 3}, "kill -KILL $$": {corev1.PodFailed, 137},
	} {
		p := pod(t, c, ns, ns+"-n", "sh", "-c", script)
		p = until(t, c, p, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		assert.Equal(t, want.phase, p.Status.Phase, script)
		require.NotNil(t, p.Status.ContainerStatuses[0].State.Terminated)
		assert.Equal(t, want.code, p.Status.ContainerStatuses[0].State.Terminated.ExitCode, script)
	}
}

func TestStandInPodCannotRun(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	c.Node(t, ns+"-n")
	made, err := c.Client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{NodeName: ns + "-n", Containers: []corev1.Container{{
			Name: "c", Image: "none", Command: []string{"true"},
			Env: []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := until(t, c, made, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	assert.Equal(t, "env E: a StandIn knows plain values only", p.Status.Message)
	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	eventually(t, "it can be deleted", func() bool { return gone(t, c, p) })
}

func gone(t *testing.T, c *cluster.Cluster, p *corev1.Pod) bool {
	t.Helper()
	l, err := c.Client.CoreV1().Pods(p.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + p.Name})
	require.NoError(t, err)
	return len(l.Items) == 0
}

func TestStandInPodTerminationGrace(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	s := c.Node(t, ns+"-n")
	asked := filepath.Join(t.TempDir(), "asked")
	p := pod(t, c, ns, ns+"-n", "sh", "-c", `trap 'echo asked >`+asked+`' TERM; while :; do sleep 0.1; done`)
	eventually(t, "it sleeps", func() bool {
		pids, err := s.Processes(p)
		require.NoError(t, err)
		return len(pids) == 2
	})
	grace := int64(3)
	start := time.Now()
	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	eventually(t, "the pod is gone", func() bool { return gone(t, c, p) })
	assert.GreaterOrEqual(t, time.Since(start), 3*time.Second-100*time.Millisecond, "not before its grace is over")
	assert.FileExists(t, asked)
	assert.Empty(t, dirs(t, s.Cgroup(p)))

	quick := pod(t, c, ns, ns+"-n", "sleep", "600")
	grace = 300
	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), quick.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	eventually(t, "one that obeys goes at once", func() bool { return gone(t, c, quick) })
}

func standInMissesDelete(t *testing.T, c *cluster.Cluster) {
	s := c.Node(t, "n")
	p := pod(t, c, c.Namespace(t), "n", "sleep", "600")
	require.NotEmpty(t, dirs(t, s.Cgroup(p)))

	require.NoError(t, c.APIServers[0].Kill()) // the one that the StandIn knows
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	require.NoError(t, client(t, c.AdminAt(1)).CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, now))
	require.NoError(t, c.APIServers[0].Start())
	require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
	eventually(t, "its process and its cgroups are gone", func() bool { return len(dirs(t, s.Cgroup(p))) == 0 })
}

func TestStandInPodWithoutCommand(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	s := c.Node(t, ns+"-n")
	p := pod(t, c, ns, ns+"-n")
	assert.Equal(t, corev1.PodRunning, p.Status.Phase)
	assert.NotEmpty(t, dirs(t, s.Cgroup(p)))
	pids, err := s.Processes(p)
	require.NoError(t, err)
	assert.Empty(t, pids)
}
