package agent

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents/client"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// beatsOf an agent that keeps its Node ready.
func beatsOf(t *testing.T) (own, node *heartbeat) {
	t.Helper()
	cl := &cluster{node: "n1", status: &lease.Status{}, requester: &client.EvictionRequester{}, log: slog.New(slog.DiscardHandler)}
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

func TestUnjudgedResources(t *testing.T) {
	s := &view.State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{Verdicts: []plugins.Verdict{
		{Resource: plugins.NetworkIO, Scope: "eth1", Absent: "no speed"}, {Resource: plugins.NetworkIO, Scope: "eth0", Absent: "no speed"}, {Resource: plugins.CPU}, {Absent: "of an outer plugin"},
	}}}
	assert.Equal(t, []string{"memory", "network"}, unjudgedResources(s))
}

func TestHeartbeatDoesNotWaitForLog(t *testing.T) {
	h := ownBeat(t)
	for range 1000 { // nobody reads the log
		h.recordAttempt(lease.Attempt{Time: time.Now(), Outcome: lease.Rejected, Err: errors.New("no")})
	}
	assert.EqualValues(t, 1000, h.view().Outcomes[lease.Rejected])
}

func TestReadinessOfLease(t *testing.T) {
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

func TestReadyConditionOnlyOfOwnLease(t *testing.T) {
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

// A controller may have made the conditions Unknown meanwhile.
func TestHeartbeatGapRereadsNode(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			up, told := time.Minute, 0
			c := config.Default().Lease
			c.Interval = interval
			h, err := newHeartbeat(c, "n1", &rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			h.nodeChanged, h.beat.Uptime = func() { told++ }, func() time.Duration { return up }
			renew := func(after time.Duration) int {
				up += after
				h.recordAttempt(lease.Attempt{Outcome: lease.Renewed})
				return told
			}
			assert.Equal(t, 0, renew(0), "the first says nothing")
			assert.Equal(t, 0, renew(interval*3/2))
			assert.Equal(t, 1, renew(interval*3/2+1))
			up += interval
			h.recordAttempt(lease.Attempt{Outcome: lease.Rejected})
			assert.Equal(t, 2, renew(interval), "what was tried is not heard")
			assert.Equal(t, 2, renew(interval))
		})
	}
}
