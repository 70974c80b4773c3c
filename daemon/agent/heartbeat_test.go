package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// beatsOf an agent that keeps its Node ready.
func beatsOf(t *testing.T) (own, node *heartbeat) {
	t.Helper()
	cl := &cluster{node: "n1", status: &lease.Status{}, requester: &evictionRequester{}, log: slog.New(slog.DiscardHandler)}
	c := config.Default().Lease
	c.Target = config.LeaseOfNode
	require.NoError(t, cl.addHeartbeats(c, &rest.Config{Host: "https://127.0.0.1:1"}))
	return cl.heartbeat, cl.nodeLease
}

func ownBeat(t *testing.T) *heartbeat {
	t.Helper()
	own, _ := beatsOf(t)
	return own
}

func TestTheLeaseCarriesTheHighestLevelOfEachResource(t *testing.T) {
	h := ownBeat(t)
	assert.Empty(t, h.annotations(), "nothing was judged yet")
	h.setLevels(&plugins.Levels{Verdicts: []plugins.Verdict{
		{Plugin: "a", Resource: plugins.Disk, Level: plugins.Soft},
		{Plugin: "b", Resource: plugins.Disk, Level: plugins.Hard},
		{Plugin: "c", Resource: plugins.Memory, Level: plugins.Soft},
		{Plugin: "d", Resource: plugins.NetworkIO},
		{Plugin: "e", Level: plugins.Hard},
	}}, true)
	assert.Equal(t, map[string]string{lease.NodeAnnotation: `{"pressure":{"disk":"hard","memory":"soft"}}`}, h.annotations())
	h.setLevels(&plugins.Levels{}, false)
	assert.Equal(t, map[string]string{lease.NodeAnnotation: `{}`}, h.annotations())
}

func TestTheLeaseCarriesHowManyDataMoversTheNodeTakes(t *testing.T) {
	h := ownBeat(t)
	h.setBudget(&vgdp.Pressure{Budget: new(2)})
	assert.Empty(t, h.annotations(), "nothing was judged yet")
	h.setLevels(&plugins.Levels{}, false)
	assert.Equal(t, `{"budget":2}`, h.annotations()[lease.NodeAnnotation])
	h.setBudget(&vgdp.Pressure{Budget: new(1), HoldUntil: time.Date(2026, 3, 1, 12, 0, 0, 7000, time.UTC)})
	assert.Equal(t, `{"budget":1,"holdUntil":"2026-03-01T12:00:00.000007Z"}`, h.annotations()[lease.NodeAnnotation])
	read, err := lease.ReadContent(h.annotations())
	require.NoError(t, err)
	assert.Equal(t, 1, *read.Report.DataMoverBudget)
	h.setBudget(nil)
	assert.Equal(t, `{}`, h.annotations()[lease.NodeAnnotation])
}

func TestTheLeaseCarriesWhatOuterPluginsSay(t *testing.T) {
	h := ownBeat(t)
	h.setLevels(&plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "a", Resource: plugins.Disk, Level: plugins.Soft}}}, false)
	h.setOuter([]plugins.Verdict{
		{Plugin: "files", Scope: "node", Level: plugins.Soft},
		{Plugin: "files", Scope: plugins.ScopeNamed, Level: plugins.Hard},
		{Plugin: "calm", Scope: "node"},
	})
	assert.Equal(t, `{"pressure":{"disk":"soft"},"plugins":{"files":"hard"}}`, h.annotations()[lease.NodeAnnotation])
	h.setOuter(nil)
	assert.Equal(t, `{"pressure":{"disk":"soft"}}`, h.annotations()[lease.NodeAnnotation])
}

// Their owners decide what these rules see: three tenants' pods must not brake the
// evictions of a cluster, nor hold its data mover loads.
func TestRulesAboutSingleWorkloadsAreNoPressureOfTheNode(t *testing.T) {
	h := ownBeat(t)
	h.setLevels(&plugins.Levels{Verdicts: []plugins.Verdict{
		{Plugin: "rss-overuse", Resource: plugins.Memory, Level: plugins.Hard, PerWorkload: true},
		{Plugin: "memory-stall", Resource: plugins.Memory, Level: plugins.Soft},
		{Plugin: "cpu-suppression", Resource: plugins.CPU, Level: plugins.Hard, PerWorkload: true},
	}}, false)
	assert.Equal(t, `{"pressure":{"memory":"soft"}}`, h.annotations()[lease.NodeAnnotation])
}

