package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// patience is how long a test waits for what should come at once.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		os.Exit(startAndSay())
	}
	os.Exit(cluster.Main(m))
}

// long leaves to the long form what other packages' tests do with a control plane
// in any case.
func long(t *testing.T) {
	t.Helper()
	live.Long(t, "of the tests' own tool, and a control plane for it alone")
}

// bare is a control plane that is quickly there.
func bare() cluster.Options {
	return cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}}
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline.Eventually(t, check, patience, 20*time.Millisecond, what)
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

func TestControlPlaneProcesses(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	var names []string
	for _, p := range c.Processes() {
		names = append(names, p.Name())
		exe, err := os.Readlink("/proc/" + itoa(p.PID()) + "/exe")
		require.NoError(t, err)
		assert.Equal(t, p.Name(), filepath.Base(exe))
		require.NoError(t, p.WaitReady(t.Context()))
	}
	assert.Equal(t, []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler}, names)

	v, err := c.Client.Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, pinned(t), v.GitVersion, "the version that is pinned")

	again := cluster.Shared(t, cluster.Options{})
	assert.Same(t, c, again)
}

func TestNamespacePerTest(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	var first, second string
	t.Run("A Test", func(t *testing.T) {
		first, second = c.Namespace(t), c.Namespace(t)
		assert.NotEqual(t, first, second)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		_, err := c.Client.CoreV1().Pods(first).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err, "pods can be made in it at once")
	})
	for _, name := range []string{first, second} {
		ns, err := c.Client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		assert.True(t, err != nil || ns.DeletionTimestamp != nil, "%s is still there", name)
	}
}

func TestPodsWithoutControllerManager(t *testing.T) {
	long(t)
	c := cluster.New(t, bare())
	assert.Len(t, c.Processes(), 2)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, ns := range []string{metav1.NamespaceDefault, c.Namespace(t)} {
		_, err := c.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		assert.NoError(t, err)
	}
}

func TestAPIServerNames(t *testing.T) {
	long(t)
	o := bare()
	o.APIServerNames = []string{"10.0.2.100", "control.example"}
	c := cluster.New(t, o)
	for name, good := range map[string]bool{"10.0.2.100": true, "control.example": true, "10.0.2.101": false} {
		config := rest.CopyConfig(c.Admin)
		config.ServerName = name
		_, err := client(t, config).Discovery().ServerVersion()
		assert.Equal(t, good, err == nil, "%s: %v", name, err)
	}
}

func TestAPIServersShareObjects(t *testing.T) {
	long(t)
	o := bare()
	o.APIServers = 2
	c := cluster.New(t, o)
	require.Len(t, c.APIServers, 2)
	ns := c.Namespace(t)
	second := client(t, c.AdminAt(1))
	_, err := second.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	require.NoError(t, err)

	require.NoError(t, c.APIServers[0].Kill())
	_, err = c.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	require.Error(t, err, "the first is down")
	_, err = second.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	require.NoError(t, err, "the second serves on")
	require.NoError(t, c.APIServers[0].Start())
	require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
}

func TestClusterStartFails(t *testing.T) {
	o := bare()
	o.Args = map[string][]string{cluster.APIServer: {"--no-such-flag"}}
	c, err := cluster.Start(t.Context(), o)
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	assert.Nil(t, c)

	o.Args = map[string][]string{cluster.Etcd: {"--listen-client-urls=http://127.0.0.1:1"}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = cluster.Start(ctx, o)
	require.ErrorIs(t, err, context.DeadlineExceeded, "who waits says for what")
	assert.ErrorContains(t, err, "etcd is not ready")
}

func TestProgramArguments(t *testing.T) {
	long(t)
	o := bare()
	o.Args = map[string][]string{cluster.APIServer: {"--audit-log-version=audit.k8s.io/v1", "--max-requests-inflight=77"}}
	c := cluster.New(t, o)
	cmdline, err := os.ReadFile("/proc/" + itoa(c.APIServers[0].PID()) + "/cmdline")
	require.NoError(t, err)
	assert.Contains(t, string(cmdline), "--max-requests-inflight=77")
	assert.Contains(t, string(cmdline), "--profiling=false")
}

// What needs two API servers; and in the end nothing is left of all.
func TestControlPlaneLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	o := bare()
	o.APIServers, o.Audit, o.AuditUsers = 2, true, []string{"spy"}
	c, err := cluster.Start(t.Context(), o)
	require.NoError(t, err)
	t.Run("the requests of watched users are recorded", func(t *testing.T) { auditRecordsWatchedUsers(t, c) })
	t.Run("a StandIn misses a delete", func(t *testing.T) { standInMissesDelete(t, c) })
	var pids []int
	for _, p := range c.Processes() {
		pids = append(pids, p.PID())
	}
	require.NoError(t, c.Close())
	for _, pid := range pids {
		assert.NoDirExists(t, "/proc/"+itoa(pid))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
