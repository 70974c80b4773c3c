package agents

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const taintRecord = `[{"key":"plimsoll.dev/MemoryContention","effect":"NoSchedule","since":"2026-03-01T11:00:00Z"}]`

// made is an agent that was heard so long ago, of a pressed node.
func made(name string, silence time.Duration, change ...func(*Agent)) Agent {
	a := Agent{
		Name: name, LastHeartbeat: noon.Add(-silence), Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(lease.Micro(noon))}},
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "u", ResourceVersion: "7", Annotations: map[string]string{evict.TaintsAnnotation: taintRecord},
			Labels: map[string]string{corev1.LabelTopologyZone: "a"},
		}},
	}
	a.Node.Spec.Taints = []corev1.Taint{{Key: "plimsoll.dev/MemoryContention", Effect: corev1.TaintEffectNoSchedule}}
	a.Node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: "plimsoll.dev/MemoryContention", Status: corev1.ConditionTrue, Reason: "Hard", LastHeartbeatTime: metav1.NewTime(noon)},
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func kubelet(status corev1.ConditionStatus) func(*Agent) {
	return func(a *Agent) { a.Node.Status.Conditions[0].Status = status }
}

func silentAlready(a *Agent) {
	a.Node.Status.Conditions[1].Status, a.Node.Status.Conditions[1].Reason = corev1.ConditionUnknown, lease.ReasonSilent
}

func untainted(a *Agent)    { a.Node.Annotations, a.Node.Spec.Taints = nil, nil }
func noLease(a *Agent)      { a.Lease = nil }
func noRenewal(a *Agent)    { a.Lease = &coordinationv1.Lease{} }
func noConditions(a *Agent) { a.Node.Status.Conditions = a.Node.Status.Conditions[:1] }
func noNode(a *Agent)       { a.Node = nil }

func judge(m JudgeState, agents ...Agent) Judgement {
	return Judge(Observation{Time: noon, Settings: DefaultSettings(), Agents: agents, Previous: m})
}

func TestJudgeSilentAgent(t *testing.T) {
	for what, row := range map[string]struct {
		agent      Agent
		state      State
		mark, lift bool
		why        string
	}{
		"heard just now":                 {agent: made("n", 0), state: Alive},
		"two beats are missing":          {agent: made("n", 20*time.Second), state: Late},
		"a moment before the grace ends": {agent: made("n", 40*time.Second-1), state: Late},
		"the grace period is over":       {agent: made("n", 40*time.Second), state: Silent, mark: true, why: "stay for at least another 4m20s"},
		"it was marked":                  {agent: made("n", time.Minute, silentAlready), state: Silent, why: "stay for at least another 4m0s"},
		"its taints stayed long enough":  {agent: made("n", 5*time.Minute, silentAlready), state: Silent, lift: true, why: "no heartbeat for 5m0s"},
		"a moment less":                  {agent: made("n", 5*time.Minute-1, silentAlready), state: Silent, why: "another 0s"},
		"the kubelet is not ready":       {agent: made("n", time.Hour, kubelet(corev1.ConditionFalse)), state: Silent, mark: true, why: "Ready condition is False"},
		"the kubelet is silent, too":     {agent: made("n", time.Hour, kubelet(corev1.ConditionUnknown)), state: Silent, mark: true, why: "Ready condition is Unknown"},
		"nothing says that it is ready": {agent: made("n", time.Hour, func(a *Agent) {
			a.Node.Status.Conditions = a.Node.Status.Conditions[1:]
		}), state: Silent, mark: true, why: "Ready condition is Unknown"},
		"it has no taints":                 {agent: made("n", time.Hour, untainted), state: Silent, mark: true, why: "no taints"},
		"no Lease: the status is rare":     {agent: made("n", 5*time.Minute+39*time.Second, noLease), state: Late},
		"no Lease, before half of that":    {agent: made("n", 5*time.Minute+20*time.Second-1, noLease), state: Alive},
		"a Lease that is not renewed":      {agent: made("n", 5*time.Minute+39*time.Second, noRenewal), state: Late},
		"no Lease, and the status is late": {agent: made("n", 5*time.Minute+40*time.Second, noLease), state: Silent, mark: true, lift: true, why: "taints removed"},
	} {
		t.Run(what, func(t *testing.T) {
			j := judge(JudgeState{}, row.agent)
			require.Len(t, j.Agents, 1)
			a := j.Agents[0]
			assert.Equal(t, row.state, a.State)
			assert.Equal(t, row.mark, a.SetUnknown, "mark")
			assert.Equal(t, row.lift, a.RemoveTaints, "lift")
			assert.Contains(t, a.Why, row.why)
			_, said := j.Next.Silent["n"]
			assert.Equal(t, row.state == Silent, said)
		})
	}
}

