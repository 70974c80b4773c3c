package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// weather is a STAND-IN for the kernel's files on memory, so that a test has a
// shortage when it wants one and not before. The rest of the files are copies
// of this host's; the pods' cgroups and processes are real.
type weather struct {
	dir             string
	pressing, below atomic.Bool // below its floor, while it presses
}

// The made-up node: 1 GiB, of which 36 MiB are available while it presses: hard,
// and above the floor of 32 MiB, below which nothing waits for a pod that ends.
const (
	weatherTotal = 1 << 30
	weatherCalm  = 900 << 20
	weatherPress = 36 << 20
	weatherBelow = 24 << 20
)

func newWeather(t *testing.T) *weather {
	t.Helper()
	w := &weather{dir: filepath.Join(t.TempDir(), "proc")}
	copyProc(t, w.dir)
	vmstat, err := os.ReadFile("/proc/vmstat")
	require.NoError(t, err)
	others := regexp.MustCompile(`(?m)^pgscan_(direct|kswapd) .*\n`).ReplaceAllString(string(vmstat), "")
	require.NoError(t, w.write(others, 1, 0))
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() { assert.NoError(t, w.follow(stop, others)) })
	t.Cleanup(func() { close(stop); ended.Wait() })
	return w
}

// follow writes what changes, and nothing while it stays calm.
func (w *weather) follow(stop <-chan struct{}, vmstat string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	scans, stalled, calm := 1, 0, true
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		wasCalm := calm
		if calm = !w.pressing.Load(); calm && wasCalm {
			continue
		}
		if !calm {
			scans, stalled = scans+1000, stalled+25_000
		}
		if err := w.write(vmstat, scans, stalled); err != nil {
			return err
		}
	}
}

func (w *weather) write(vmstat string, scans, stalled int) error {
	available := weatherCalm
	if w.pressing.Load() {
		available = weatherPress
		if w.below.Load() {
			available = weatherBelow
		}
	}
	for name, text := range map[string]string{
		"meminfo": fmt.Sprintf("MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %[2]d kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", weatherTotal>>10, available>>10),
		"vmstat":  fmt.Sprintf("%spgscan_direct 0\npgscan_kswapd %d\n", vmstat, scans),
		"pressure/memory": fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%[1]d\n",
			stalled),
	} {
		path := filepath.Join(w.dir, name)
		if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// world is a node of a real control plane with an agent on it.
type world struct {
	t         *testing.T
	c         *cluster.Cluster
	namespace string
	node      string
	kubelet   *cluster.StandIn
	weather   *weather
	agent     *agent
	config    string
	state     string
	dryRun    bool
	more      string // of the configuration's section eviction
	rules     string // lines of its section plugins
	perMinute int
	reports   time.Duration // of a new rule
	settle    time.Duration
	kubelets  time.Duration // after an eviction of the kubelet's
	prepare   func(*agent)  // before it starts; nil for nothing
}

// The periods of production, divided by about ten.
const worldConfig = `
tick: 200ms
window: 1s
history: 1m
watchdog: 30s
workloads: {roots: [%q]}
kubernetes: {kubeconfig: %q, node: %q}
state: {dir: %q}
lease: {interval: 1s, duration: 4s}
eviction:
  {dryRun: %t, round: 1s, cooldown: %s, transition: 6s, maxGrace: 10s, kubeletCooldown: %s,
   taints: {minimum: 1s, maximum: 10s}, limits: {perMinute: %d, perOwnerHour: 3600}, reportOnly: %s%s}
plugins:
  warmUp: 0s
  memoryStall: {kubeletEvictionHard: 16Mi, clearFor: 2s, soft: {window: 2s}, hard: {window: 1s}}
  diskContention: {enabled: false} # this machine's disk, link and filesystems may be pressed meanwhile
  networkContention: {enabled: false}
  filesystem: {enabled: false}
%s`

// startWorld makes everything but the agent.
func startWorld(t *testing.T) *world {
	t.Helper()
	return startWorldOf(t, cluster.Shared(t, cluster.Options{}))
}

func startWorldOf(t *testing.T, c *cluster.Cluster) *world {
	t.Helper()
	w := &world{t: t, c: c, weather: newWeather(t), state: filepath.Join(t.TempDir(), "state"), perMinute: 60, settle: 3 * time.Second, kubelets: 6 * time.Second}
	require.NoError(t, w.c.Apply(t.Context(), deploy.RBAC, deploy.RBACEvictDirect, deploy.Heartbeats, deploy.Identity))
	w.namespace = w.c.Namespace(t)
	w.node = "node-" + w.namespace[max(0, len(w.namespace)-20):]
	w.kubelet = w.c.Node(t, w.node)
	w.configure()
	return w
}

// configure writes the agent's configuration; one that runs follows it.
func (w *world) configure() {
	w.t.Helper()
	kubeconfig, err := w.c.ServiceAccount(w.t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: w.node})
	require.NoError(w.t, err)
	root := fmt.Sprintf("/plimsoll-e2e-%d-%s", os.Getpid(), w.node)
	text := fmt.Sprintf(worldConfig, root, kubeconfig, w.node, w.state, w.dryRun, w.settle, w.kubelets, w.perMinute, w.reports, w.more, w.rules)
	if w.config == "" {
		w.config = configFile(w.t, text)
		return
	}
	write(w.t, w.config, "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n"+text)
}

