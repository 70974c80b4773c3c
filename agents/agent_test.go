package agents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

func bare(a *Agent) {
	noLease(a)
	untainted(a)
	a.Node.Status.Conditions = a.Node.Status.Conditions[:1]
}

func TestNodeHasAgent(t *testing.T) {
	for what, row := range map[string]struct {
		agent  Agent
		member bool
	}{
		"none of them":   {made("n", 0, bare), false},
		"its Lease":      {made("n", 0, func(a *Agent) { l := a.Lease; bare(a); a.Lease = l }), true},
		"its old Lease":  {made("n", 0, bare, noRenewal), false},
		"its taints":     {made("n", 0, func(a *Agent) { of := a.Node.Annotations; bare(a); a.Node.Annotations = of }), true},
		"its conditions": {made("n", 0, func(a *Agent) { of := a.Node.Status.Conditions; bare(a); a.Node.Status.Conditions = of }), true},
		"no Node":        {made("n", 0, noNode), false},
	} {
		assert.Equal(t, row.member, row.agent.hasAgent(), what)
	}
}

func TestAgentAllUnknown(t *testing.T) {
	for what, row := range map[string]struct {
		agent  Agent
		marked bool
	}{
		"they do":        {made("n", 0, silentAlready), true},
		"one does not":   {made("n", 0), false},
		"it has none":    {made("n", 0, bare), false},
		"beside another": {made("n", 0, silentAlready, func(a *Agent) { a.Node.Status.Conditions[1].Reason = "Hard" }), false},
	} {
		assert.Equal(t, row.marked, row.agent.allUnknown(), what)
	}
}

func TestNodeNotReadyByReadyCondition(t *testing.T) {
	calm := func(a *Agent) { a.Node.Status.Conditions[1].Status = corev1.ConditionFalse }
	for what, row := range map[string]struct {
		agent Agent
		down  bool
	}{
		"ready, and without pressure":     {made("n", 0, calm), false},
		"not ready, and without pressure": {made("n", 0, calm, kubelet(corev1.ConditionFalse)), true},
		"not ready, and under pressure":   {made("n", 0, kubelet(corev1.ConditionUnknown)), true},
	} {
		assert.Equal(t, row.down, row.agent.notReady(), what)
	}
}

// Others write to Leases and Nodes, too.
func TestAgentSignsOfLife(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	s := newAgentCache()
	a := made("n", 0)
	heard := func(what string, want time.Time) {
		t.Helper()
		all := s.list()
		require.Len(t, all, 1, what)
		assert.Equal(t, want, all[0].LastHeartbeat, what)
	}
	renewed := func(second int) *Agent {
		b := made("n", 0)
		b.Lease.Spec.RenewTime = new(lease.Micro(at(second)))
		return &b
	}
	s.setNode("n", a.Node, at(0))
	heard("the Node is seen", at(0))
	s.setLease("n", renewed(1).Lease, at(1))
	heard("the Lease is seen", at(1))
	s.setLease("n", renewed(1).Lease, at(2))
	heard("another wrote to it", at(1))
	assert.Zero(t, s.list()[0].LastRenewal, "no renewal was seen")
	s.setLease("n", renewed(3).Lease, at(3))
	heard("it was renewed", at(3))
	assert.Equal(t, at(3), s.list()[0].LastRenewal)
	s.setNode("n", made("n", 0, kubelet(corev1.ConditionFalse)).Node, at(4))
	heard("the kubelet wrote its status", at(3))
	wrote := made("n", 0)
	wrote.Node.Status.Conditions[1].LastHeartbeatTime.Time = at(5)
	s.setNode("n", wrote.Node, at(5))
	heard("the agent wrote its status", at(5))
	another := wrote.Node.DeepCopy()
	another.UID = "another"
	s.setNode("n", another, at(6))
	heard("it is another Node", at(6))
	s.setNode("n", nil, at(7))
	heard("the Node is gone", at(6))
	s.setLease("n", nil, at(8))
	assert.Empty(t, s.list(), "and the Lease")
}

