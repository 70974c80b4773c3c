package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestControllerTolerations(t *testing.T) {
	text, err := os.ReadFile("plimsoll.yaml")
	require.NoError(t, err)
	var controller appsv1.Deployment
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "\nkind: Deployment\n") {
			require.NoError(t, yaml.Unmarshal([]byte(document), &controller))
		}
	}
	tolerated := func(key string, effect corev1.TaintEffect) bool {
		return slices.ContainsFunc(controller.Spec.Template.Spec.Tolerations, func(of corev1.Toleration) bool {
			return of.Operator == corev1.TolerationOpExists && of.Key == key && (of.Effect == "" || of.Effect == effect)
		})
	}
	for _, name := range plugins.Conditions() {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			assert.True(t, tolerated("plimsoll.dev/"+name, effect), "%s %s", name, effect)
		}
	}
	assert.False(t, tolerated("node.kubernetes.io/unschedulable", corev1.TaintEffectNoSchedule), "a cordon is not ours")
	assert.False(t, tolerated("", corev1.TaintEffectNoSchedule))
}
