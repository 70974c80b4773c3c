package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnknownChangesOnlyConditions(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.UTC)
	long := metav1.NewTime(now.Add(-time.Hour).Truncate(time.Second))
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: "m", LastHeartbeatTime: long, LastTransitionTime: long}
	}
	got := asUnknown([]corev1.NodeCondition{
		condition("MemoryPressure", corev1.ConditionFalse, "Kubelet"),
		condition("plimsoll.dev/Disk", corev1.ConditionFalse, "Clear"), condition("plimsoll.dev/Memory", corev1.ConditionTrue, "Hard"),
		condition("plimsoll.dev/Net", corev1.ConditionUnknown, "NotSeen"), condition("Ready", corev1.ConditionTrue, "AgentBeats"),
	}, "silence", now)
	require.Len(t, got, 3, "Ready is not the agent's to judge")
	for i, kind := range []corev1.NodeConditionType{"plimsoll.dev/Disk", "plimsoll.dev/Memory", "plimsoll.dev/Net"} {
		c := got[i]
		assert.Equal(t, kind, c.Type)
		assert.Equal(t, []string{"Unknown", ReasonSilent, "silence"}, []string{string(c.Status), c.Reason, c.Message})
		assert.Equal(t, long, c.LastHeartbeatTime, "nothing was heard")
	}
	assert.Equal(t, now.Truncate(time.Second), got[1].LastTransitionTime.Time)
	assert.Equal(t, long, got[2].LastTransitionTime, "it was Unknown before")
	assert.Empty(t, asUnknown(got, "silence", now), "it was said")
}

func TestLastHeartbeatOfOwnConditions(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.NewTime(time.Unix(int64(s), 0)) }
	assert.Equal(t, at(7).Time, LastHeartbeat([]corev1.NodeCondition{
		{Type: "Ready", LastHeartbeatTime: at(9)}, {Type: "plimsoll.dev/Disk", LastHeartbeatTime: at(5)}, {Type: "plimsoll.dev/Memory", LastHeartbeatTime: at(7)},
	}))
	assert.Equal(t, at(7).Time, LastHeartbeat([]corev1.NodeCondition{
		{Type: "plimsoll.dev/Memory", LastHeartbeatTime: at(7)}, {Type: "plimsoll.dev/Disk", LastHeartbeatTime: at(5)},
	}), "the newest, in any order")
	assert.True(t, LastHeartbeat(nil).IsZero())
}

func TestUnknownWrittenUntilAllSaySo(t *testing.T) {
	said := corev1.NodeCondition{Type: "plimsoll.dev/Memory", Status: corev1.ConditionUnknown, Reason: ReasonSilent}
	for _, other := range []corev1.NodeCondition{
		{Type: "plimsoll.dev/Disk", Status: corev1.ConditionFalse, Reason: ReasonSilent},
		{Type: "plimsoll.dev/Disk", Status: corev1.ConditionUnknown, Reason: "NotSeen"},
	} {
		got := asUnknown([]corev1.NodeCondition{other, said}, "silence", time.Unix(1000, 0))
		require.Len(t, got, 2, other)
		assert.Equal(t, []string{"Unknown", ReasonSilent}, []string{string(got[0].Status), got[0].Reason})
	}
}
