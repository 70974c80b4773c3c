package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestEvictedElsewhere(t *testing.T) {
	const key = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	target := func(status corev1.ConditionStatus, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}, {Type: corev1.DisruptionTarget, Status: status, Reason: reason, Message: "secret"}}
		}
	}
	for what, row := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"no mark":               {func(*corev1.Pod) {}, ""},
		"KubeVirt":              {annotated(key, "kubevirt"), "annotation " + key},
		"any value":             {annotated(key, ""), "annotation " + key},
		"asked for only":        {annotated("descheduler.alpha.kubernetes.io/request-evict-only", ""), ""},
		"the Eviction API":      {target("True", "EvictionByEvictionAPI"), "condition DisruptionTarget, EvictionByEvictionAPI"},
		"the scheduler":         {target("True", "PreemptionByScheduler"), "condition DisruptionTarget, PreemptionByScheduler"},
		"not any more":          {target("False", "EvictionByEvictionAPI"), ""},
		"the kubelet ends it":   {target("True", corev1.PodReasonTerminationByKubelet), ""},
		"a reason without end":  {target("True", string(make([]byte, 300))), "condition DisruptionTarget, " + string(make([]byte, maxValue))},
		"a label is not a mark": {func(p *corev1.Pod) { p.Labels = map[string]string{key: "x"} }, ""},
		"another condition's is": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: "x", Status: "True", Reason: "EvictionByEvictionAPI"}}
		}, ""},
	} {
		pod := strip(made(row.change))
		assert.Equal(t, row.want, toPod(pod, nil, DefaultRules()).EvictedElsewhere, what)
		assert.Equal(t, pod, strip(pod), what)
	}
}