func TestHoweverManyOuterPluginsThereAreTheLeaseStaysSmall(t *testing.T) {
	var said []plugins.Verdict
	for i := range 64 { // as many as the agent asks, with the longest names
		said = append(said, plugins.Verdict{Plugin: fmt.Sprintf("%0128d", i), Level: plugins.Soft})
	}
	said[63].Level = plugins.Hard
	h := ownBeat(t)
	h.setLevels(&plugins.Levels{}, false)
	h.setOuter(said)
	assert.Less(t, len(h.annotations()[lease.NodeAnnotation]), 1200)
	read, err := lease.ReadContent(h.annotations())
	require.NoError(t, err)
	assert.Len(t, read.Report.Plugins, 8)
	assert.Equal(t, "hard", read.Report.Plugins[said[63].Plugin], "the worst first")
	assert.Contains(t, read.Report.Plugins, said[0].Plugin)
}

func TestABeatWaitsForNobodyWhoWritesOfIt(t *testing.T) {
	h := ownBeat(t)
	for range 1000 { // nobody reads the log
		h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Rejected, Err: errors.New("no")})
	}
	assert.EqualValues(t, 1000, h.view().Outcomes[lease.Rejected])
}

func TestReadinessSaysHowTheLeaseIs(t *testing.T) {
	h := ownBeat(t)
	require.EqualError(t, h.ready(), "lease: not renewed yet")
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Rejected, Err: errors.New("why")})
	require.EqualError(t, h.ready(), "lease: not renewed yet: why")
	h.recordAttempt(lease.Attempt{Time: time.Now().Add(-41 * time.Second), Outcome: lease.Renewed})
	require.ErrorContains(t, h.ready(), "lease: not renewed for 41s")
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Renewed})
	require.NoError(t, h.ready())
	h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Lost, Err: errors.New("why")})
	require.NoError(t, h.ready(), "one that was lost is no reason")
}

func TestReadyIsSaidOnlyOfANodeThatThisAgentKeeps(t *testing.T) {
	list := []lease.Condition{{Type: "p/Mem"}}
	closed := func(h *heartbeat) bool {
		select {
		case <-h.holderDecided():
			return true
		default:
			return false
		}
	}
	var none *heartbeat
	assert.Equal(t, list, none.withReady(list))
	assert.True(t, closed(none))

	own, nodes := beatsOf(t)
	told := 0
	nodes.nodeChanged = func() { told++ }
	assert.Equal(t, "plimsoll-node-lease n1", own.beat.Namespace+" "+own.beat.Holder)
	assert.Equal(t, "kube-node-lease plimsoll-agent/n1", nodes.beat.Namespace+" "+nodes.beat.Holder)
	assert.True(t, nodes.beat.Exclusive)
	assert.Nil(t, nodes.beat.Annotations, "what a controller reads stands in the agent's own")
	assert.NotNil(t, own.beat.Annotations)
	own.recordAttempt(lease.Attempt{Outcome: lease.Renewed})
	assert.Equal(t, list, own.withReady(list))
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Lost})
	assert.False(t, closed(nodes), "an agent before this one may have said it")
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Held})
	assert.True(t, closed(nodes))
	assert.Equal(t, list, nodes.withReady(list))
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Renewed})
	assert.Equal(t, 1, told)
	with := nodes.withReady(list)
	require.Len(t, with, 2)
	assert.Equal(t, "Ready", with[1].Type)
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Lost})
	assert.Len(t, nodes.withReady(list), 2, "what is lost once is ours still")
	nodes.recordAttempt(lease.Attempt{Outcome: lease.Held})
	assert.Equal(t, list, nodes.withReady(list))
}
