package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// beats are SIMULATED AGENTS of a real control plane: they renew their Leases
// and write their conditions and taints as an agent does, and judge nothing.
type beats struct {
	t      *testing.T
	c      *cluster.Cluster
	prefix string
	names  []string
	config string
	every  time.Duration // a simulated agent's interval: a quarter of the grace period, as an agent's own
}

// quickFleet has the periods of production divided by ten.
const quickFleet = "monitorGracePeriod: 4s, taintRemovalDelay: 8s"

// noKubelets: the simulated nodes stay Ready though no kubelet beats for them,
// however long a busy machine takes.
func noKubelets() cluster.Graces {
	return cluster.Graces{NodeMonitor: time.Hour, NodeStartup: time.Hour}
}

// newBeats makes nodes whose agents have a condition that is True. Where the
// settings say nothing of silence its periods are those of production, as the
// election's always are: on a busy machine a tenth may pass without a word.
func newBeats(t *testing.T, c *cluster.Cluster, n int, settings string) *beats {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC))
	b := &beats{t: t, c: c, prefix: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())), every: 10 * time.Second}
	if settings == quickFleet {
		b.every = time.Second
	}
	b.prefix = b.prefix[max(0, len(b.prefix)-30):]
	b.config = write(t, filepath.Join(t.TempDir(), "controller.yaml"),
		"apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: nobody}]\nagents: {"+settings+"}\n")
	for i := range n {
		b.add(fmt.Sprintf("n%d-%s", i, b.prefix))
	}
	return b
}

// add a node with an agent that has said that it is pressed.
func (b *beats) add(name string) {
	b.t.Helper()
	node, err := b.c.AddNode(b.t.Context(), name, nil)
	require.NoError(b.t, err)
	b.names = append(b.names, name)
	b.t.Cleanup(func() {
		ctx := contextWithoutCancel(b.t)
		require.NoError(b.t, b.c.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		err := b.c.Client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		require.NoError(b.t, gone(err))
	})
	now := lease.Micro(time.Now())
	_, err = b.c.Client.CoordinationV1().Leases(lease.Namespace).Create(b.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
	}, metav1.CreateOptions{})
	require.NoError(b.t, err)
	b.status(name, corev1.ConditionTrue, "Hard")
}

// taint a Node as its agent does.
func (b *beats) taint(name string) {
	b.t.Helper()
	_, err := b.tainter(name).Apply(b.t.Context(), nil, []corev1.Taint{{Key: "plimsoll.dev/MemoryContention", Effect: corev1.TaintEffectNoSchedule}})
	require.NoError(b.t, err)
}

// press says in the Lease of a node that a resource is at a level there.
func (b *beats) press(name, resource, level string) {
	b.t.Helper()
	text, err := json.Marshal(lease.NodeReport{Pressure: map[string]string{resource: level}})
	require.NoError(b.t, err)
	require.NoError(b.t, b.renew(b.t.Context(), name, map[string]string{lease.NodeAnnotation: string(text)}))
}

func (b *beats) label(node, key, value string) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	_, err := b.c.Client.CoreV1().Nodes().Patch(b.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(b.t, err)
}

// gone: the garbage collector was first.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// status is written as the agent's status loop does.
func (b *beats) status(name string, status corev1.ConditionStatus, reason string) {
	b.t.Helper()
	now := metav1.Now()
	_, err := b.c.Client.CoreV1().Nodes().ApplyStatus(b.t.Context(), applycorev1.Node(name).WithStatus(applycorev1.NodeStatus().WithConditions(
		applycorev1.NodeCondition().WithType("plimsoll.dev/MemoryContention").WithStatus(status).WithReason(reason).WithMessage("simulated").
			WithLastHeartbeatTime(now).WithLastTransitionTime(now))), metav1.ApplyOptions{FieldManager: "plimsoll-agent", Force: true})
	require.NoError(b.t, err)
}

// renew one Lease, with annotations if there are any.
func (b *beats) renew(ctx context.Context, name string, annotations map[string]string) error {
	meta := map[string]any{}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	body, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"renewTime": lease.Micro(time.Now())}})
	if err != nil {
		return err
	}
	_, err = b.c.Client.CoordinationV1().Leases(lease.Namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "plimsoll-agent"})
	return err
}

