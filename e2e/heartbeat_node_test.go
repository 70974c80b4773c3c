package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

const (
	// nodeLook is how often the node lifecycle controller looks.
	nodeLook      = time.Second
	nodeNamespace = "kube-node-lease"
)

// bare is a Node without a kubelet, and its agent.
type bare struct {
	*world
	kubeconfig string
	grace      time.Duration // the node lifecycle controller's
}

func newBare(t *testing.T, c *cluster.Cluster, node string, grace time.Duration) *bare {
	t.Helper()
	_, err := c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	b := &bare{world: &world{t: t, c: c, node: node}, grace: grace}
	b.kubeconfig, err = c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	b.config = configFile(t, fmt.Sprintf(`
tick: 200ms
window: 1s
kubernetes: {kubeconfig: %q, node: %s}
state: {dir: %q}
lease: {target: node, interval: 1s, duration: %s}
eviction: {round: 1s, dryRun: false, via: controller}
`, b.kubeconfig, node, t.TempDir(), b.lease()))
	return b
}

// lease is how long the agent's Lease is good for.
func (b *bare) lease() time.Duration { return b.grace - 2*time.Second }

func (b *bare) begin(more ...string) {
	b.agent = prepareAgent(b.t, append([]string{"--config", b.config}, more...)...).start()
}

// is waits until the Node is Ready, or not, and says how long that took.
func (b *bare) is(status corev1.ConditionStatus, bound time.Duration) time.Duration {
	b.t.Helper()
	return within(b.t, bound, "Ready is "+string(status), func() error {
		if got := b.readiness(); got.Status != status {
			return fmt.Errorf("%s %s\n%s", got.Status, got.Reason, b.agent.stderr.String())
		}
		return nil
	})
}

func (b *bare) readiness() corev1.NodeCondition {
	for _, c := range b.getNode().Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// Nodes without a kubelet, and Kubernetes' own node lifecycle controller.
func TestNodeWithoutKubelet(t *testing.T) {
	t.Parallel()
	grace := deadline.Scale(6 * time.Second)
	c := cluster.New(t, cluster.Options{
		Graces: cluster.Graces{NodeMonitorPeriod: nodeLook, NodeMonitor: grace, NodeStartup: grace}, Without: []string{cluster.Scheduler},
	})
	status, out, _ := run(t, "doctor", "--kubeconfig", c.Kubeconfig)
	assert.Equal(t, 1, status)
	assert.Regexp(t, `FAIL +heartbeat +no namespace plimsoll-node-lease: apply deploy/rbac.yaml`, out)
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	require.NoError(t, c.Apply(t.Context(), deploy.RBACLeaseNode))
	require.NoError(t, c.Apply(t.Context(), deploy.Identity))
	doctorSees(t, c)
	t.Run("has an agent that the controller hears", func(t *testing.T) { heardByTheController(t, newBare(t, c, "heard", grace)) })
	t.Run("is kept ready by the heartbeat alone, and brought back", func(t *testing.T) { keptReady(t, newBare(t, c, "bare", grace)) })
	t.Run("is left to whoever else renews its lease", func(t *testing.T) { leftAlone(t, newBare(t, c, "taken", grace)) })
}

// doctorSees what is installed in a real API server, and what is not.
func doctorSees(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	says := func(lines ...string) {
		t.Helper()
		_, out, _ := run(t, "doctor", "--kubeconfig", c.Kubeconfig)
		for _, line := range lines {
			assert.Regexp(t, line, out)
		}
	}
	says(`PASS +admission policies +all 5`, `WARN +priority level +2 of 2 missing: PriorityLevelConfiguration plimsoll-heartbeats, FlowSchema`, `PASS +gate +not installed`, `PASS +data movers +none: Velero is not installed`)
	require.NoError(t, c.Apply(t.Context(), deploy.Heartbeats, deploy.GateCRD, deploy.Gate))
	says(`PASS +priority level`, `WARN +gate +6 of 6 missing: MutatingAdmissionPolicy plimsoll-release-hidden, `)
	require.NoError(t, c.Apply(t.Context(), deploy.GateMutating))
	says(`PASS +gate +all 13 objects`)
	require.NoError(t, c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), "plimsoll-admit", metav1.DeleteOptions{}))
	says(`FAIL +gate +1 of 7 missing: ValidatingAdmissionPolicyBinding plimsoll-admit: `)
}