func TestJudgeNodeWithoutAgentOrLease(t *testing.T) {
	bare := made("n", time.Hour, noLease, untainted, func(a *Agent) { a.Node.Status.Conditions = a.Node.Status.Conditions[:1] })
	assert.Empty(t, judge(JudgeState{}, bare, made("m", time.Hour, noNode)).Agents)
}

// some agents, of which the first so many were heard so long ago.
func some(n, quiet int, silence time.Duration) []Agent {
	var list []Agent
	for i := range n {
		a := made(fmt.Sprintf("n%03d", i), 0)
		if i < quiet {
			a.LastHeartbeat = noon.Add(-silence)
		}
		list = append(list, a)
	}
	return list
}

func TestFullDisruption(t *testing.T) {
	t.Run("before first mark", fullDisruptionBeforeFirstMark)
	t.Run("at share exactly", fullDisruptionAtShareExactly)
	t.Run("keeps agents late", fullDisruptionKeepsAgentsLate)
	t.Run("end restarts clocks", fullDisruptionEndRestartsClocks)
	t.Run("keeps silent agent", fullDisruptionKeepsSilentAgent)
	t.Run("of new leader", fullDisruptionOfNewLeader)
}

// Three of five agents were silent before the leader changed: they are no disruption of its own.
func fullDisruptionOfNewLeader(t *testing.T) {
	heard := func(a *Agent) { a.Heard = true }
	for what, row := range map[string]struct {
		silent []func(*Agent)
		blind  bool
	}{
		"an earlier leader has marked them":          {[]func(*Agent){silentAlready}, false},
		"nothing tells of it":                        {nil, true},
		"they were heard since":                      {[]func(*Agent){silentAlready, heard}, true},
		"without conditions, their kubelets are off": {[]func(*Agent){noConditions, kubelet(corev1.ConditionUnknown)}, false},
		"without conditions, heard since":            {[]func(*Agent){noConditions, kubelet(corev1.ConditionUnknown), heard}, true},
		"without conditions, their kubelets run":     {[]func(*Agent){noConditions}, true},
		"a kubelet that is off alone proves nothing": {[]func(*Agent){kubelet(corev1.ConditionUnknown)}, true},
	} {
		t.Run(what, func(t *testing.T) {
			agents := []Agent{made("a", time.Minute, row.silent...), made("b", time.Minute, row.silent...), made("c", time.Minute, row.silent...), made("d", 0), made("e", 0)}
			j := judge(JudgeState{}, agents...)
			assert.Equal(t, row.blind, j.FullDisruption)
			agents[3].LastHeartbeat = noon.Add(-time.Minute)
			assert.Equal(t, !row.blind, judge(j.Next, agents...).Agents[3].SetUnknown, "one of the other two is silent")
		})
	}
}

func TestAgentHeard(t *testing.T) {
	for what, row := range map[string]struct {
		then  func(*agentCache, Agent)
		heard bool
	}{
		"what was there before is no heartbeat": {func(*agentCache, Agent) {}, false},
		"nor is what others write": {func(s *agentCache, a Agent) {
			s.setNode("n", a.Node.DeepCopy(), noon)
			s.setLease("n", a.Lease.DeepCopy(), noon)
		}, false},
		"it renews": {func(s *agentCache, a Agent) {
			s.setLease("n", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(lease.Micro(noon.Add(time.Second)))}}, noon)
		}, true},
		"it writes its status": {func(s *agentCache, a Agent) {
			n := a.Node.DeepCopy()
			n.Status.Conditions[1].LastHeartbeatTime.Time = noon.Add(time.Second)
			s.setNode("n", n, noon)
		}, true},
		"the API server has a renewal": {func(s *agentCache, _ Agent) { s.recordHeartbeat("n", noon) }, true},
	} {
		s, a := newAgentCache(), made("n", 0)
		s.setNode("n", a.Node, noon)
		s.setLease("n", a.Lease, noon)
		row.then(s, a)
		assert.Equal(t, row.heard, s.list()[0].Heard, what)
	}
}

func fullDisruptionBeforeFirstMark(t *testing.T) {
	for what, row := range map[string]struct {
		of, quiet int
		silence   time.Duration
		blind     bool
		marked    int
	}{
		"more than the share":           {of: 100, quiet: 56, silence: time.Hour, blind: true},
		"the share and no more":         {of: 100, quiet: 55, silence: time.Hour, marked: 55},
		"at half the grace period":      {of: 100, quiet: 56, silence: 20 * time.Second, blind: true},
		"three of three":                {of: 3, quiet: 3, silence: time.Hour, blind: true},
		"two of two are no mass":        {of: 2, quiet: 2, silence: time.Hour, marked: 2},
		"the only one can be missed":    {of: 1, quiet: 1, silence: time.Hour, marked: 1},
		"a second before they are late": {of: 100, quiet: 100, silence: 19 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			j := judge(JudgeState{}, some(row.of, row.quiet, row.silence)...)
			assert.Equal(t, row.blind, j.FullDisruption)
			marked := 0
			for _, a := range j.Agents {
				if a.SetUnknown {
					marked++
				}
				assert.False(t, row.blind && a.RemoveTaints, "lifted")
			}
			assert.Equal(t, row.marked, marked)
		})
	}
}

