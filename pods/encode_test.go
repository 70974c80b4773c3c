package pods

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// wholePod is a pod as the API server sends it, with a text of so many bytes in
// an annotation.
func wholePod(uid string, bulk int) *corev1.Pod {
	return made(func(p *corev1.Pod) {
		p.Name, p.UID = "pod-"+uid, types.UID(uid)
		p.Labels = map[string]string{"app": "shop", "pod-template-hash": "abc"}
		p.Annotations = map[string]string{
			"katalyst.kubewharf.io/qos_level": "shared_cores", configSource: "file", "bulk": strings.Repeat("x", bulk),
			lastApplied: `{"env":"secret"}`, "vault.example.com/token": "secret", "example.com/numa": "0",
		}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "secret"}}
		exec := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"secret"}}}}
		c := corev1.Container{
			Name: "main", Image: "shop:1", Command: []string{"secret"}, Args: []string{"secret"},
			Env:           []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}},
			EnvFrom:       []corev1.EnvFromSource{{Prefix: "secret"}},
			LivenessProbe: exec, ReadinessProbe: exec, StartupProbe: exec,
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"secret"}}}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}
		p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{c}, []corev1.Container{c}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Args: []string{"secret"}}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + uid}}
	})
}

func wired(t testing.TB, wiring PluginPods, budget int, all ...*corev1.Pod) []EncodedPod {
	t.Helper()
	w := &Watcher{PluginPods: wiring}
	w.pods = w.newStore()
	for _, p := range all {
		require.NoError(t, w.pods.Add(p))
	}
	return w.Encoded(budget)
}

func decode(t testing.TB, w EncodedPod) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	require.NoError(t, p.Unmarshal(w.Bytes))
	assert.Equal(t, w.UID, string(p.UID))
	return &p
}

const mebi = 1 << 20

func TestEncodedPodWithoutSecrets(t *testing.T) {
	pod := wholePod("a", 10)
	before := pod.DeepCopy()
	list := wired(t, PluginPods{Enabled: true}, mebi, pod)
	require.Len(t, list, 1)
	assert.NotContains(t, string(list[0].Bytes), "secret")
	p := decode(t, list[0])
	assert.Equal(t, "shop", p.Labels["app"])
	assert.Equal(t, map[string]string{"katalyst.kubewharf.io/qos_level": "shared_cores", configSource: "file"}, p.Annotations, "those that decide")
	assert.Empty(t, list[0].Annotations)
	assert.Equal(t, "shop:1", p.Spec.Containers[0].Image)
	assert.Equal(t, "1Gi", p.Spec.Containers[0].Resources.Requests.Memory().String())
	assert.Equal(t, "containerd://a", p.Status.ContainerStatuses[0].ContainerID)
	assert.Equal(t, before, pod, "the pod itself is not changed")
}

// shownTo plugins of the texts of a pod.
func shownTo() []string {
	return []string{
		".ObjectMeta.Name", ".ObjectMeta.GenerateName", ".ObjectMeta.Namespace", ".ObjectMeta.UID", ".ObjectMeta.ResourceVersion",
		".ObjectMeta.Labels{key}", ".ObjectMeta.Labels{}", ".ObjectMeta.OwnerReferences[].*",
		".Spec.NodeName", ".Spec.NodeSelector{key}", ".Spec.NodeSelector{}", ".Spec.Affinity.*", ".Spec.Tolerations[].*",
		".Spec.TopologySpreadConstraints[].*", ".Spec.SchedulerName", ".Spec.PriorityClassName", ".Spec.PreemptionPolicy",
		".Spec.RuntimeClassName", ".Spec.Overhead{key}", ".Spec.Resources.*", ".Spec.RestartPolicy",
		".Spec.InitContainers[].Name", ".Spec.InitContainers[].Image", ".Spec.InitContainers[].Resources.*", ".Spec.InitContainers[].RestartPolicy",
		".Spec.Containers[].Name", ".Spec.Containers[].Image", ".Spec.Containers[].Resources.*", ".Spec.Containers[].RestartPolicy",
		".Spec.Volumes[].Name", ".Spec.Volumes[].VolumeSource.EmptyDir.Medium",
		".Status.Phase", ".Status.Reason", ".Status.QOSClass", ".Status.NominatedNodeName",
		".Status.HostIP", ".Status.HostIPs[].IP", ".Status.PodIP", ".Status.PodIPs[].IP",
		".Status.Conditions[].Type", ".Status.Conditions[].Status", ".Status.Conditions[].Reason",
		".Status.Resources.*", ".Status.AllocatedResources{key}",
		".Status.InitContainerStatuses[].*", ".Status.ContainerStatuses[].*",
	}
}

