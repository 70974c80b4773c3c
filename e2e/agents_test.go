package e2e_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// The controller counts all agents of its cluster, so these have one to
// themselves; and their agents are simulated, and write as nobody may where
// agents are bound to their nodes.
func TestControllerAndAgents(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Without: []string{cluster.Scheduler}, Graces: noKubelets()})
	for name, test := range map[string]func(*testing.T, *cluster.Cluster){
		"the controller grants what it may and says why not":                           controllerApproves,
		"the clusters budget lets one go in a small cluster":                           limitOfSmallCluster,
		"a tainted zone grants no more and a brownout evicts nobody":                   taintedZoneAndBrownout,
		"a controller that is killed evicts no second pod":                             controllerKilledEvictsOnce,
		"the conditions of a silent agent become unknown and come back":                silentAgentConditions,
		"the taints of a silent agent go later and not while its kubelet is not ready": silentAgentTaints,
		"when most agents fall silent nothing is marked and it says so":                fullDisruption,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func silentAgentConditions(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 3, quickFleet)
	dead := b.names[0]
	b.beat(b.names[1:]...)
	stop := b.beat(dead)
	a := b.leads()
	assert.Equal(t, "True Hard", b.condition(dead))
	stop()
	clock := deadline.Start()
	took := b.become(dead, silently, patience)
	t.Logf("Unknown %s after the last beat; the grace period is 4s", took.Round(10*time.Millisecond))
	assert.Less(t, took, clock.Stretch(4*time.Second+2*2*time.Second), "promised: grace + 2 s")
	for _, alive := range b.names[1:] {
		assert.Equal(t, "True Hard", b.condition(alive))
	}
	eventually(t, "it is counted", func() error { return wanted(shown(a).Agents[fleets.Silent], 1) })
	assert.Contains(t, b.said(dead, fleets.ReasonSilent), "no heartbeat for")

	b.beat(dead)
	b.status(dead, "False", "Clear")
	eventually(t, "it is heard again", func() error { return wanted(shown(a).Agents[fleets.Alive], 3) })
	assert.Contains(t, b.said(dead, fleets.ReasonHeartbeatResumed), "heartbeat resumed")
	assert.Equal(t, "False Clear", b.condition(dead), "its agent's word counts again, and nobody else's is left")
}

// readiness of a Node, as its kubelet says it.
func (b *beats) kubelet(name string, ready corev1.ConditionStatus) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Simulated"}]}}`, ready)
	_, err := b.c.Client.CoreV1().Nodes().Patch(b.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	require.NoError(b.t, err)
}

func silentAgentTaints(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 5, quickFleet)
	dead, dying := b.names[0], b.names[1]
	b.beat(b.names[2:]...)
	for _, name := range b.names[:3] {
		b.taint(name)
	}
	_, err := b.c.Client.CoreV1().Nodes().Patch(t.Context(), dead, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/taints/-","value":{"key":"plimsoll.dev/mine","effect":"PreferNoSchedule"}}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	b.kubelet(dying, corev1.ConditionFalse)
	first := b.leads()
	start := time.Now()
	b.become(dead, silently, patience)
	b.become(dying, silently, patience)
	first.end(syscall.SIGKILL)
	next := time.Now()
	second := b.leads()
	gone := within(t, patience, "the taint goes", func() error { return wanted(fmt.Sprint(b.ours(dead)), "[plimsoll.dev/mine]") })
	t.Logf("the taint went %s after the second leader was ready, %s after the first one was; it stays for 8s", gone.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond))
	assert.GreaterOrEqual(t, time.Since(next), 8*time.Second, "a new leader starts its clocks anew")
	assert.Contains(t, b.said(dead, fleets.ReasonTaintsRemoved), "no heartbeat for")
	assert.Empty(t, b.node(dead).Annotations["plimsoll.dev/taints"])

	eventually(t, "it says why the other's stay", func() error {
		for _, q := range shown(second).Missing {
			if q.Node == dying && q.Tainted && q.Reason == "taints stay while the node's Ready condition is False" {
				return nil
			}
		}
		return fmt.Errorf("%+v", shown(second).Missing)
	})
	assert.Contains(t, b.ours(dying), "plimsoll.dev/MemoryContention")
	b.kubelet(dying, corev1.ConditionTrue)
	eventually(t, "it goes when the kubelet is ready", func() error { return wanted(len(b.ours(dying)), 0) })
	assert.Len(t, b.ours(b.names[2]), 1, "who is heard keeps its own")
}

func fullDisruption(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 5, quickFleet)
	b.taint(b.names[0])
	stop := b.beat(b.names...)
	a := b.leads()
	stop()
	began := time.Now()
	eventually(t, "it is blind", func() error { return wanted(metric(a, "plimsoll_agents_full_disruption"), "1") })
	t.Logf("it knows that it is blind after %s; the grace period is 4s", time.Since(began).Round(10*time.Millisecond))
	within(t, patience, "the time for conditions and taints is over", func() error {
		for _, name := range b.names {
			require.Equal(t, "True Hard", b.condition(name))
		}
		require.Len(t, b.ours(b.names[0]), 1)
		if time.Since(began) < 10*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Contains(t, a.stderr.String(), "full disruption: too many agents are late or silent; changing no condition or taint")

	b.beat(b.names[1:]...)
	eventually(t, "it sees again", func() error { return wanted(metric(a, "plimsoll_agents_full_disruption"), "0") })
	assert.Equal(t, "True Hard", b.condition(b.names[0]), "the clocks start anew")
	b.become(b.names[0], silently, patience)
}
