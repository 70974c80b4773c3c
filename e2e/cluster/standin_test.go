package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: sleeper, namespace: NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: sleeper}}
  template:
    metadata: {labels: {app: sleeper}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      terminationGracePeriodSeconds: 5
      containers:
      - name: c
        image: none
        command: [sh, -c]
        args: ['echo "$SHIP" and "$HOME"; sleep 600 & wait']
        env: [{name: SHIP, value: plimsoll}]
`

// podsOf are the pods of a namespace that run and are not being deleted.
func podsOf(t *testing.T, c *cluster.Cluster, ns string) []corev1.Pod {
	t.Helper()
	l, err := c.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return slices.DeleteFunc(l.Items, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil
	})
}

// pod of one container on a node, made and found as it is a moment later.
func pod(t *testing.T, c *cluster.Cluster, ns, node string, command ...string) *corev1.Pod {
	t.Helper()
	made, err := c.Client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "c", Image: "none", Command: command}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return until(t, c, made, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodPending })
}

func until(t *testing.T, c *cluster.Cluster, p *corev1.Pod, check func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	eventually(t, "pod "+p.Name, func() (ok bool) {
		got, err := c.Client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		require.NoError(t, err)
		p = got
		return check(got)
	})
	return p
}

// dirs are a cgroup's directories in the hierarchies that have it.
func dirs(t *testing.T, path string) []string {
	t.Helper()
	one, err := filepath.Glob("/sys/fs/cgroup/*" + path)
	require.NoError(t, err)
	if _, err := os.Stat("/sys/fs/cgroup" + path); err == nil {
		one = append(one, "/sys/fs/cgroup"+path)
	}
	return one
}

// firstTree is the mount point where a StandIn marks its root.
func firstTree(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		counts := slices.ContainsFunc(strings.Split(f[3], ","), func(o string) bool {
			return slices.Contains([]string{"cpu", "cpuacct", "memory", "blkio", "pids"}, o)
		})
		if f[2] == "cgroup2" || f[2] == "cgroup" && counts {
			return f[1]
		}
	}
	t.Fatal("no cgroup hierarchy is mounted")
	return ""
}

func TestStandInRunsDeployment(t *testing.T) {
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	s := c.Node(t, ns+"-n")
	start := time.Now()
	require.NoError(t, c.Apply(t.Context(), []byte(strings.NewReplacer("NS", ns, "NODE", ns+"-n").Replace(deployment))))
	eventually(t, "the deployment is available", func() bool {
		d, err := c.Client.AppsV1().Deployments(ns).Get(t.Context(), "sleeper", metav1.GetOptions{})
		require.NoError(t, err)
		return d.Status.AvailableReplicas == 1
	})
	t.Logf("available after %s", time.Since(start).Round(time.Millisecond))
	p := podsOf(t, c, ns)[0]
	path := s.Cgroup(&p)
	assert.Equal(t, fmt.Sprintf("/plimsoll-e2e-%d-%s-n/kubepods/besteffort/pod%s", os.Getpid(), ns, p.UID), path)

	var pids []int
	eventually(t, "the shell and what it started are in the cgroup", func() bool {
		var err error
		pids, err = s.Processes(&p)
		require.NoError(t, err)
		return len(pids) == 2
	})
	said, err := s.Output(&p)
	require.NoError(t, err)
	assert.Equal(t, "plimsoll and \n", string(said), "the container's environment, not ours")
	own, err := os.ReadFile("/proc/" + itoa(pids[0]) + "/cgroup")
	require.NoError(t, err)
	assert.Contains(t, string(own), path+"\n")
	for _, dir := range dirs(t, path) {
		procs, err := os.ReadFile(dir + "/cgroup.procs")
		require.NoError(t, err)
		assert.Equal(t, itoa(pids[0])+"\n"+itoa(pids[1])+"\n", string(procs), dir)
	}
	adj, err := os.ReadFile("/proc/" + itoa(pids[1]) + "/oom_score_adj")
	require.NoError(t, err)
	assert.Equal(t, "1000\n", string(adj))
	for _, is := range p.Status.Conditions {
		assert.Equal(t, corev1.ConditionTrue, is.Status, is.Type)
	}

	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	eventually(t, "another pod takes its place", func() bool {
		now := podsOf(t, c, ns)
		return len(now) == 1 && now[0].UID != p.UID && len(dirs(t, path)) == 0
	})
	for _, pid := range pids {
		assert.True(t, dead(itoa(pid)), "nothing of the first is left, not even what it started")
	}
}

func TestStandInLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods get real cgroups")
	}
	c := cluster.Shared(t, cluster.Options{})
	ns := c.Namespace(t)
	node, root := ns+"-n", fmt.Sprintf("/plimsoll-e2e-%d-left", os.Getpid())
	_, err := c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	// What one leaves that is killed.
	left := exec.Command("sleep", "600")
	require.NoError(t, left.Start())
	t.Cleanup(func() { _ = left.Process.Kill() }) // it may have ended
	for _, tree := range []string{"memory", "unified", ""} {
		dir := filepath.Join("/sys/fs/cgroup", tree)
		if _, err := os.Stat(dir + "/cgroup.procs"); err != nil {
			continue
		}
		require.NoError(t, os.MkdirAll(dir+root+"/kubepods/besteffort/podx", 0o755))
		require.NoError(t, os.WriteFile(dir+root+"/kubepods/besteffort/podx/cgroup.procs", []byte(itoa(left.Process.Pid)), 0o644))
	}

	// And below another root; one that a StandIn never had is not touched.
	old, foreign := fmt.Sprintf("/plimsoll-e2e-%d-old", os.Getpid()), fmt.Sprintf("/plimsoll-e2e-%d-foreign", os.Getpid())
	for _, path := range []string{old + "/plimsoll-standin", foreign + "/kubepods"} {
		dir := firstTree(t) + path
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Hour)))
		t.Cleanup(func() {
			_ = os.Remove(dir) // it may be gone
			_ = os.Remove(filepath.Dir(dir))
		})
	}

	s, err := c.StandIn(t.Context(), node, root)
	require.NoError(t, err)
	assert.Empty(t, dirs(t, old))
	assert.NotEmpty(t, dirs(t, foreign))
	eventually(t, "what was left is ended", func() bool { return dead(itoa(left.Process.Pid)) })
	assert.Empty(t, dirs(t, root+"/kubepods"))
	_, err = c.StandIn(t.Context(), node, root)
	require.ErrorContains(t, err, "is in use", "not below the root of one that lives")

	p := pod(t, c, ns, node, "sh", "-c", "trap '' TERM; sleep 600 & sleep 600")
	var pids []int
	eventually(t, "three processes", func() bool {
		pids, err = s.Processes(p)
		require.NoError(t, err)
		return len(pids) == 3
	})
	require.NoError(t, s.Close())
	for _, pid := range pids {
		assert.True(t, dead(itoa(pid)))
	}
	assert.Empty(t, dirs(t, root))
	require.NoError(t, s.Close(), "twice does no harm")
}

func TestStandInKeepsNodeReady(t *testing.T) {
	long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods get real cgroups")
	}
	const grace = 8 * time.Second
	c := cluster.New(t, cluster.Options{Graces: cluster.Graces{
		NodeMonitorPeriod: 500 * time.Millisecond, NodeMonitor: grace, NodeStartup: grace,
	}})
	root := fmt.Sprintf("/plimsoll-e2e-%d-ready", os.Getpid())
	node, err := c.AddNode(t.Context(), "n", nil)
	require.NoError(t, err)
	ready := func() corev1.ConditionStatus {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		for _, is := range n.Status.Conditions {
			if is.Type == corev1.NodeReady {
				return is.Status
			}
		}
		return ""
	}
	s, err := c.StandIn(t.Context(), "n", root)
	require.NoError(t, err)
	first := renewed(t, c, node.Name)
	for past := time.After(grace + time.Second); ; {
		require.Equal(t, corev1.ConditionTrue, ready())
		select {
		case <-past:
		case <-time.After(200 * time.Millisecond):
			continue
		}
		break
	}
	assert.True(t, renewed(t, c, node.Name).After(first), "the Lease was renewed")

	require.NoError(t, s.Close())
	eventually(t, "when it ends the node is lost", func() bool { return ready() == corev1.ConditionUnknown })
	s, err = c.StandIn(t.Context(), "n", root)
	require.NoError(t, err)
	assert.Equal(t, corev1.ConditionTrue, ready(), "the next one brings it back")
	require.NoError(t, s.Close())
}

// renewed is when the kubelet's Lease of a node was renewed last.
func renewed(t *testing.T, c *cluster.Cluster, node string) time.Time {
	t.Helper()
	lease, err := c.Client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	return lease.Spec.RenewTime.Time
}

func TestStandInHasKubeletRights(t *testing.T) {
	long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods get real cgroups")
	}
	o := bare()
	o.Audit, o.AuditUsers = true, []string{"system:node:n"}
	c := cluster.New(t, o)
	s := c.Node(t, "n")
	p := pod(t, c, c.Namespace(t), "n", "sleep", "600")
	require.NoError(t, c.Client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	eventually(t, "the pod is gone", func() bool { return gone(t, c, p) && len(dirs(t, s.Cgroup(p))) == 0 })
	events, err := c.AuditEvents()
	require.NoError(t, err)
	var patched bool
	var deleted int
	for _, e := range events {
		assert.NotEqual(t, 403, e.Code, "%+v", e)
		deleted += map[bool]int{true: 1}[e.Verb == "delete" && e.Name == p.Name]
		patched = patched || e.Verb == "patch" && e.Subresource == "status" && e.Name == p.Name
	}
	assert.True(t, patched, "%+v", events)
	assert.Equal(t, 1, deleted)
}
