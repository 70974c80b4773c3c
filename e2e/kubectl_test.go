package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // as the product
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // as the product
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// forwards is a kubelet that only forwards ports, to the loopback address of this
// machine, as a real one does to a pod's.
type forwards struct {
	*httptest.Server

	t *testing.T
}

func newForwards(t *testing.T) *forwards {
	f := &forwards{t: t}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *forwards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/portForward/plimsoll-system/") {
		http.NotFound(w, r)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	var failures httpstream.Stream
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			failures = s
			return nil
		}
		go func() {
			<-replied
			join(s, failures)
		}()
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

func join(data, failures httpstream.Stream) {
	port := data.Headers().Get(corev1.PortHeader)
	to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		fmt.Fprintf(failures, "error forwarding port %s: %v", port, err)
		_, _ = failures.Close(), data.Close()
		return
	}
	go func() {
		_, _ = io.Copy(to, data)
		_ = to.Close()
	}()
	_, _ = io.Copy(data, to)
	_, _ = failures.Close(), data.Close()
}

// pluginFile is the program by the name that kubectl looks for.
func pluginFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "kubectl-plimsoll")
	require.NoError(t, os.Symlink(binary, name))
	return name
}

// plugin runs the program as kubectl does.
func plugin(t *testing.T) func(args ...string) (status int, stdout, stderr string) {
	name := pluginFile(t)
	return func(args ...string) (int, string, string) { return runProgram(t, name, args...) }
}