func TestAgentCacheKeepsJudgingFields(t *testing.T) {
	full := made("n", 0).Node
	full.Labels["other"], full.Annotations["other"] = "x", "x"
	full.Status.Conditions = append(full.Status.Conditions, corev1.NodeCondition{Type: "MemoryPressure"}, corev1.NodeCondition{Type: "plimsoll.dev/Disk", Message: "long"})
	got, err := trimNode(full)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{corev1.LabelTopologyZone: "a"}, got.Labels)
	assert.Equal(t, map[string]string{evict.TaintsAnnotation: taintRecord}, got.Annotations)
	assert.Equal(t, full.Spec.Taints, got.Spec.Taints)
	var kinds []string
	for _, c := range got.Status.Conditions {
		assert.Empty(t, c.Message)
		kinds = append(kinds, string(c.Type))
	}
	assert.Equal(t, []string{"Ready", "plimsoll.dev/MemoryContention", "plimsoll.dev/Disk"}, kinds)
	assert.Equal(t, map[string]string{"a": "1", "b": "2"}, only(map[string]string{"a": "1", "b": "2", "c": "3"}, "a", "b", "d"))
	full.Annotations = map[string]string{"other": "x"}
	got, err = trimNode(full)
	require.NoError(t, err)
	assert.Nil(t, got.Annotations)
	assert.Empty(t, got.Spec.Taints, "without a record none of them is ours")
}

func TestAgentCacheList(t *testing.T) {
	s := newAgentCache()
	a, b := made("a", 0), made("b", 0)
	a.Lease.Name, b.Lease.Name = "a", "b"
	assert.False(t, s.synced())
	require.NoError(t, s.nodes.Replace([]any{a.Node, b.Node}, ""))
	assert.False(t, s.synced(), "the Leases are not listed")
	require.NoError(t, s.leases.Replace([]any{a.Lease, b.Lease}, ""))
	assert.True(t, s.synced())
	require.Len(t, s.list(), 2)
	b.Lease.Namespace = lease.Namespace // as the API server has it
	require.NoError(t, s.leases.Replace([]any{a.Lease, b.Lease}, ""))
	require.NoError(t, s.leases.Delete(b.Lease))
	for _, is := range s.list() {
		assert.Equal(t, is.Name == "a", is.Lease != nil, is.Name)
	}
	require.NoError(t, s.leases.Replace([]any{b.Lease}, ""))
	for _, is := range s.list() {
		assert.NotNil(t, is.Node, is.Name)
		assert.Equal(t, is.Name == "b", is.Lease != nil, is.Name)
	}
	require.NoError(t, s.nodes.Replace([]any{b.Node}, ""))
	require.Len(t, s.list(), 1, "of a nothing is left")
	require.NoError(t, s.nodes.Delete(b.Node))
	require.Len(t, s.list(), 1)
	assert.Nil(t, s.list()[0].Node)
	assert.Error(t, s.nodes.Update(&corev1.Pod{}))
	require.Error(t, s.nodes.Replace([]any{&corev1.Pod{}}, ""))
	for len(s.wake) > 0 {
		<-s.wake
	}
	require.NoError(t, s.leases.Update(b.Lease))
	assert.Empty(t, s.wake, "a heartbeat waits for the next round")
	asking := b.Lease.DeepCopy()
	asking.Annotations = map[string]string{lease.EvictionsAnnotation: mustJSON(t, []lease.Request{request("p1")})}
	require.NoError(t, s.leases.Update(asking))
	assert.Len(t, s.wake, 1, "a request does not")
	half := newAgentCache()
	require.NoError(t, half.leases.Replace(nil, ""))
	assert.False(t, half.synced())
}

func TestAgentCacheRequestsFollowLease(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	s := newAgentCache()
	asks := func(second int, text string) (wake bool) {
		l := made("n", 0).Lease
		l.Annotations = map[string]string{lease.EvictionsAnnotation: text}
		return s.setLease("n", l, at(second))
	}
	s.setNode("n", made("n", 0).Node, at(0))
	assert.False(t, asks(0, `[]`), "it asks for none")
	text := mustJSON(t, []lease.Request{request("p1")})
	assert.True(t, asks(10, text))
	assert.False(t, asks(20, text), "it is known")
	assert.Equal(t, at(10), s.list()[0].RequestedAt)
	require.Len(t, s.list()[0].Carried.Requests, 1)
	asks(30, `odd`)
	require.Error(t, s.list()[0].ParseErr)
	s.setLease("n", nil, at(40))
	require.Len(t, s.list(), 1)
	assert.NoError(t, s.list()[0].ParseErr)
	assert.Empty(t, s.list()[0].Carried)
}