// A field that Kubernetes gets tomorrow is not shown.
func TestEncodedPodAllowlist(t *testing.T) {
	var full corev1.Pod
	fill(reflect.ValueOf(&full).Elem(), 0)
	full.DeletionTimestamp, full.Status.Phase = nil, corev1.PodRunning
	list := wired(t, PluginPods{Enabled: true}, mebi, &full)
	require.Len(t, list, 1)
	var paths []string
	texts(reflect.ValueOf(decode(t, list[0])), "", &paths)
	used := map[string]bool{".Status.Phase": true}
	for _, path := range paths {
		i := slices.IndexFunc(shownTo(), func(kept string) bool {
			prefix, below := strings.CutSuffix(kept, "*")
			return path == kept || below && strings.HasPrefix(path, prefix)
		})
		if assert.GreaterOrEqual(t, i, 0, path) {
			used[shownTo()[i]] = true
		}
		assert.NotContains(t, path, "Message")
	}
	for _, kept := range shownTo() {
		assert.True(t, used[kept], "%s is in the list and not shown", kept)
	}
}

// A process writes its last words as it likes, also into the log that a message
// may be taken from.
func TestEncodedPodTerminationReason(t *testing.T) {
	pod := wholePod("a", 10)
	ended := corev1.ContainerState{
		Waiting:    &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "secret"},
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, Message: "secret"},
	}
	pod.Status.Message = "secret"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "secret"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://a", State: ended, LastTerminationState: ended}}
	pod.Status.InitContainerStatuses = pod.Status.ContainerStatuses
	w := wired(t, PluginPods{Enabled: true}, mebi, pod)[0]
	assert.NotContains(t, string(w.Bytes), "secret")
	status := decode(t, w).Status
	assert.Equal(t, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}, status.Conditions[0])
	for _, s := range []corev1.ContainerStatus{status.ContainerStatuses[0], status.InitContainerStatuses[0]} {
		assert.Equal(t, "containerd://a", s.ContainerID)
		for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
			assert.Equal(t, "CrashLoopBackOff", state.Waiting.Reason)
			assert.Equal(t, "OOMKilled", state.Terminated.Reason)
			assert.EqualValues(t, 137, state.Terminated.ExitCode)
		}
	}
}

func TestEncodedPodVolumes(t *testing.T) {
	pod := wholePod("a", 10)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "room", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}},
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"key": "secret"}},
		}}}},
		{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: "d.example.com", VolumeAttributes: map[string]string{"password": "secret"}, NodePublishSecretRef: &corev1.LocalObjectReference{Name: "secret"},
		}}},
		{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}},
		{Name: "flex", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "d", Options: map[string]string{"password": "secret"}}}},
	}
	w := wired(t, PluginPods{Enabled: true}, mebi, pod)[0]
	assert.NotContains(t, string(w.Bytes), "secret")
	volumes := decode(t, w).Spec.Volumes
	require.Len(t, volumes, 5, "one without a source would be read as an emptyDir")
	assert.Equal(t, corev1.StorageMediumMemory, volumes[0].EmptyDir.Medium)
	assert.Equal(t, "/data", volumes[1].HostPath.Path)
	assert.Equal(t, "c", volumes[2].PersistentVolumeClaim.ClaimName)
	assert.NotNil(t, volumes[3].Ephemeral)
	assert.Equal(t, "d.example.com", volumes[4].CSI.Driver)
}

func TestEncodedPodAnnotations(t *testing.T) {
	w := wired(t, PluginPods{Enabled: true, Annotations: []string{"example.com/numa", "example.com/absent", "bulk"}}, mebi, wholePod("a", 10))[0]
	require.Len(t, w.Annotations, 2)
	before := decode(t, w)
	w.Bytes = append(w.Bytes, w.Annotations["example.com/numa"]...)
	after := decode(t, w)
	assert.Equal(t, map[string]string{"katalyst.kubewharf.io/qos_level": "shared_cores", configSource: "file", "example.com/numa": "0"}, after.Annotations)
	after.Annotations = before.Annotations
	assert.Equal(t, before, after, "nothing else changes")
}

func TestEncodedPodAnnotationsSmallestFit(t *testing.T) {
	wiring := PluginPods{Enabled: true, Annotations: []string{"example.com/numa", "bulk"}}
	w := wired(t, wiring, 8<<10, wholePod("a", 8<<10))[0]
	assert.Equal(t, []string{"example.com/numa"}, slices.Collect(maps.Keys(w.Annotations)))
	w = wired(t, wiring, mebi, wholePod("a", maxEncoded))[0]
	assert.Equal(t, []string{"example.com/numa"}, slices.Collect(maps.Keys(w.Annotations)), "whatever room there is")
}

func TestEncodedPodFull(t *testing.T) {
	p := decode(t, wired(t, PluginPods{Enabled: true, Full: true}, mebi, wholePod("a", 10))[0])
	assert.Equal(t, "secret", p.Spec.Containers[0].Env[0].Value)
	assert.Equal(t, []string{"secret"}, p.Spec.Containers[0].Command)
	assert.Empty(t, p.ManagedFields)
	assert.Equal(t, "secret", p.Annotations["vault.example.com/token"])
	assert.NotContains(t, p.Annotations, lastApplied)
}

