package vm_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"
)

// TestRealKubelet has nothing staged: the node's kubelet is Kubernetes' own, its
// pods are made by a Deployment, scheduled, and run by containerd under systemd,
// the shortage of memory is one, and the agent has the rights that deploy/ grants.
func TestRealKubelet(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, kubeOptions{kubelet: "syncFrequency: 10s\n"}) // what a pod mounts follows as fast
	t.Run("the chart is installed, acts, and leaves nothing", theChart(k))
	t.Run("the package joins the cluster and is purged", thePackage(k))
	k.joinAgent()
	k.stage("the agent answers")
	t.Run("recorded", podsRecorded(k))
	t.Run("its pod is a workload with its UID, and ends when it is deleted", aPodLivesAndEnds(k))
	t.Run("a plugin that its vendor ships as a DaemonSet is asked", aDaemonSetIsAPlugin(k))
	t.Run("a pod that fills the runtime's filesystem is evicted, and no other", aRootfsIsOverused(k))
	t.Run("a pod that presses a disk is throttled, and none is evicted", copiersAreThrottled(k))
	t.Run("a pod that takes the CPUs is resized in place, and restored", burnerIsResized(k))
	t.Run("a pod that takes the node's memory is evicted, and no other", aPresserIsEvicted(k))
	// By the configuration of the others its taint would stay for minutes.
	t.Run("a pod that takes all memory is held, then evicted, and no other", eatersAreHeld(k))
}

func aPodLivesAndEnds(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		k := shared.with(t)
		k.deploy("idle", idle())
		pod := k.running("idle")
		k.stage("a pod of the Deployment runs")
		assert.Equal(t, nodeName, pod.Spec.NodeName)

		var seen workload
		k.until(30*time.Second, "the agent sees the pod", func() (ok bool) {
			seen, ok = k.workload(string(pod.UID))
			return ok
		})
		assert.Equal(t, "pod", seen.Kind)
		assert.Equal(t, string(pod.UID), seen.PodUID)
		assert.Equal(t, "kubepods-besteffort.slice", path.Base(path.Dir(seen.Cgroup)), "systemd made its cgroup")
		assert.Positive(t, seen.MemoryBytes)
		processes := strings.Fields(k.run("find /sys/fs/cgroup" + seen.Cgroup + " -name cgroup.procs -exec cat {} +"))
		require.Len(t, processes, 2, "the container's and the one that holds the pod's namespaces")

		k.since = time.Now()
		require.NoError(t, k.cluster.Client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		k.ended(pod)
		k.stage("deleted, and its cgroup is gone")
		for _, p := range processes {
			assert.Equal(t, "gone\n", k.run("test -e /proc/"+p+" || echo gone"))
		}
		assert.NotEqual(t, pod.UID, k.running("idle", pod.UID).UID)
		k.stage("another pod runs in its place")
		k.until(30*time.Second, "the agent sees the pod no more", func() bool {
			_, ok := k.workload(string(pod.UID))
			return !ok
		})
	}
}

func aDaemonSetIsAPlugin(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		k := shared.with(t)
		k.run("modprobe nf_conntrack")
		text, err := os.ReadFile(filepath.Join("..", "..", conntrack, "daemonset.yaml"))
		require.NoError(t, err)
		var set appsv1.DaemonSet
		require.NoError(t, yaml.UnmarshalStrict(text, &set))
		set.Spec.Template.Spec.Containers[0].Image = imageOf("conntrack") // the vendor's is in a registry
		_, err = k.cluster.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(t.Context(), &set, metav1.CreateOptions{})
		require.NoError(t, err)
		said := func() string { return k.run("/root/plimsoll plugins") }
		row := regexp.MustCompile(`(?m)^conntrack-fill .*none.*$`)
		k.until(time.Minute, "the agent asks it", func() bool { return row.MatchString(said()) })
		k.stage("the plugin is asked")
		t.Log(row.FindString(said()))

		require.NoError(t, k.cluster.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Delete(t.Context(), set.Name, metav1.DeleteOptions{}))
		k.until(time.Minute, "it is gone", func() bool { return !strings.Contains(said(), "conntrack-fill") })
		k.stage("the plugin is gone")
		assert.Empty(t, k.run("ls -A /var/lib/plimsoll/plugins/conntrack-fill"), "its socket")
	}
}

