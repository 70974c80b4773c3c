package evict

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	no     = corev1.TaintEffectNoSchedule
	prefer = corev1.TaintEffectPreferNoSchedule
	out    = corev1.TaintEffectNoExecute
)

func ownTaint(key string, effect corev1.TaintEffect, second int64) OwnTaint {
	return OwnTaint{Key: key, Effect: effect, Since: metav1.Unix(second, 0)}
}