func TestEncodedPodsActiveOnly(t *testing.T) {
	done, failed, ending := wholePod("done", 1), wholePod("failed", 1), wholePod("ending", 1)
	done.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	ending.DeletionTimestamp = &metav1.Time{}
	pending := wholePod("pending", 1)
	pending.Status.Phase = corev1.PodPending
	list := wired(t, PluginPods{Enabled: true}, mebi, done, failed, ending, pending)
	require.Len(t, list, 1)
	assert.Equal(t, "pending", list[0].UID)
}

func TestEncodedPodsOnlyForPlugins(t *testing.T) {
	assert.Empty(t, wired(t, PluginPods{}, mebi, wholePod("a", 10)))
}

func TestEncodedPodsOfDenseNode(t *testing.T) {
	const budget = 4<<20 - 64<<10
	for _, c := range []struct{ pods, bulk int }{{250, 20 << 10}, {250, 200 << 10}, {500, 20 << 10}, {2000, 20 << 10}, {5000, 20 << 10}} {
		var all []*corev1.Pod
		for i := range c.pods {
			p := wholePod(fmt.Sprint(i), c.bulk)
			for n := range 20 {
				p.Labels[fmt.Sprint("label-", n)] = strings.Repeat("v", 60)
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", n), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			}
			all = append(all, p)
		}
		small := wholePod("small", 10)
		list := wired(t, PluginPods{Enabled: true, Annotations: []string{"bulk"}}, budget, append(all, small)...)
		require.Len(t, list, c.pods+1)
		total := 0
		for _, w := range list {
			w.Bytes = append(w.Bytes, w.Annotations["bulk"]...)
			total += len(w.Bytes) + overhead
			p := decode(t, w)
			assert.Equal(t, "pod-"+w.UID, p.Name)
			assert.Equal(t, "1Gi", p.Spec.Containers[0].Resources.Requests.Memory().String())
			if w.UID == "small" && c.pods <= 500 {
				assert.Equal(t, "xxxxxxxxxx", p.Annotations["bulk"], "a small pod loses nothing")
			}
		}
		assert.LessOrEqual(t, total, budget, "%d pods with %d bytes each", c.pods, c.bulk)
		t.Logf("%d pods with %d KiB each: %d KiB", c.pods, c.bulk>>10, total>>10)
	}
}

func TestEncodedPodCached(t *testing.T) {
	w := &Watcher{PluginPods: PluginPods{Enabled: true}}
	w.pods = w.newStore()
	for i := range 10 {
		p := wholePod(fmt.Sprint(i), 10)
		p.Labels["bulk"] = strings.Repeat("x", 4<<10)
		require.NoError(t, w.pods.Add(p))
	}
	for _, budget := range []int{mebi, 20 << 10} {
		first, second := w.Encoded(budget), w.Encoded(budget)
		for i := range first {
			assert.Same(t, &first[i].Bytes[0], &second[i].Bytes[0])
		}
	}
	assert.Len(t, w.Encoded(mebi)[0].Bytes, len(w.all()[0].encoded), "whole again once there is room")
}

func TestEncodedPodEndlessAnnotations(t *testing.T) {
	list := wired(t, PluginPods{Enabled: true, Full: true}, mebi, wholePod("a", 250<<10))
	assert.Less(t, len(list[0].Bytes), maxEncoded)
	assert.Equal(t, "shared_cores", decode(t, list[0]).Annotations["katalyst.kubewharf.io/qos_level"])
}

// The labels of a pod are as many as etcd takes, and each event of it is encoded on the watch.
func TestEncodedPodEndlessLabels(t *testing.T) {
	pod := wholePod("a", 0)
	for i := range 50_000 {
		pod.Labels[fmt.Sprintf("l%05d", i)] = "v"
	}
	clock := deadline.Start()
	list := wired(t, PluginPods{Enabled: true}, mebi, pod)
	assert.Less(t, clock.Elapsed(), 5*time.Second)
	size := decode(t, list[0]).Size()
	assert.LessOrEqual(t, size, maxEncoded)
	assert.Greater(t, size, maxEncoded-64, "no more than necessary is left out")
}

func TestEncodedPodsFairLimit(t *testing.T) {
	assert.Equal(t, 1<<30, fairLimit(nil, 10))
	assert.Equal(t, 1<<30, fairLimit([]int{4000, 4000}, 8000))
	assert.Equal(t, 7168, fairLimit([]int{100, 100, 8000, 9000}, 14848))
	assert.Equal(t, limitStep, fairLimit([]int{9000, 9000}, 10), "less is nothing")
}

func TestEncodedPodsMemory(t *testing.T) {
	use := func(wiring PluginPods) int64 {
		var before, after runtime.MemStats
		w := &Watcher{PluginPods: wiring}
		w.pods = w.newStore()
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 250 {
			require.NoError(t, w.pods.Add(wholePod(fmt.Sprint(i), 1<<10)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Len(t, w.all(), 250)
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	without, with := use(PluginPods{}), use(PluginPods{Enabled: true})
	t.Logf("250 pods: %d KiB, and for plugins %d KiB more", without>>10, (with-without)>>10)
	assert.Less(t, with-without, int64(1<<20))
}
