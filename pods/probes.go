package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// liveness is the least time in which a liveness or startup probe that begins to fail has its
// container ended; 0: no container has one. The kubelet runs a probe each period, and ends
// the container at the last of so many failures in a row (prober/worker.go of
// kubernetes/pkg/kubelet). Absent numbers are the API's defaults.
func liveness(spec *corev1.PodSpec) (least time.Duration) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, p := range []*corev1.Probe{list[i].LivenessProbe, list[i].StartupProbe} {
				if of := endsAfter(p); of > 0 && (least == 0 || of < least) {
					least = of
				}
			}
		}
	}
	return least
}

func endsAfter(p *corev1.Probe) time.Duration {
	if p == nil {
		return 0
	}
	or := func(n, otherwise int32) time.Duration {
		if n < 1 {
			n = otherwise
		}
		return time.Duration(n)
	}
	return (or(p.FailureThreshold, 3)-1)*or(p.PeriodSeconds, 10)*time.Second + or(p.TimeoutSeconds, 1)*time.Second
}

// stripProbe keeps how long it may fail.
func stripProbe(p *corev1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	return &corev1.Probe{FailureThreshold: p.FailureThreshold, PeriodSeconds: p.PeriodSeconds, TimeoutSeconds: p.TimeoutSeconds}
}
