package lease

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestRemovalOfLastOwnConditionFirst(t *testing.T) {
	node := &corev1.Node{}
	for _, kind := range []corev1.NodeConditionType{"plimsoll.dev/A", "Ready", "plimsoll.dev/B", "acme.io/C"} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind})
	}
	patch, some, err := RemovalPatch(node)
	require.NoError(t, err)
	assert.True(t, some)
	assert.JSONEq(t, `[{"op":"test","path":"/status/conditions/2/type","value":"plimsoll.dev/B"},{"op":"remove","path":"/status/conditions/2"},
		{"op":"test","path":"/status/conditions/0/type","value":"plimsoll.dev/A"},{"op":"remove","path":"/status/conditions/0"}]`, string(patch))
	node.Status.Conditions = node.Status.Conditions[1:2]
	_, some, err = RemovalPatch(node)
	require.NoError(t, err)
	assert.False(t, some)
}