func fullDisruptionAtShareExactly(t *testing.T) {
	s := DefaultSettings()
	s.MassSilence = 0.5
	at := func(quiet int) bool {
		return Judge(Observation{Time: noon, Settings: s, Agents: some(10, quiet, time.Hour)}).FullDisruption
	}
	assert.False(t, at(5))
	assert.True(t, at(6))
}

func fullDisruptionKeepsAgentsLate(t *testing.T) {
	agents := some(100, 56, time.Hour)
	j := judge(JudgeState{}, agents...)
	for range 3 {
		require.True(t, j.FullDisruption)
		assert.Zero(t, j.Next.DisruptionEnded, "it has not ended")
		assert.Equal(t, Late, j.Agents[0].State, "silent for an hour, which is not believed")
		assert.Contains(t, j.Agents[0].Why, "nothing is changed")
		j = judge(j.Next, agents...)
	}
}

func TestJudgeAgentBackFromSilence(t *testing.T) {
	agents := some(100, 1, time.Hour)
	j := judge(JudgeState{}, agents...)
	require.Equal(t, 100, j.Total)
	assert.Equal(t, 99, judge(j.Next, agents...).Total, "its silence is known")
	agents[0].LastHeartbeat = noon
	assert.Equal(t, 100, judge(j.Next, agents...).Total)
}

func TestJudgeLeaseOfSilentAgentDeleted(t *testing.T) {
	a := made("n", time.Minute)
	j := judge(JudgeState{}, a)
	require.True(t, j.Agents[0].Declare)
	noLease(&a)
	j = judge(j.Next, a)
	assert.Equal(t, Silent, j.Agents[0].State, "that is no heartbeat")
	assert.False(t, j.Agents[0].Declare, "it was")
	a.LastHeartbeat = noon
	assert.Equal(t, Alive, judge(j.Next, a).Agents[0].State)
}

// lease.enabled was set to false: the Lease stays, and its renewTime was removed.
func TestJudgeAgentWithoutRenewals(t *testing.T) {
	s := newAgentCache()
	a := made("n", 0)
	a.Lease.Annotations = map[string]string{
		lease.NodeAnnotation: `{"pressure":{"disk":"hard"}}`, lease.ContentionAnnotation: lease.NodeContention{Version: "v1"}.Encode(),
		lease.EvictionsAnnotation: "{", lease.AnswersAnnotation: mustJSON(t, []lease.Answer{accepted("p1", "o", 0)}),
	}
	trimmed := func(renewed *metav1.MicroTime) *coordinationv1.Lease {
		l, err := trimLease(&coordinationv1.Lease{ObjectMeta: a.Lease.ObjectMeta, Spec: coordinationv1.LeaseSpec{RenewTime: renewed}})
		require.NoError(t, err)
		return l
	}
	s.setLease("n", trimmed(a.Lease.Spec.RenewTime), noon)
	assert.Equal(t, "hard", s.list()[0].Carried.Report.Pressure["disk"])
	assert.Error(t, s.list()[0].ParseErr)
	var m JudgeState
	for after := time.Duration(0); after <= 30*time.Minute; after += 30 * time.Second {
		now := noon.Add(after)
		if after%(270*time.Second) == 0 {
			n := a.Node.DeepCopy()
			n.Status.Conditions[1].LastHeartbeatTime.Time = now
			s.setNode("n", n, now)
			s.setLease("n", trimmed(nil), now)
		}
		j := Judge(Observation{Time: now, Settings: DefaultSettings(), Agents: s.list(), Previous: m})
		require.Len(t, j.Agents, 1)
		assert.False(t, j.Agents[0].SetUnknown, after)
		assert.Zero(t, j.Agents[0].LastRenewal, "requests in it are obsolete")
		assert.Zero(t, j.Agents[0].Carried.Report, "and so is its report")
		assert.Nil(t, j.Agents[0].Contention)
		assert.NoError(t, j.Agents[0].ParseErr)
		assert.Len(t, j.Agents[0].Carried.Answers, 1, "who was evicted counts")
		m = j.Next
	}
}

