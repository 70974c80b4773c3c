package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestReadNode(t *testing.T) {
	assert.Equal(t, Node{ReadError: "no space left on device"}, ReadNode(nil, errDisk))
	var n corev1.Node
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionTrue,
		corev1.NodeDiskPressure: corev1.ConditionUnknown, corev1.NodePIDPressure: corev1.ConditionTrue,
		"plimsoll.dev/MemoryContention": corev1.ConditionTrue,
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
	}
	got := ReadNode(&n, nil)
	assert.ElementsMatch(t, []string{"MemoryPressure", "PIDPressure"}, got.KubeletPressure)
	assert.Empty(t, got.ReadError)
	assert.Equal(t, Node{}, ReadNode(&corev1.Node{}, nil))
}

func TestKubeletConditionOfResource(t *testing.T) {
	for resource, want := range map[plugins.Resource]string{
		plugins.Memory: "MemoryPressure", plugins.Disk: "DiskPressure", plugins.Filesystem: "DiskPressure",
		plugins.NetworkIO: "none", plugins.CPU: "none", "gpu": "",
	} {
		own, known := kubeletCondition(resource)
		assert.Equal(t, want, own)
		assert.Equal(t, resource != "gpu", known, resource)
	}
}

func TestDefaultConfigObserves(t *testing.T) {
	c := DefaultConfig()
	assert.True(t, c.DryRun)
	assert.True(t, c.Enabled)
	times := []time.Duration{c.Round, c.Cooldown, c.Transition, c.MaxTerminationGrace}
	assert.Equal(t, []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute, 30 * time.Second}, times)
	assert.Empty(t, c.OptOutHard)
}

func TestCandidatePods(t *testing.T) {
	met, named, calm := pressing(named("b", 1), named("a", 1)), disk(plugins.None, named("c", 1)), disk(plugins.None, named("d", 1))
	named.Named = true
	met.Candidates = append(met.Candidates, plugins.Candidate{Cgroup: "/a.service"})
	in := round(0, nil, met, named, calm)
	in.State.Named = []NamedPod{{UID: "f"}}
	assert.Equal(t, []string{"b", "a", "c", "f"}, CandidatePods(in))
}

func TestNamingPlugins(t *testing.T) {
	q := namingTop("a")
	q.Plugin = "q"
	in := round(0, nil, pressing(named("a", 1)), says(plugins.Soft), q, forcing("b"))
	in.State.Named = []NamedPod{{Plugin: "z"}, {Plugin: "q"}, {Plugin: "z"}}
	assert.Equal(t, []string{"p", "q", "z"}, NamingPlugins(in))
	in = round(0, nil, says(plugins.Soft))
	assert.Empty(t, NamingPlugins(in))
}