// Its Lease stands where every agent's does; what becomes of the Node is the
// node lifecycle controller's to say.
func heardByTheController(t *testing.T, b *bare) {
	fleet := newBeats(t, b.c, 0, "")
	write(t, fleet.config, "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: nobody}]\nagents: {monitorGracePeriod: 4s, taintRemovalDelay: 8s}\n") // nobody else is to lead
	controller := fleet.leads()
	plugin := t.TempDir()
	serveRaw(t, plugin)
	b.begin("--plugins.dir", plugin)
	eventually(t, "it is heard", func() error { return wanted(shown(controller).Agents[fleets.Alive], 1) })
	b.renewed(lease.Namespace, 3)
	own, err := b.leaseOf(lease.Namespace)
	require.NoError(t, err)
	assert.Contains(t, own.Annotations, lease.NodeAnnotation)
	nodes, err := b.leaseOf(nodeNamespace)
	require.NoError(t, err)
	assert.Empty(t, nodes.Annotations)
	b.is(corev1.ConditionTrue, patience)
	eventually(t, "it has conditions", func() error {
		if c := fleet.condition(b.node); c == "" || c == silently {
			return errors.New(c)
		}
		return nil
	})
	var report fleets.Report
	eventually(t, "what its outer plugin says is seen", func() error {
		report = shown(controller)
		return wanted(report.EvictionLimit.PluginNodes["raw"], 1)
	})
	require.NotEmpty(t, report.Pressed)
	assert.Equal(t, "hard", report.Pressed[0].Plugins["raw"])
	assert.NotContains(t, controller.mustGet("/metrics"), `plugin="raw"`, "one node's word is no label")
	require.NoError(t, b.agent.cmd.Process.Kill())
	clock := deadline.Start()
	took := fleet.become(b.node, silently, patience)
	t.Logf("Unknown %s after kill -9; the grace period is 4s", took.Round(10*time.Millisecond))
	assert.Less(t, took, clock.Stretch(4*time.Second+2*2*time.Second), "promised: grace + 2 s, and a status alone had 5 min more")
	b.begin()
	eventually(t, "it is heard again", func() error { return wanted(shown(controller).Agents[fleets.Alive], 1) })
}

func keptReady(t *testing.T, b *bare) {
	_, err := b.c.Client.CoreV1().Nodes().Patch(t.Context(), b.node, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err, "a kubelet's would be left to it")
	begun := time.Now()
	b.begin()
	eventually(t, "the agent says that it is ready", func() error {
		if r := b.readiness(); r.Reason != "AgentBeats" {
			return errors.New(r.Reason)
		}
		return nil
	})
	since, length := b.readiness().LastTransitionTime, 2*b.grace
	if os.Getenv("PLIMSOLL_LONG") != "" {
		length = 5 * time.Minute
	}
	for end := time.Now().Add(length); time.Now().Before(end); sleep(t.Context(), 200*time.Millisecond) {
		require.Equal(t, corev1.ConditionTrue, b.readiness().Status)
	}
	assert.Equal(t, since, b.readiness().LastTransitionTime)
	// Where nothing changes, Ready and the other conditions are each written anew after four minutes or more.
	reports := b.agent.metric(`plimsoll_node_status_writes_total{reason="report"}`)
	assert.LessOrEqual(t, reports, 2*math.Floor(time.Since(begun).Minutes()/4), "the Lease alone was written")

	require.NoError(t, b.agent.cmd.Process.Kill())
	t.Logf("Unknown %s after kill -9", b.is(corev1.ConditionUnknown, 2*(b.grace+nodeLook)+5*time.Second).Round(time.Millisecond))
	b.begin()
	t.Logf("Ready %s after the start of another", b.is(corev1.ConditionTrue, patience).Round(time.Millisecond))
}

func leftAlone(t *testing.T, b *bare) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	kubelet := make(chan struct{})
	go func() {
		defer close(kubelet)
		b.beatAsKubelet(ctx)
	}()
	b.renewed(nodeNamespace, 1)
	b.begin()
	eventually(t, "the agent is not ready, and says why", func() error {
		status, body, err := b.agent.get("/-/ready")
		if err == nil && (status != 503 || !strings.Contains(body, "held by the-kubelet")) {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	status, out, _ := run(t, "doctor", "--config", b.config)
	assert.Equal(t, 1, status)
	assert.Regexp(t, `FAIL +heartbeat +kube-node-lease/taken is held by "the-kubelet", renewed \d+s ago: a kubelet renews it`, out)
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); sleep(t.Context(), 100*time.Millisecond) {
		l, err := b.leaseOf(nodeNamespace)
		require.NoError(t, err)
		require.Equal(t, "the-kubelet", *l.Spec.HolderIdentity)
		require.Equal(t, "KubeletReady", b.readiness().Reason)
	}
	stop()
	<-kubelet
	took := within(t, patience, "the agent takes over", func() error {
		l, err := b.leaseOf(nodeNamespace)
		if err == nil && *l.Spec.HolderIdentity != "plimsoll-agent/"+b.node {
			err = errors.New(*l.Spec.HolderIdentity)
		}
		return err
	})
	assert.GreaterOrEqual(t, took, b.lease()-time.Second, "not before the other's Lease has ended")
	l, err := b.leaseOf(nodeNamespace)
	require.NoError(t, err)
	assert.EqualValues(t, 1, *l.Spec.LeaseTransitions)

	again, stopAgain := context.WithCancel(t.Context())
	defer stopAgain()
	kubelet = make(chan struct{})
	go func() {
		defer close(kubelet)
		b.beatAsKubelet(again)
	}()
	eventually(t, "a kubelet that comes is made way for", func() error {
		status, body, err := b.agent.get("/-/ready")
		if err == nil && !strings.Contains(body, "held by the-kubelet") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	stopAgain()
	<-kubelet
}

// beatAsKubelet takes the Lease and renews it as a kubelet does, twice a second.
func (b *bare) beatAsKubelet(ctx context.Context) {
	leases := b.c.Client.CoordinationV1().Leases(nodeNamespace)
	for ; ctx.Err() == nil; sleep(ctx, 500*time.Millisecond) {
		body := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},`+
			`"spec":{"holderIdentity":"the-kubelet","leaseDurationSeconds":%.0f,"renewTime":%q}}`, b.node, b.lease().Seconds(), time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := leases.Patch(ctx, b.node, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "kubelet", Force: new(true)})
		if ctx.Err() == nil {
			assert.NoError(b.t, err)
		}
	}
}
