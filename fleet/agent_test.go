package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
)

func bare(a *Agent) {
	noLease(a)
	untainted(a)
	a.Node.Status.Conditions = a.Node.Status.Conditions[:1]
}

func TestANodeHasAnAgentByItsLeaseItsTaintsOrItsConditions(t *testing.T) {
	for what, row := range map[string]struct {
		agent  Agent
		member bool
	}{
		"none of them":   {made("n", 0, bare), false},
		"its Lease":      {made("n", 0, func(a *Agent) { l := a.Lease; bare(a); a.Lease = l }), true},
		"its taints":     {made("n", 0, func(a *Agent) { of := a.Node.Annotations; bare(a); a.Node.Annotations = of }), true},
		"its conditions": {made("n", 0, func(a *Agent) { of := a.Node.Status.Conditions; bare(a); a.Node.Status.Conditions = of }), true},
		"no Node":        {made("n", 0, noNode), false},
	} {
		assert.Equal(t, row.member, row.agent.member(), what)
	}
}

func TestAnAgentIsMarkedWhereAllItsConditionsSayThatItIsSilent(t *testing.T) {
	for what, row := range map[string]struct {
		agent  Agent
		marked bool
	}{
		"they do":        {made("n", 0, silentAlready), true},
		"one does not":   {made("n", 0), false},
		"it has none":    {made("n", 0, bare), false},
		"beside another": {made("n", 0, silentAlready, func(a *Agent) { a.Node.Status.Conditions[1].Reason = "Hard" }), false},
	} {
		assert.Equal(t, row.marked, row.agent.marked(), what)
	}
}

func TestANodeIsDownByItsReadyConditionAlone(t *testing.T) {
	calm := func(a *Agent) { a.Node.Status.Conditions[1].Status = corev1.ConditionFalse }
	for what, row := range map[string]struct {
		agent Agent
		down  bool
	}{
		"ready, and without pressure":     {made("n", 0, calm), false},
		"not ready, and without pressure": {made("n", 0, calm, kubelet(corev1.ConditionFalse)), true},
		"not ready, and under pressure":   {made("n", 0, kubelet(corev1.ConditionUnknown)), true},
	} {
		assert.Equal(t, row.down, row.agent.down(), what)
	}
}

// Others write to Leases and Nodes, too.
func TestOnlyARenewalAndAStatusThatItsAgentWroteAreSignsOfLife(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	s := newSight()
	a := made("n", 0)
	heard := func(what string, want time.Time) {
		t.Helper()
		all := s.all()
		require.Len(t, all, 1, what)
		assert.Equal(t, want, all[0].Heard, what)
	}
	renewed := func(second int) *Agent {
		b := made("n", 0)
		b.Lease.Spec.RenewTime = new(lease.Micro(at(second)))
		return &b
	}
	s.seeNode("n", a.Node, at(0))
	heard("the Node is seen", at(0))
	s.seeLease("n", renewed(1).Lease, at(1))
	heard("the Lease is seen", at(1))
	s.seeLease("n", renewed(1).Lease, at(2))
	heard("another wrote to it", at(1))
	assert.Zero(t, s.all()[0].Renewed, "no renewal was seen")
	s.seeLease("n", renewed(3).Lease, at(3))
	heard("it was renewed", at(3))
	assert.Equal(t, at(3), s.all()[0].Renewed)
	s.seeNode("n", made("n", 0, kubelet(corev1.ConditionFalse)).Node, at(4))
	heard("the kubelet wrote its status", at(3))
	wrote := made("n", 0)
	wrote.Node.Status.Conditions[1].LastHeartbeatTime.Time = at(5)
	s.seeNode("n", wrote.Node, at(5))
	heard("the agent wrote its status", at(5))
	another := wrote.Node.DeepCopy()
	another.UID = "another"
	s.seeNode("n", another, at(6))
	heard("it is another Node", at(6))
	s.seeNode("n", nil, at(7))
	heard("the Node is gone", at(6))
	s.seeLease("n", nil, at(8))
	assert.Empty(t, s.all(), "and the Lease")
}
