package lease

import (
	"encoding/json"
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

// What is left says which pods were evicted, and nothing of the node.
func TestWithdrawal(t *testing.T) {
	var patch struct {
		Metadata struct{ Annotations map[string]*string }
		Spec     map[string]*string
	}
	require.NoError(t, json.Unmarshal([]byte(withdrawal), &patch))
	assert.Equal(t, map[string]*string{"renewTime": nil}, patch.Spec)
	assert.Equal(t, map[string]*string{AgentAnnotation: nil, NodeAnnotation: nil, ContentionAnnotation: nil, EvictionsAnnotation: nil}, patch.Metadata.Annotations)
}