// The kubelet counts as used what programs and files take, not what the kernel
// itself takes and must keep free, so it sees 175 MiB available where the kernel
// says 45 MiB, and its threshold is 100 MiB: it does nothing here.
func aPresserIsEvicted(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if os.Getenv("PLIMSOLL_LONG") == "" {
			t.Skip("it fills the memory of an emulated machine, for ten minutes: make e2e")
		}
		k := shared.with(t)
		k.withPages(1000)
		k.deploy("steady", idle())
		steady := k.running("steady")
		k.startWitness()
		k.until(time.Minute, "the agent, which has no memory, has settled", func() bool { return k.agentAge() > evict.DefaultConfig().Cooldown })
		k.deploy("presser", presser("-available", "50"))
		pressing := k.running("presser")
		k.stage("a pod that waits and one that presses run")
		d := k.evicted(2*time.Minute, "memory-stall")
		k.stage("the presser is evicted")
		going, _ := d.FirstEvicted()
		assert.Equal(t, pressing.Name, going.Pod.Name)
		assert.Equal(t, string(pressing.UID), going.Pod.UID)
		k.reacted(d.Causes[0], going.Answers[0].Time)
		assert.Equal(t, corev1.ConditionFalse, k.condition(corev1.NodeMemoryPressure), "the kubelet came first")
		k.ended(pressing)
		k.stage("the kubelet has ended it, and its cgroup is gone")
		assert.Equal(t, corev1.ConditionTrue, k.condition(names.Prefix+"MemoryContention"))
		assert.Contains(t, k.object().Spec.Taints, corev1.Taint{Key: names.Prefix + "MemoryContention", Effect: corev1.TaintEffectNoSchedule})
		next := k.pods("presser")
		require.Len(t, next, 1)
		assert.Equal(t, corev1.PodPending, next[0].Status.Phase, "the taint keeps its successor away")
		assert.Equal(t, steady.UID, k.running("steady").UID, "the other pod is the same")
		assert.Equal(t, 1, countOf(k.decisions(), evictedFor("memory-stall")))
		t.Logf("plimsoll explain eviction %s:\n%s", pressing.Name, k.run("/root/plimsoll explain eviction "+pressing.Name))
		assert.NotContains(t, k.run("dmesg"), "Out of memory")
	}
}

// reacted says how long after the witness saw the rule met the level was hard,
// and the eviction accepted. That takes a write of the taint and the eviction,
// each through a network and by an agent that are emulated on a machine without
// memory: it is printed, and says nothing of a real node.
func (k *kubeNode) reacted(cause evict.Cause, accepted time.Time) {
	k.t.Helper()
	kib, err := strconv.ParseFloat(strings.TrimSpace(k.run("awk '/^MemTotal/{print $2}' /proc/meminfo")), 64)
	require.NoError(k.t, err)
	looks := k.looks()
	i, ok := hardAt(looks, float64(hardFloor)/(1024*kib))
	require.True(k.t, ok, "the witness saw no shortage:\n%s", course(looks))
	k.t.Logf("shortage -> hard %+.1f s -> eviction accepted %+.1f s; %s",
		cause.Since.Sub(looks[i].Time).Seconds(), accepted.Sub(looks[i].Time).Seconds(), cause.Reason)
}

func countOf(list []evict.Decision, is func(evict.Decision) bool) (n int) {
	for _, d := range list {
		if is(d) {
			n++
		}
	}
	return n
}

// idle is a pod that waits, and asks for nothing.
func idle() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "idle", Image: imageOf("pause")}}}
}

// presser is a pod that makes a shortage of memory on the whole node, see the
// command hog for its flags. It needs withPages.
func presser(flags ...string) corev1.PodSpec {
	return corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "hog", Image: imageOf("hog"), Args: append([]string{"-file", "/mnt/pages"}, flags...),
			VolumeMounts: []corev1.VolumeMount{{Name: "disk", MountPath: "/mnt", ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{
			Name:         "disk",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt"}},
		}},
	}
}