// beat of some agents until the test ends or until it is told to.
func (b *beats) beat(names ...string) (stop func()) {
	b.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(b.t))
	var beating sync.WaitGroup
	for some := range slices.Chunk(names, 10) { // on a busy machine one after the other would be silent by its turn
		beating.Go(func() { b.beatOn(ctx, some) })
	}
	stop = func() { end(); beating.Wait() }
	b.t.Cleanup(stop)
	return stop
}

// beatOn lets agents beat, one after the other, until ctx ends.
func (b *beats) beatOn(ctx context.Context, names []string) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		for _, name := range names {
			if err := b.renew(ctx, name, nil); err != nil && ctx.Err() == nil {
				b.t.Errorf("beat of %s: %v", name, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// controller is the built program, as its service account.
func (b *beats) controller() *agent {
	b.t.Helper()
	kubeconfig, err := b.c.ServiceAccount(b.t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(b.t, err)
	return b.controllerAs(kubeconfig)
}

func (b *beats) controllerAs(kubeconfig string) *agent {
	a := &agent{t: b.t, ended: make(chan struct{})}
	a.cmd = exec.Command(binary, "controller", "--config", b.config, "--kubeconfig", kubeconfig, "--web.listen-address", "127.0.0.1:0", "--log.level", "debug")
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("the controller said:\n%s", a.stderr.String())
		}
	})
	return a
}

// leads starts one and waits until it knows the fleet. That the Lease of one that
// was killed ends is not waited for.
func (b *beats) leads() *agent {
	b.t.Helper()
	require.NoError(b.t, gone(b.c.Client.CoordinationV1().Leases("plimsoll-system").Delete(b.t.Context(), "plimsoll-controller", metav1.DeleteOptions{})))
	a := b.controller().start()
	eventually(b.t, "the controller is ready and leads", func() error {
		leads := metric(a, "plimsoll_leader") // asked first: who does not lead is ready without a look
		status, body, err := a.get("/-/ready")
		if err == nil && (status != 200 || leads != "1") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	return a
}

func (b *beats) tainter(name string) *kube.Tainter {
	return &kube.Tainter{Nodes: b.c.Client.CoreV1(), Node: name, Log: slog.New(slog.DiscardHandler)}
}

func (b *beats) node(name string) *corev1.Node {
	b.t.Helper()
	node, err := b.c.Client.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	return node
}

// condition of ours on a Node, as "Unknown AgentSilent".
func (b *beats) condition(name string) string {
	b.t.Helper()
	for _, c := range b.node(name).Status.Conditions {
		if lease.IsOurs(c.Type) {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

const silently = "Unknown " + lease.ReasonSilent

// become waits until the condition is so.
func (b *beats) become(name, condition string, d time.Duration) time.Duration {
	b.t.Helper()
	return within(b.t, d, name+" is "+condition, func() error {
		if is := b.condition(name); is != condition {
			return fmt.Errorf("it is %q", is)
		}
		return nil
	})
}

// ours are the taints of ours that a Node carries.
func (b *beats) ours(name string) (keys []string) {
	b.t.Helper()
	for _, t := range b.node(name).Spec.Taints {
		if strings.HasPrefix(t.Key, "plimsoll.dev/") {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// said waits for an Event of a Node.
func (b *beats) said(name, reason string) string {
	b.t.Helper()
	return eventOf(b.t, b.c, metav1.NamespaceDefault, name, reason)
}

// eventOf waits for an Event of an object, and is its message.
func eventOf(t *testing.T, c *cluster.Cluster, namespace, name, reason string) (text string) {
	t.Helper()
	eventually(t, reason+" of "+name, func() error {
		list, err := c.Client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("no such Event")
		}
		text = list.Items[0].Message
		return nil
	})
	return text
}

func wanted[T comparable](is, want T) error {
	if is != want {
		return fmt.Errorf("it is %v and not %v", is, want)
	}
	return nil
}

// shown is /api/v1/agents.
func shown(a *agent) (r fleets.Report) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/agents")), &r))
	return r
}
