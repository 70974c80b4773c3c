package vm_test

import (
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// onCPUs has the CPUs judged within seconds, and Burstable pods throttled for them.
const onCPUs = "plugins: {warmUp: 0s, cpuContention: {mark: true, for: 5s, clearFor: 5s}}\n"

// burnerIsResized: a pod takes the CPUs from a service. Its kubelet applies a CPU limit that
// is lowered in place, and the one before when the agent ends; nothing is restarted.
// Without resize the limit of its owner, set meanwhile, replaces that of the agent.
func burnerIsResized(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if os.Getenv("PLIMSOLL_LONG") == "" {
			t.Skip("it takes the CPUs of an emulated machine for minutes: make e2e")
		}
		k := shared.with(t)
		require.NoError(t, k.cluster.Apply(t.Context(), deploy.RBACResize))
		k.deploy("service", burner("service", "10m", "", "1"))
		k.deploy("burner", burner("burner", "300m", "2", "8"))
		k.running("service")
		pod := k.running("burner")
		k.run("systemctl stop plimsoll")
		k.resizesInPlace(pod)
		k.ownerSetsLimit(pod)
		k.undeploy("service")
		k.undeploy("burner")
		k.ended(pod)
		k.configure(acting)
		k.startAgentWith(joined)
	}
}

// burner is a pod that computes with so many threads.
func burner(name, request, limit, threads string) corev1.PodSpec {
	spec := idle()
	c := corev1.Container{Name: name, Image: imageOf("hog"), Args: []string{"-work", "cpu", "-threads", threads}}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
	}
	spec.Containers[0] = c
	return spec
}

// resizesInPlace has the pod resized and restored, while the agent runs.
func (k *kubeNode) resizesInPlace(pod corev1.Pod) {
	k.t.Helper()
	k.configure(repeating + onCPUs + "throttle: {dryRun: false, resize: true, classes: [BestEffort, Burstable]}\n")
	k.startAgentWith(joined + " --state.dir /root/resized")
	before := k.quota(pod)
	var asked time.Time
	var low corev1.Pod
	k.until(2*time.Minute, "the kubelet applies a lower limit", func() bool {
		low = k.get(pod)
		set := low.Spec.Containers[0].Resources.Limits.Cpu()
		if asked.IsZero() && set.MilliValue() < 2000 {
			asked = time.Now()
		}
		return set.MilliValue() < 2000 && reported(&low) == set.MilliValue()
	})
	k.t.Logf("resized to %s; the kubelet reported a lower limit %.1f s after the first was seen", low.Spec.Containers[0].Resources.Limits.Cpu(), time.Since(asked).Seconds())
	assert.Greater(k.t, low.Spec.Containers[0].Resources.Limits.Cpu().MilliValue(), int64(300), "more than it requests")
	assert.Contains(k.t, k.object().Annotations, resize.Annotation)
	k.until(time.Minute, "the cgroup has it", func() bool { return k.quota(pod) != before })
	k.said(pod.UID, "Throttled", time.Minute)

	k.run("systemctl stop plimsoll")
	k.until(time.Minute, "the kubelet has restored the limit", func() bool {
		low = k.get(pod)
		return reported(&low) == 2000 && k.quota(pod) == before
	})
	assert.EqualValues(k.t, 2000, low.Spec.Containers[0].Resources.Limits.Cpu().MilliValue())
	assert.Zero(k.t, low.Status.ContainerStatuses[0].RestartCount)
	assert.NotContains(k.t, k.object().Annotations, resize.Annotation)
	k.stage("a pod was resized in place, and restored")
}

// reported is the CPU limit that the kubelet reports, in millicores; 0: none.
func reported(pod *corev1.Pod) int64 {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil {
		return 0
	}
	return pod.Status.ContainerStatuses[0].Resources.Limits.Cpu().MilliValue()
}

// ownerSetsLimit resizes the pod as its owner would, while the agent limits its cgroup: the
// kubelet writes the same file. Nothing of the agent's is left, and nothing of the owner's lost.
func (k *kubeNode) ownerSetsLimit(pod corev1.Pod) {
	k.t.Helper()
	k.configure(repeating + onCPUs + "throttle: {dryRun: false, classes: [BestEffort, Burstable]}\n")
	before := k.quota(pod)
	k.startAgentWith(joined + " --state.dir /root/limited")
	k.until(2*time.Minute, "the agent limits its cgroup", func() bool { return k.quota(pod) != before })
	_, err := k.cluster.Client.CoreV1().Pods(pod.Namespace).Patch(k.t.Context(), pod.Name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"burner","resources":{"limits":{"cpu":"1500m"}}}]}}`), metav1.PatchOptions{}, "resize")
	require.NoError(k.t, err)
	k.until(time.Minute, "the kubelet writes the owner's limit", func() bool { return strings.HasPrefix(k.quota(pod), "150000 ") })
	k.until(time.Minute, "the agent sees another's limit", func() bool {
		list := k.throttled()
		return len(list) == 1 && list[0].Foreign
	})
	k.run("systemctl stop plimsoll")
	assert.Equal(k.t, "150000 100000", k.quota(pod))
	k.stage("its owner's limit replaced the agent's, and stayed")
}

// quota is cpu.max of the cgroup of a pod.
func (k *kubeNode) quota(pod corev1.Pod) string {
	k.t.Helper()
	return strings.TrimSpace(k.run("cat " + path.Join(k.cgroupOf(pod), "cpu.max")))
}

// cgroupOf is where the cgroup of a pod is.
func (k *kubeNode) cgroupOf(pod corev1.Pod) string {
	k.t.Helper()
	dir := strings.TrimSpace(k.run("find /sys/fs/cgroup/kubepods.slice -name '*pod" + strings.ReplaceAll(string(pod.UID), "-", "_") + ".slice'"))
	require.NotEmpty(k.t, dir, "the cgroup of %s", pod.Name)
	return dir
}

// get the pod as the API server has it.
func (k *kubeNode) get(pod corev1.Pod) corev1.Pod {
	k.t.Helper()
	now, err := k.cluster.Client.CoreV1().Pods(pod.Namespace).Get(k.t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(k.t, err)
	return *now
}

// throttled is what the agent says of a throttled pod.
type throttled struct {
	Percent int
	Foreign bool
	May     throttle.Rates
}

// throttled are what the agent says of throttled pods.
func (k *kubeNode) throttled() []throttled {
	k.t.Helper()
	var said struct {
		Cluster struct {
			Throttles struct{ Throttled []throttled }
		}
	}
	require.NoError(k.t, json.Unmarshal(k.api("pressure"), &said))
	return said.Cluster.Throttles.Throttled
}