// asKubelet makes the Node one whose kubelet is f.
func (f *forwards) asKubelet(c *cluster.Cluster, node string) {
	f.t.Helper()
	u, err := url.Parse(f.URL)
	require.NoError(f.t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(f.t, err)
	patch := fmt.Sprintf(`{"status":{"addresses":[{"$patch":"replace"},{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, u.Hostname(), port)
	_, err = c.Client.CoreV1().Nodes().Patch(f.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(f.t, err)
}

// agentPod is the pod of an agent that listens on the port.
func agentPod(t *testing.T, c *cluster.Cluster, node string, port int32) {
	t.Helper()
	pods := c.Client.CoreV1().Pods("plimsoll-system")
	made, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-agent-" + node, Labels: map[string]string{"app.kubernetes.io/name": "plimsoll", "app.kubernetes.io/component": "agent"}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "plimsoll-agent", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "agent", Image: "none", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: port}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	made.Status.Phase = corev1.PodRunning
	_, err = pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// reports makes the Lease of a SIMULATED AGENT that renewed it so long ago.
func reports(t *testing.T, c *cluster.Cluster, node string, ago time.Duration, annotations map[string]string) {
	t.Helper()
	at := lease.Micro(time.Now().Add(-ago))
	_, err := c.Client.CoordinationV1().Leases(lease.Namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: annotations},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(1800)), RenewTime: &at},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// First, while nothing of Plimsoll is in the cluster, what release does with requests.
func TestKubectlPlimsoll(t *testing.T) {
	t.Parallel()
	const node, pressed = "worker-1", "worker-2"
	o := withoutKubelets()
	o.Args = evictionRequests()
	c := cluster.New(t, o)
	t.Run("release withdraws eviction requests", func(t *testing.T) { releaseEvictionRequests(t, c) })
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC, deploy.ControllerRBAC, deploy.RBACViewer))
	_, err := c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	newForwards(t).asKubelet(c, node)
	agentsFile, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	kubectl := plugin(t)
	viewer := userFile(t, c, "viewer", "viewers")
	for _, namespace := range []string{"plimsoll-system", "plimsoll-node-lease"} {
		_, err := c.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewers"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "plimsoll-viewer"},
			Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "viewers"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	t.Run("without an agent it says what to do", func(t *testing.T) {
		status, _, stderr := kubectl("who", "--kubeconfig", viewer)
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, "plimsoll: who: no agent has a heartbeat in this cluster: install Plimsoll")
		_, _, stderr = kubectl("top", node, "--once", "--kubeconfig", viewer)
		assert.Contains(t, stderr, `plimsoll: top: no agent can be asked: no agent's pod is on node "worker-1"`)
	})

	asNode := []string{"--kubeconfig", agentsFile, "--node", node, "--state.dir", filepath.Join(t.TempDir(), "state"), "--config", configFile(t, "lease: {interval: 1s, duration: 30s}\neviction: {round: 1s}\n")}
	a := prepareAgent(t, asNode...).start()
	_, text, _ := strings.Cut(a.url, "127.0.0.1:")
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	agentPod(t, c, node, int32(port)) //nolint:gosec // a port
	reports(t, c, pressed, 0, map[string]string{
		lease.NodeAnnotation: `{"pressure":{"disk":"hard"}}`,
		lease.ContentionAnnotation: lease.NodeContention{Version: "v9", Resources: []lease.ResourceContention{{
			Resource: "disk", Device: "sda", Coverage: new(0.94),
			Culprits:  []lease.Workload{{Kind: "pod", Name: "batch/copy-1", Ratio: 0.71, Throttled: 20}, {Kind: "pod", Name: "shop/db-0", Ratio: 0.2}},
			Sufferers: []lease.Workload{{Kind: "pod", Name: "shop/db-0", Ratio: 0.38}},
		}}}.Encode(),
	})
	reports(t, c, "worker-3", time.Hour, nil)
	reports(t, c, "worker-4", 0, nil)

	t.Run("nodes lists each agent", func(t *testing.T) {
		eventually(t, "the agent reports", func() error {
			status, stdout, stderr := kubectl("nodes", "-o", "wide", "--kubeconfig", viewer)
			if status != 0 || !regexp.MustCompile(`(?m)^worker-1 +ok +\S.* ago +\S.* +none +- +\(devel\)`).MatchString(stdout) {
				return fmt.Errorf("%s%s", stdout, stderr)
			}
			t.Log(stdout)
			assert.Regexp(t, `(?m)^worker-2 +ok +\S.* ago +disk hard +disk sda +none +- +v9`, stdout)
			assert.Regexp(t, `(?m)^worker-3 +silent +1 h.* ago +unknown +unknown `, stdout)
			assert.Regexp(t, `(?m)^worker-4 +ok +\S.* ago +unknown +unknown .*the agent does not report contention`, stdout)
			return nil
		})
	})
	t.Run("who has a row for each contention, and what is not known", func(t *testing.T) {
		status, stdout, stderr := kubectl("who", "--kubeconfig", viewer)
		assert.Zero(t, status)
		assert.Regexp(t, `(?m)^worker-2 +disk sda +shop/db-0 +38\.0 % +batch/copy-1 +71\.0 %, throttled to 20 %$`, stdout)
		assert.Contains(t, stdout, "of 4 nodes")
		assert.Contains(t, stdout, "Nothing is known of 1 node: the agent is silent (kubectl -n plimsoll-system get pods -o wide): worker-3")
		assert.Contains(t, stdout, "the agent does not report contention (an older version: upgrade it; or its rounds are stuck: plimsoll top NODE): worker-4")
		assert.Contains(t, stderr, "plimsoll: no Lease of a controller in plimsoll-system (election.namespace, election.enabled?); without a controller no requested eviction is approved")
		_, stdout, _ = kubectl("who", "-n", "other", "--kubeconfig", viewer)
		assert.Contains(t, stdout, "0 contentions of namespace other")
		assert.NotContains(t, stdout, "shop/db-0")
		_, stdout, _ = kubectl("who", "-o", "wide", "--kubeconfig", viewer)
		assert.Regexp(t, `COVERAGE +ALSO WAIT +ALSO USE IT\n`, stdout)
		assert.Regexp(t, `(?m)^worker-2 .* 94\.0 % +- +shop/db-0 20\.0 %$`, stdout)
		t.Logf("%s%s", stderr, stdout)
		_, stdout, _ = kubectl("who", "-n", "shop", "-o", "json", "--kubeconfig", viewer)
		var who struct{ Contentions []struct{ Node string } }
		require.NoError(t, json.Unmarshal([]byte(stdout), &who))
		assert.Len(t, who.Contentions, 1)
		_, stdout, _ = kubectl("who", "-o", "yaml", "--kubeconfig", viewer)
		assert.Contains(t, stdout, "  node: worker-2\n")
	})
	t.Run("top, doctor and explain ask the agent of a node", func(t *testing.T) {
		status, stdout, stderr := kubectl("top", node, "--once", "--kubeconfig", viewer)
		assert.Zero(t, status, stderr)
		assert.Contains(t, stdout, "Plimsoll  worker-1")
		status, stdout, stderr = kubectl("doctor", node, "-o", "json", "--kubeconfig", viewer)
		assert.Contains(t, stdout, `"check": "one agent"`, "%d %s", status, stderr)
		assert.Contains(t, stdout, "the agent uses ")
		_, stdout, _ = kubectl("doctor", node, "--kubeconfig", viewer)
		t.Log(stdout)
		_, stdout, stderr = kubectl("explain", "eviction", "--node", node, "--kubeconfig", viewer)
		assert.Contains(t, stdout+stderr, "decision")
		assert.NotContains(t, stderr, "only the Events tell")
	})
	t.Run("explain finds the node of a pod", func(t *testing.T) {
		status, _, stderr := kubectl("explain", "eviction", "-n", "shop", "orders", "--kubeconfig", c.Kubeconfig)
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, "pod shop/orders does not exist, and no agent has an Event about it")
	})
	t.Run("who has no right is told which", func(t *testing.T) {
		stranger := userFile(t, c, "stranger")
		for _, args := range [][]string{{"who"}, {"nodes"}, {"top", node, "--once"}, {"doctor", node}} {
			status, _, stderr := kubectl(append(args, "--kubeconfig", stranger)...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "forbidden")
			assert.Contains(t, stderr, "bind the ClusterRole plimsoll-viewer", args)
		}
	})
	t.Run("a kubeconfig and a context are found as by kubectl", func(t *testing.T) {
		home, name := t.TempDir(), pluginFile(t)
		with := func(kubeconfig string, args ...string) (status int, stdout, stderr string) {
			return runProgram(t, "env", append([]string{"HOME=" + home, "KUBECONFIG=" + kubeconfig, name}, args...)...)
		}
		status, _, stderr := with("", "nodes")
		assert.Equal(t, 2, status)
		assert.Equal(t, "plimsoll: nodes: no cluster to ask: there is no ~/.kube/config; set $KUBECONFIG or --kubeconfig\n", stderr)
		second := filepath.Join(t.TempDir(), "missing") + ":" + viewer
		status, _, stderr = with(second, "nodes")
		assert.Zero(t, status, stderr)
		status, _, stderr = with(second, "nodes", "--context", "nosuch")
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, `--context "nosuch": no such context; there is: `)
		_, _, stderr = with("/dev/zero", "nodes")
		assert.Contains(t, stderr, "read /dev/zero: not a regular file")
	})
	t.Run("top in a terminal", func(t *testing.T) {
		p := openPane(t, 100, 30, pluginFile(t), "top", node, "--kubeconfig", viewer)
		t.Log(p.shows("Plimsoll  worker-1", "[workloads ", "? keys  q quits", "\n> "))
		p.press("Enter")
		p.shows("USES", "WAITS", "Esc back")
		p.press("Escape")
		p.shows("[workloads ")
		p.press("Tab")
		p.shows("[disks ")
		p.tmux("resize-window", "-x", "60", "-y", "12")
		p.becomes("12 lines", func(screen string) bool {
			return strings.Count(screen, "\n") == 12 && strings.Contains(screen, "[disks ")
		})
		p.press("q")
		p.restored(0)
	})
	t.Run("an agent that is away is told apart", func(t *testing.T) {
		a.end(os.Interrupt)
		status, _, stderr := kubectl("top", node, "--once", "--kubeconfig", viewer)
		assert.Equal(t, 1, status)
		assert.Regexp(t, `^plimsoll: top: .*no agent can be asked: error forwarding port \d+: .*connection refused\n$`, stderr)
	})
	t.Run("top in a terminal finds an agent that starts again", func(t *testing.T) {
		again := append(asNode, "--web.listen-address", "127.0.0.1:"+text)
		first := prepareAgent(t, again...).start()
		p := openPane(t, 100, 30, pluginFile(t), "top", node, "--kubeconfig", viewer)
		p.shows("Plimsoll  worker-1", "[workloads ")
		first.end(os.Interrupt)
		t.Log(p.shows("Plimsoll  worker-1", "No new values for ", "connection refused"))
		prepareAgent(t, again...).start()
		p.becomes("its values", func(screen string) bool { return !strings.Contains(screen, "No new values") })
		p.press("C-c")
		p.restored(0)
	})
	t.Run("backups", func(t *testing.T) { kubectlBackups(t, c, node, viewer) })
}

// userFile is the kubeconfig of a user.
func userFile(t *testing.T, c *cluster.Cluster, name string, groups ...string) string {
	t.Helper()
	how, err := c.User(name, groups...)
	require.NoError(t, err)
	file, err := c.WriteKubeconfig(name, how)
	require.NoError(t, err)
	_, err = clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	return file
}
