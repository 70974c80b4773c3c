package e2e_test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// toldWithin is how soon a controller says why it cannot work: a request for the
// Lease ends after 5 s without an answer, and at once with one.
const toldWithin = 5 * time.Second

// controllerOf is a controller with this kubeconfig; it listens.
func controllerOf(t *testing.T, kubeconfig, config string) (*agent, *deadline.Clock) {
	t.Helper()
	file := write(t, filepath.Join(t.TempDir(), "controller.yaml"), "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\n"+config)
	a := &agent{t: t, ended: make(chan struct{})}
	a.cmd = exec.Command(binary, "controller", "--config", file, "--kubeconfig", kubeconfig, "--web.listen-address", "127.0.0.1:0")
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	clock := deadline.Start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller said:\n%s", a.stderr.String())
		}
	})
	return a.start(), clock
}

// tells holds log, page, readiness and metric against what a person needs to know.
func (a *agent) tells(clock *deadline.Clock, kind, why string) {
	a.t.Helper()
	eventually(a.t, "it says why it cannot work", func() error {
		if !strings.Contains(a.stderr.String(), why) {
			return fmt.Errorf("no %q in\n%s", why, a.stderr.String())
		}
		return nil
	})
	a.t.Logf("%s: told after %s (bound %s)", kind, clock.Passed().Round(time.Millisecond), toldWithin)
	assert.Less(a.t, clock.Elapsed(), 2*toldWithin)
	told := map[string]bool{}
	for line := range strings.Lines(a.stderr.String()) {
		if _, problem, is := strings.Cut(line, "the controller cannot work"); is {
			assert.False(a.t, told[problem], "each is told once: "+problem)
			told[problem] = true
		}
	}
	assert.Contains(a.t, a.stderr.String(), "todo=")
	assert.Equal(a.t, "1", metric(a, `plimsoll_api_server_problem{problem="`+kind+`"}`))
	status, body, err := a.get("/-/ready")
	require.NoError(a.t, err)
	assert.Equal(a.t, 503, status)
	assert.Contains(a.t, body, why)
	page := a.mustGet("/")
	for word := range strings.FieldsSeq(why) {
		assert.Contains(a.t, page, strings.Trim(word, `"\`), "the page has it")
	}
}

func TestControllerProblem(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T) string { // a port at which nothing listens any more
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	deaf := func(t *testing.T) string { // it takes connections and never answers
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().String()
	}
	for name, c := range map[string]struct {
		server func(*testing.T) string
		why    string
	}{
		"no API server":                      {refused, "connection refused"},
		"an API server that does not answer": {deaf, "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeconfig := write(t, filepath.Join(t.TempDir(), "kubeconfig"), fmt.Sprintf(
				`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://%s"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`, c.server(t)))
			a, clock := controllerOf(t, kubeconfig, "")
			a.tells(clock, "unreachable", c.why)
		})
	}
}

// noVelero leaves those of the cluster to the controllers of other tests: one whose queue
// is disabled hands back what another's holds.
const noVelero = "velero: [{namespace: nobody}]\n"

// mayLead is the kubeconfig of a controller's account.
func mayLead(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC))
	kubeconfig, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(t, err)
	return kubeconfig
}

// controllerCannotLead is [TestControllerProblem] with an API server.
func controllerCannotLead(t *testing.T, c *cluster.Cluster) {
	kubeconfig := mayLead(t, c)
	t.Run("a wrong token", func(t *testing.T) {
		wrong := rest.AnonymousClientConfig(c.Admin)
		wrong.BearerToken = "wrong"
		kubeconfig, err := c.WriteKubeconfig("wrong", wrong)
		require.NoError(t, err)
		a, clock := controllerOf(t, kubeconfig, "")
		a.tells(clock, "unauthenticated", "Unauthorized")
		a.end(syscall.SIGTERM)
	})
	t.Run("no right on the Lease", func(t *testing.T) {
		_, err := c.Client.CoreV1().ServiceAccounts("plimsoll-system").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		kubeconfig, err := c.ServiceAccount(t.Context(), "plimsoll-system", "stranger", cluster.BoundTo{})
		require.NoError(t, err)
		a, clock := controllerOf(t, kubeconfig, "")
		a.tells(clock, "forbidden", "system:serviceaccount:plimsoll-system:stranger")
		a.end(syscall.SIGTERM)
	})
	t.Run("no namespace", func(t *testing.T) {
		a, clock := controllerOf(t, c.Kubeconfig, "election: {namespace: nowhere}\n")
		a.tells(clock, "no-namespace", `nowhere`)
		a.end(syscall.SIGTERM)
	})
	t.Run("no Velero yet", func(t *testing.T) { leadsWithoutVelero(t, c, kubeconfig) })
	t.Run("another leader", func(t *testing.T) { anotherLeads(t, c, kubeconfig) })
}

