package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestLiveness(t *testing.T) {
	defaults := &corev1.Probe{}
	quick := &corev1.Probe{FailureThreshold: 1, PeriodSeconds: 5, TimeoutSeconds: 2}
	slow := &corev1.Probe{FailureThreshold: 30, PeriodSeconds: 10, TimeoutSeconds: 1}
	for name, row := range map[string]struct {
		first, second, sidecar corev1.Container
		want                   time.Duration
	}{
		"none":                        {want: 0},
		"the API's defaults":          {first: corev1.Container{LivenessProbe: defaults}, want: 21 * time.Second},
		"one failure is enough":       {first: corev1.Container{LivenessProbe: quick}, want: 2 * time.Second},
		"the least of all":            {first: corev1.Container{LivenessProbe: slow}, second: corev1.Container{LivenessProbe: quick}, want: 2 * time.Second},
		"a startup probe":             {first: corev1.Container{LivenessProbe: slow, StartupProbe: defaults}, want: 21 * time.Second},
		"a sidecar's":                 {sidecar: corev1.Container{LivenessProbe: quick}, want: 2 * time.Second},
		"readiness ends no container": {first: corev1.Container{ReadinessProbe: quick}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := made(func(p *corev1.Pod) {
				p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{row.first, row.second}, []corev1.Container{row.sidecar}
			})
			assert.Equal(t, row.want, liveness(&pod.Spec))
			assert.Equal(t, row.want, liveness(&strip(pod).Spec), "what is kept of the pod has it")
		})
	}
}
