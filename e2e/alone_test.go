package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

const otherAgent = "another agent runs on this node, and two would double every rate limit: keep one"

// launch it, and end it with the test.
func (a *agent) launch() {
	a.t.Helper()
	require.NoError(a.t, a.begin())
	go func() {
		_ = a.cmd.Wait() // the status is in ProcessState
		close(a.ended)
	}()
	a.t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it may have ended
		<-a.ended
	})
}

// refuses to run, or to go on.
func (a *agent) refuses(why string) {
	a.t.Helper()
	select {
	case <-a.ended:
	case <-deadline.After(patience):
		a.t.Fatalf("it did not end: %s", a.stderr.String())
	}
	assert.Equal(a.t, 1, a.cmd.ProcessState.ExitCode())
	assert.Contains(a.t, a.stderr.String(), why)
}

// Real agents, such as a package beside the chart.
func TestOneAgentPerNode(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t, cluster.Options{})
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	const node = "one-agent-runs"
	_, err := c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	kubeconfig, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	config := configFile(t, fmt.Sprintf("tick: 200ms\nwindow: 1s\nkubernetes: {kubeconfig: %q, node: %s}\nlease: {interval: 2s, duration: 8s}\n", kubeconfig, node))
	prepared := func(state string) *agent { return prepareAgent(t, "--config", config, "--state.dir", state) }
	w := &world{t: t, c: c, node: node}

	chart, pack := t.TempDir(), t.TempDir()
	first := prepared(chart).start()
	w.renewed(lease.Namespace, 2)
	t.Log("of one state directory the second one is refused at once")
	same := prepared(chart)
	same.launch()
	same.refuses(otherAgent)
	assert.Contains(t, same.stderr.String(), chart)
	t.Log("with a state of its own it is refused as soon as the first one renews its Lease")
	second := prepared(pack)
	second.launch()
	second.refuses(otherAgent)
	assert.Contains(t, second.stderr.String(), "lease: renewed by agent ")
	l := w.renewed(lease.Namespace, 2)
	require.NotNil(t, l)
	owner := l.Annotations["plimsoll.dev/agent"]
	assert.NotEmpty(t, owner)

	t.Log("after the first one has ended it runs")
	require.Zero(t, first.end(syscall.SIGTERM))
	third := prepared(pack).start()
	eventually(t, "the lease is its own", func() error {
		l, err := w.leaseOf(lease.Namespace)
		if err == nil && l.Annotations["plimsoll.dev/agent"] == owner {
			err = fmt.Errorf("agent %s", owner)
		}
		return err
	})
	t.Log("of two that start at once one is left")
	require.Zero(t, third.end(syscall.SIGTERM))
	require.NoError(t, c.Client.CoordinationV1().Leases(lease.Namespace).Delete(t.Context(), node, metav1.DeleteOptions{}))
	one, two := prepared(t.TempDir()), prepared(t.TempDir())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("one said:\n%s\nthe other one:\n%s", one.stderr.String(), two.stderr.String())
		}
	})
	one.launch()
	two.launch()
	ended := one
	eventually(t, "one of the two ends", func() error {
		select {
		case <-one.ended:
			return nil
		case <-two.ended:
			ended = two
			return nil
		default:
			return fmt.Errorf("both run")
		}
	})
	ended.refuses(otherAgent)
	w.renewed(lease.Namespace, 3)
}

// The control plane is shared: this election is one of its own, and the
// controllers do nothing.
func TestControllerHungIsReplaced(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t, cluster.Options{})
	const namespace = "election-of-the-stuck"
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := write(t, filepath.Join(t.TempDir(), "controller.yaml"), "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: nobody}]\n"+
		"election: {namespace: "+namespace+", duration: 5s}\nagents: {enabled: false}\n")
	armed := filepath.Join(t.TempDir(), "stuck")
	b := &beats{t: t, c: c, config: config}
	controller := func(arm string) *agent {
		a := b.controllerAs(c.Kubeconfig)
		a.cmd.Path, a.cmd.Env = hooked(t), append(os.Environ(), "PLIMSOLL_STUCK="+arm)
		return a
	}
	leads := func(a *agent) func() error {
		return func() error { return wanted(metric(a, "plimsoll_leader"), "1") }
	}
	first := controller(armed).start()
	eventually(t, "it leads", leads(first))
	second := controller("").start()
	eventually(t, "the other knows the leader", func() error {
		status, body, err := second.get("/-/ready")
		if err == nil && status != 200 {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	assert.Equal(t, "0", metric(second, "plimsoll_leader"))
	began := time.Now()
	write(t, armed, "")
	first.refuses("a loop is stuck; exiting so that another replica can lead: ")
	t.Logf("it ended after %s", time.Since(began).Round(100*time.Millisecond))
	eventually(t, "the other one leads", leads(second))
	t.Logf("the other one leads after %s", time.Since(began).Round(100*time.Millisecond))
	assert.Zero(t, second.end(syscall.SIGTERM))
}