// leadsWithoutVelero: there is nothing to admit, which is no reason not to be ready.
func leadsWithoutVelero(t *testing.T, c *cluster.Cluster, kubeconfig string) {
	a, _ := controllerOf(t, kubeconfig, "vgdp: {enabled: true}\n")
	eventually(t, "it leads and is ready", func() error {
		status, body, err := a.get("/-/ready")
		if err == nil && (status != 200 || metric(a, "plimsoll_leader") != "1") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	a.end(syscall.SIGTERM)
	require.NoError(t, c.Client.CoordinationV1().Leases("plimsoll-system").Delete(t.Context(), "plimsoll-controller", metav1.DeleteOptions{}))
}

func anotherLeads(t *testing.T, c *cluster.Cluster, kubeconfig string) {
	other, seconds, now := "other_1", int32(3600), metav1.NowMicro()
	_, err := c.Client.CoordinationV1().Leases("plimsoll-system").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-controller"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &other, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	a, clock := controllerOf(t, kubeconfig, "")
	eventually(t, "it says who leads", func() error {
		if !strings.Contains(a.stderr.String(), "this replica is on standby: another one is the leader") || !strings.Contains(a.stderr.String(), "leader=other_1") {
			return fmt.Errorf("%s", a.stderr.String())
		}
		return nil
	})
	t.Logf("told after %s (bound %s)", clock.Passed().Round(time.Millisecond), toldWithin)
	assert.Less(t, clock.Elapsed(), 2*toldWithin)
	assert.Contains(t, a.mustGet("/"), "the leader is other_1")
	assert.NotContains(t, a.stderr.String(), "cannot work")
	status, _, err := a.get("/-/ready")
	require.NoError(t, err)
	assert.Equal(t, 200, status)
	a.end(syscall.SIGTERM)
	require.NoError(t, c.Client.CoordinationV1().Leases("plimsoll-system").Delete(t.Context(), "plimsoll-controller", metav1.DeleteOptions{}))
}

func leaderLosesServer(t *testing.T, o *outage) {
	a, _ := controllerOf(t, mayLead(t, o.c), noVelero)
	leads := func() error {
		status, body, err := a.get("/-/ready")
		if err == nil && (status != 200 || metric(a, "plimsoll_leader") != "1") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	}
	eventually(t, "it leads", leads)
	assert.NotContains(t, a.stderr.String(), "cannot work", "a healthy start says nothing")
	o.begins(t, nothing)
	clock := deadline.Start()
	eventually(t, "it says that it cannot reach it", func() error {
		if metric(a, `plimsoll_api_server_problem{problem="unreachable"}`) != "1" || !strings.Contains(a.stderr.String(), "cannot reach the API server") {
			return fmt.Errorf("%s", a.stderr.String())
		}
		return nil
	})
	t.Logf("told after %s (bound %s)", clock.Passed().Round(time.Millisecond), toldWithin)
	assert.Less(t, clock.Elapsed(), 2*toldWithin)
	eventually(t, "it leads no more, and is not ready", func() error {
		status, body, err := a.get("/-/ready")
		if err == nil && (status != 503 || !strings.Contains(body, "cannot reach the API server") || metric(a, "plimsoll_leader") != "0") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	assert.Contains(t, a.mustGet("/"), "no leader is known")
	o.ends(t)
	eventually(t, "it leads again", leads)
	for _, kind := range []string{"unreachable", "unauthenticated", "no-namespace", "forbidden", "failing"} {
		eventually(t, kind+" has ended", func() error {
			if is := metric(a, `plimsoll_api_server_problem{problem="`+kind+`"}`); is != "0" {
				return fmt.Errorf("%s\n%s", is, a.stderr.String())
			}
			return nil
		})
	}
	assert.Contains(t, a.stderr.String(), "a problem of the controller has ended")
}