func fullDisruptionEndRestartsClocks(t *testing.T) {
	agents := some(100, 56, time.Hour)
	j := judge(JudgeState{}, agents...)
	require.True(t, j.FullDisruption)
	for i := range 20 { // these are back, the others not yet
		agents[i].LastHeartbeat = noon.Add(time.Second)
	}
	at := func(d time.Duration, m JudgeState) Judgement {
		for i := range agents {
			if i < 20 || i >= 56 {
				agents[i].LastHeartbeat = noon.Add(d)
			}
		}
		return Judge(Observation{Time: noon.Add(d), Settings: DefaultSettings(), Agents: agents, Previous: m})
	}
	j = at(time.Second, j.Next)
	assert.False(t, j.FullDisruption)
	count := func() (n int) {
		for _, a := range j.Agents {
			if a.SetUnknown {
				n++
			}
		}
		return n
	}
	assert.Zero(t, count(), "nobody is marked in the moment in which it ends")
	j = at(40*time.Second, j.Next)
	assert.Zero(t, count(), "39 s of the new clocks")
	j = at(41*time.Second, j.Next)
	assert.Equal(t, 36, count())
	assert.False(t, j.Agents[20].RemoveTaints)
	for _, row := range []struct {
		after time.Duration
		lift  bool
	}{{42 * time.Second, false}, {5 * time.Minute, false}, {5*time.Minute + time.Second, true}} {
		j = at(row.after, j.Next)
		assert.Equal(t, row.lift, j.Agents[20].RemoveTaints, "the time of the disruption does not count for the taints either: %s", row.after)
	}
}

func fullDisruptionKeepsSilentAgent(t *testing.T) {
	agents := some(100, 1, time.Hour)
	j := judge(JudgeState{}, agents...)
	require.Contains(t, j.Next.Silent, "n000")
	for i := range agents {
		agents[i].LastHeartbeat = noon.Add(-time.Hour)
	}
	j = judge(j.Next, agents...)
	assert.True(t, j.FullDisruption)
	assert.Equal(t, 99, j.Total)
	assert.Equal(t, Silent, j.Agents[0].State)
	assert.False(t, j.Agents[0].RemoveTaints)
	for i := range agents[1:] {
		agents[i+1].LastHeartbeat = noon
	}
	j = judge(j.Next, agents...)
	assert.False(t, j.FullDisruption)
	j = judge(j.Next, agents...)
	assert.True(t, j.Agents[0].RemoveTaints, "an hour is long enough")
	agents[0].LastHeartbeat = noon
	assert.NotContains(t, judge(j.Next, agents...).Next.Silent, "n000")
}

// The watch is late: the API server has what the cache does not have yet.
func TestSilenceConfirmedBeforeItIsTold(t *testing.T) {
	renewed := func(s *fixture) { s.leases["n"].Spec.RenewTime = new(lease.Micro(noon.Add(time.Hour))) }
	notReady := func(s *fixture) { kubelet(corev1.ConditionFalse)(&Agent{Node: s.nodes["n"]}) }
	for what, row := range map[string]struct {
		node    Agent
		late    func(*fixture)
		silence time.Duration
		marked  int
		told    []string
	}{
		"it is silent":                     {made("n", 0), nil, time.Minute, 1, []string{ReasonSilent}},
		"it renewed":                       {made("n", 0), renewed, time.Minute, 0, nil},
		"without conditions":               {made("n", 0, noConditions), nil, time.Minute, 0, []string{ReasonSilent}},
		"without any, it renewed":          {made("n", 0, noConditions), renewed, time.Minute, 0, nil},
		"its taints are removed":           {made("n", 0, silentAlready), nil, 5 * time.Minute, 1, []string{ReasonTaintsRemoved}},
		"they stay, for it renewed":        {made("n", 0, silentAlready), renewed, 5 * time.Minute, 0, []string{ReasonHeartbeatResumed}},
		"for its Node is not ready":        {made("n", 0, silentAlready), notReady, 5 * time.Minute, 0, nil},
		"both at once":                     {made("n", 0, noConditions), nil, 5 * time.Minute, 1, []string{ReasonSilent, ReasonTaintsRemoved}},
		"neither, for it renewed":          {made("n", 0, noConditions), renewed, 5 * time.Minute, 0, nil},
		"a new Lease of one that had none": {made("n", 0), func(s *fixture) { assert.NoError(s.t, s.r.cache.leases.Delete(s.leases["n"])) }, time.Hour, 0, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				s.node("n")
				s.nodes["n"] = row.node.Node
				require.NoError(t, s.r.cache.nodes.Update(s.nodes["n"].DeepCopy()))
				if row.late != nil {
					row.late(s)
				}
				time.Sleep(row.silence)
				s.r.round(t.Context())
				if row.late != nil { // the watch is still late
					time.Sleep(time.Second)
					s.r.round(t.Context())
				}
				assert.Len(t, s.marked, row.marked)
				assert.Equal(t, row.told, s.told)
			})
		})
	}
}