// start an agent, which is ready when it knows the node's pods.
func (w *world) start() *agent {
	w.t.Helper()
	w.agent = prepareAgent(w.t, "--config", w.config, "--path.procfs", w.weather.dir)
	if w.prepare != nil {
		w.prepare(w.agent)
	}
	w.agent.start()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the agent said:\n%s", w.agent.stderr.String())
		}
	})
	eventually(w.t, "the agent is ready", func() error {
		status, body, err := w.agent.get("/-/ready")
		if err == nil && status != 200 {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	return w.agent
}

// deploy a Deployment of pods that hold so many MiB; change may be nil.
func (w *world) deploy(name string, mib int, change func(*corev1.PodTemplateSpec)) {
	w.t.Helper()
	labels := map[string]string{"app": name}
	one, grace := int32(1), int64(2)
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			NodeSelector:                  w.here(),
			Containers:                    []corev1.Container{holder(mib)},
		},
	}
	if change != nil {
		change(&template)
	}
	_, err := w.c.Client.AppsV1().Deployments(w.namespace).Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// here keeps pods away from the nodes of other tests.
func (w *world) here() map[string]string { return map[string]string{cluster.NodeLabel: w.node} }

// holder is a container that holds so many MiB.
func holder(mib int, more ...string) corev1.Container {
	return corev1.Container{Name: "hold", Image: "none", Command: append([]string{loadBinary, "hold", strconv.Itoa(mib)}, more...)}
}

// pods of an app, those that are ending included.
func (w *world) pods(app string) []corev1.Pod {
	w.t.Helper()
	list, err := w.c.Client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(w.t, err)
	return list.Items
}

// running waits until an app's pod runs and its memory is seen by the agent, if
// there is one.
func (w *world) running(app string) (pod corev1.Pod) {
	w.t.Helper()
	eventually(w.t, app+" runs", func() error {
		for _, p := range w.pods(app) {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("%d pods, none runs", len(w.pods(app)))
	})
	return pod
}

// seen waits until the agent measures so many MiB in a pod.
func (w *world) seen(pod corev1.Pod, mib uint64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s is seen with %d MiB", pod.Name, mib), func() error {
		for _, l := range w.agent.snapshot().Workloads {
			if l.PodUID == string(pod.UID) {
				set, _ := l.WorkingSetBytes.Get()
				if set >= mib<<20 {
					return nil
				}
				return fmt.Errorf("%d bytes", set)
			}
		}
		return fmt.Errorf("not among %d workloads", len(w.agent.snapshot().Workloads))
	})
}

// decisions of the agent, newest first.
func (w *world) decisions() []evict.Decision {
	w.t.Helper()
	var said struct {
		Decisions []evict.Decision `json:"decisions"`
	}
	status, body, err := w.agent.local("GET", "/api/v1/decisions")
	require.NoError(w.t, err)
	require.Equal(w.t, 200, status, body)
	require.NoError(w.t, json.Unmarshal([]byte(body), &said))
	return said.Decisions
}

// decided waits for a decision.
func (w *world) decided(what string, is func(evict.Decision) bool) (found evict.Decision) {
	w.t.Helper()
	eventually(w.t, what, func() error {
		for _, d := range w.decisions() {
			if is(d) {
				found = d
				return nil
			}
		}
		return fmt.Errorf("%s", strings.Join(w.words(), "\n"))
	})
	return found
}

// words are the decisions in a line each, newest first.
func (w *world) words() []string {
	var list []string
	for _, d := range w.decisions() {
		list = append(list, fmt.Sprintf("%s %s %s: %s", d.Time.Format("15:04:05.000"), d.Level(), d.Code, d.Reason))
	}
	return list
}

// evicted are the names of all pods that were, oldest first.
func (w *world) evicted() []string {
	var names []string
	for _, d := range w.decisions() {
		if c, some := d.FirstEvicted(); some {
			names = append([]string{c.Pod.Name}, names...)
		}
	}
	return names
}

// press lets the shortage begin, or end.
func (w *world) press(on bool) { w.weather.pressing.Store(on) }

// calm waits until no level is met.
func (w *world) calm() {
	w.t.Helper()
	w.press(false)
	eventually(w.t, "nothing is met", func() error {
		if v := w.agent.pressure().memory(w.t); v.Level != plugins.None {
			return fmt.Errorf("%s: %s", v.Level, v.Reason)
		}
		return nil
	})
}

func (w *world) getNode() *corev1.Node {
	w.t.Helper()
	n, err := w.c.Client.CoreV1().Nodes().Get(w.t.Context(), w.node, metav1.GetOptions{})
	require.NoError(w.t, err)
	return n
}

// ourTaint is the effect of our taint on the Node; empty without.
func (w *world) ourTaint() corev1.TaintEffect {
	for _, t := range w.getNode().Spec.Taints {
		if t.Key == "plimsoll.dev/MemoryContention" {
			return t.Effect
		}
	}
	return ""
}

// ourCondition is the status and reason of our condition; empty without.
func (w *world) ourCondition() string {
	for _, c := range w.getNode().Status.Conditions {
		if c.Type == "plimsoll.dev/MemoryContention" {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}
