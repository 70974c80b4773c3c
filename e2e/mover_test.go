package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// The rule is met by what two readers do to a fast disk, and the disk counts as
// calm a few seconds after.
const moverConfig = `
window: 5s
workloads: {roots: [%q]}
kubernetes: {kubeconfig: %q, node: %q}
state: {dir: %q}
lease: {interval: 5s, duration: 20s}
eviction: {round: 1s, protect: {namespaces: [%[7]q]}}
throttle: {dryRun: %[6]t}
vgdp: {enabled: %[5]t, dryRun: %[6]t, concurrency: 4}
plugins:
  warmUp: 0s
  memoryStall: {enabled: false} # this machine may be short of memory meanwhile
  networkContention: {enabled: false}
  filesystem: {enabled: false}
  diskContention: {await: 200us, awaitRotational: 200us, for: 3s, clearFor: 3s, coverage: 0.2}
`

// moverWorld is a node of a real control plane with a service and a data mover, which
// read from this machine's own disk.
type moverWorld struct {
	t               *testing.T
	c               *cluster.Cluster
	kubelet         *cluster.StandIn
	namespace, node string
	file, disk      string
	number          string // of the disk
	config, state   string
	enabled, dryRun bool
	agent           *agent
	service, mover  corev1.Pod
	// labels of the pod that presses: of a mover, unless others are set.
	labels map[string]string
}

func newMoverWorld(t *testing.T) *moverWorld {
	t.Helper()
	needsBlkio(t)
	q := &moverWorld{t: t, c: cluster.Shared(t, cluster.Options{}), file: bigFile(t, 256<<20), state: filepath.Join(t.TempDir(), "state"), enabled: true, labels: map[string]string{"velero.io/data-upload": "du-1"}}
	require.NoError(t, q.c.Apply(t.Context(), deploy.RBAC, deploy.Heartbeats, deploy.Identity))
	q.namespace = q.c.Namespace(t)
	q.node = "node-" + q.namespace[max(0, len(q.namespace)-20):]
	q.kubelet = q.c.Node(t, q.node)
	q.disk = diskOf(t, q.file)
	q.number = strings.TrimSpace(readFile(t, "/sys/block/"+q.disk+"/dev"))
	q.configure()
	return q
}

func (q *moverWorld) configure() {
	q.t.Helper()
	kubeconfig, err := q.c.ServiceAccount(q.t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: q.node})
	require.NoError(q.t, err)
	root := fmt.Sprintf("/plimsoll-e2e-%d-%s", os.Getpid(), q.node)
	text := fmt.Sprintf(moverConfig, root, kubeconfig, q.node, q.state, q.enabled, q.dryRun, q.namespace)
	if q.config == "" {
		q.config = configFile(q.t, text)
		return
	}
	write(q.t, q.config, "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n"+text)
}

func (q *moverWorld) start() *agent {
	q.t.Helper()
	q.agent = prepareAgent(q.t, "--config", q.config).start().ticked(1)
	return q.agent
}

// pod of a reader of the disk: requests of that size, so many at once, with a
// pause of so many µs after each.
func (q *moverWorld) pod(name string, size, depth, pause int, labels map[string]string, needs corev1.ResourceList) corev1.Pod {
	q.t.Helper()
	none := int64(0)
	_, err := q.c.Client.CoreV1().Pods(q.namespace).Create(q.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: q.node, TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{
				Name: "read", Image: "none", Command: []string{loadBinary, "read", q.file, strconv.Itoa(size), strconv.Itoa(depth), strconv.Itoa(pause)},
				Resources: corev1.ResourceRequirements{Requests: needs},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(q.t, err)
	var pod *corev1.Pod
	eventually(q.t, name+" runs", func() error {
		pod, err = q.c.Client.CoreV1().Pods(q.namespace).Get(q.t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("%s", pod.Status.Phase)
		}
		return err
	})
	return *pod
}

// press starts the service and the mover beside it.
func (q *moverWorld) press() {
	q.t.Helper()
	q.service = q.pod("service", 8192, 1, 1000, nil, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")})
	q.mover = q.pod("du-1", 1<<20, 4, 0, q.labels, nil)
	countIO(q.t, blkioV1+q.kubelet.Cgroup(&q.service), q.disk)
}

// limit of the mover's reads as the kernel has it, 0 for none.
func (q *moverWorld) limit() uint64 {
	q.t.Helper()
	text, err := os.ReadFile(blkioV1 + q.kubelet.Cgroup(&q.mover) + "/blkio.throttle.read_bps_device")
	require.NoError(q.t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == q.number {
			n, err := strconv.ParseUint(f[1], 10, 64)
			require.NoError(q.t, err)
			return n
		}
	}
	return 0
}

// set a limit of the mover's reads by hand.
func (q *moverWorld) set(limit int) {
	q.t.Helper()
	rule := q.number + " " + strconv.Itoa(limit)
	path := blkioV1 + q.kubelet.Cgroup(&q.mover) + "/blkio.throttle.read_bps_device"
	require.NoError(q.t, os.WriteFile(path, []byte(rule), 0o644))
}

// gaveWay is what the agent says of data movers and throttled pods.
type gaveWay struct {
	Loads struct {
		DryRun bool `json:"dryRun"`
		Budget *int `json:"budget"`
	} `json:"loads"`
	Throttles struct {
		Throttled []struct {
			Disk    string         `json:"disk"`
			Percent int            `json:"percent"`
			May     throttle.Rates `json:"may"`
			Foreign bool           `json:"foreign"`
			Mover   bool           `json:"mover"`
			DryRun  bool           `json:"dryRun"`
		} `json:"throttled"`
		NotThrottled []struct{ Name, Why string } `json:"notThrottled"`
	} `json:"throttles"`
}

func (q *moverWorld) loads() gaveWay {
	q.t.Helper()
	var said struct {
		Cluster gaveWay `json:"cluster"`
	}
	require.NoError(q.t, json.Unmarshal([]byte(q.agent.mustGet("/api/v1/pressure")), &said))
	return said.Cluster
}

// waits is how much of the time the service waits for others.
func (q *moverWorld) waits() (waited, share float64, err error) {
	c, err := q.agent.contention(q.disk)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range c.Sufferers {
		if s.PodUID == string(q.service.UID) {
			waited = s.Waited
		}
	}
	for _, s := range c.Culprits {
		if s.PodUID == string(q.mover.UID) {
			share = s.Share
		}
	}
	return waited, share, nil
}

// slowed waits until the mover carries a limit of the agent's.
func (q *moverWorld) slowed() (limit uint64) {
	q.t.Helper()
	within(q.t, 2*patience, "the mover is slowed down", func() error {
		if limit = q.limit(); limit == 0 {
			return fmt.Errorf("%+v", q.loads())
		}
		return nil
	})
	return limit
}

// follow has the agent take a changed configuration.
func (q *moverWorld) follow() {
	q.t.Helper()
	q.configure()
	require.NoError(q.t, q.agent.cmd.Process.Signal(syscall.SIGHUP))
}

// report is what the agent's Lease says of data movers.
func (q *moverWorld) report() lease.NodeReport {
	q.t.Helper()
	return reportOf(q.t, q.c, q.node)
}

func reportOf(t *testing.T, c *cluster.Cluster, node string) lease.NodeReport {
	t.Helper()
	l, err := c.Client.CoordinationV1().Leases(lease.Namespace).Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	carried, err := lease.ReadContent(l.Annotations)
	require.NoError(t, err)
	return carried.Report
}

// observe has a dry run say who would be slowed down, and returns how much the
// service waits and how much of the traffic is the mover's.
func (q *moverWorld) observe() (waited, share float64) {
	q.t.Helper()
	within(q.t, 2*patience, "a dry run says who would be slowed down", func() (err error) {
		l := q.loads()
		if waited, share, err = q.waits(); err == nil && (len(l.Throttles.Throttled) != 1 || !l.Throttles.Throttled[0].DryRun || l.Loads.Budget == nil) {
			err = fmt.Errorf("waits %.2f, share %.2f, %+v", waited, share, l)
		}
		return err
	})
	assert.Equal(q.t, q.disk, q.loads().Throttles.Throttled[0].Disk)
	assert.Zero(q.t, q.limit(), "a dry run changes nothing")
	assert.Nil(q.t, q.report().DataMoverBudget)
	return waited, share
}

// relieved waits until the service waits much less than before.
func (q *moverWorld) relieved(before float64) (waited, share float64, took time.Duration) {
	q.t.Helper()
	took = within(q.t, 4*patience, "the service waits much less", func() (err error) {
		if waited, share, err = q.waits(); err == nil && waited > 0.7*before {
			err = fmt.Errorf("it waits %.2f, before %.2f", waited, before)
		}
		return err
	})
	return waited, share, took
}

// shown everywhere is who is slowed down.
func (q *moverWorld) shown() {
	q.t.Helper()
	text, err := exec.CommandContext(q.t.Context(), binary, "top", "--once", "--api.socket", q.agent.socket).CombinedOutput()
	require.NoError(q.t, err, string(text))
	assert.Contains(q.t, string(text), "data movers  1 running, budget 1")
	assert.Contains(q.t, string(text), "throttled  "+q.namespace+"/du-1")
	assert.Contains(q.t, q.agent.mustGet("/metrics"), "plimsoll_throttled_pods{resource=\"disk\",device=\""+q.disk+"\"} 1\n")
	assert.Contains(q.t, q.agent.mustGet("/"), "Throttled: "+q.namespace+"/du-1")
}

// A data mover that presses a disk beside a service: who waits for whom before
// and after, and that nothing stays behind, however the agent ends.
// holdsLoads: what the agent says in its Lease is what a controller, in another
// process, lets start on its node. The node-agent there is a stand-in.
func (q *moverWorld) holdsLoads() *veleroWorld {
	q.t.Helper()
	h := newVeleroWorld(q.t, q.c, 0, `{"loadConcurrency":{"globalConfig":4}}`, "")
	h.nodes, h.agents.Concurrency, h.agents.Moves = []string{q.node}, 4, time.Hour
	none := int64(0)
	h.pod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "node-agent", Labels: map[string]string{"role": "node-agent"}},
		Spec: corev1.PodSpec{NodeName: q.node, TerminationGracePeriodSeconds: &none, Containers: []corev1.Container{{
			Name: "node-agent", Image: "none", Command: []string{"sleep", "3600"},
		}}},
	}, corev1.PodStatus{Phase: corev1.PodRunning})
	a := h.controller().start()
	h.holds()
	h.runAgents()
	for _, name := range []string{"a", "b", "c"} {
		h.load(vgdp.PodVolumeBackup, name, "b", nil)
	}
	eventually(q.t, "the controller holds loads on the node that suffers", func() error {
		l := loadsOf(a)
		if len(l.Veleros) != 1 || l.Veleros[0].Reasons[vgdp.CodePressure] == 0 {
			return fmt.Errorf("%+v", l.Veleros)
		}
		require.Len(q.t, l.Veleros[0].Nodes, 1)
		assert.Equal(q.t, q.node, l.Veleros[0].Nodes[0].Name)
		assert.Contains(q.t, l.Veleros[0].Nodes[0].Why, "disk ")
		return nil
	})
	assert.GreaterOrEqual(q.t, h.phases()[vgdp.New], 2, "the budget is 1")
	return h
}

func TestMoverThrottledOnDiskPressure(t *testing.T) {
	q := newMoverWorld(t)
	q.dryRun = true
	q.configure()
	q.start()
	q.press()
	before, most := q.observe()

	q.dryRun = false
	q.follow()
	first := q.slowed()
	within(t, patience, "the Lease carries the budget", func() error {
		if r := q.report(); r.DataMoverBudget == nil || *r.DataMoverBudget != 1 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	loads := q.holdsLoads()
	after, part, took := q.relieved(before)
	slowed := q.loads().Throttles.Throttled
	require.Len(t, slowed, 1)
	assert.GreaterOrEqual(t, slowed[0].Percent, 20)
	t.Logf("before: the service waits %.0f %% of the time, %.0f %% of the traffic is the mover's; %s after its first limit (%d MB/s): %.0f %%, %.0f %%, at %d %% (%.0f MB/s)",
		100*before, 100*most, took.Round(time.Second), first/1e6, 100*after, 100*part, slowed[0].Percent, slowed[0].May.Read/1e6)
	q.shown()

	t.Run("it is freed when that is switched off", func(t *testing.T) {
		q.enabled = false
		q.follow()
		eventually(t, "no limit, no budget", func() error {
			if q.limit() != 0 || q.report().DataMoverBudget != nil {
				return fmt.Errorf("%d %+v", q.limit(), q.report())
			}
			return nil
		})
		loads.become(0, vgdp.New)
		q.enabled = true
		q.follow()
	})
	t.Run("it is freed by the agent after one that was killed", func(t *testing.T) {
		limit := q.slowed()
		q.agent.end(syscall.SIGKILL)
		require.Equal(t, limit, q.limit(), "nobody is there to take it away")
		q.start().ticked(3)
		assert.LessOrEqual(t, q.limit(), limit, "it is kept")
		require.NotZero(t, q.limit())
		require.Zero(t, q.agent.end(syscall.SIGTERM), q.agent.stderr.String())
		assert.Zero(t, q.limit(), "and lifted at the end")
	})
	t.Run("a container that starts later is limited as well", func(t *testing.T) {
		q.start()
		limit := q.slowed()
		container := blkioV1 + q.kubelet.Cgroup(&q.mover) + "/container"
		require.NoError(t, os.Mkdir(container, 0o755))
		t.Cleanup(func() { _ = os.Remove(container) })
		within(t, patience, "it has a limit", func() error {
			text, err := os.ReadFile(container + "/blkio.throttle.read_bps_device")
			if err == nil && !strings.HasPrefix(string(text), q.number+" ") {
				err = fmt.Errorf("%q, its pod %d", text, limit)
			}
			return err
		})
		require.NoError(t, os.Remove(container), "it ends")
		q.agent.ticked(q.agent.snapshot().Sequence + 3)
	})
	t.Run("what somebody else sets is left alone", func(t *testing.T) {
		q.slowed()
		q.set(123456)
		within(t, patience, "the agent sees it", func() error {
			if l := q.loads().Throttles.Throttled; len(l) != 1 || !l[0].Foreign {
				return fmt.Errorf("%+v", l)
			}
			return nil
		})
		require.Zero(t, q.agent.end(syscall.SIGTERM), q.agent.stderr.String())
		assert.NotContains(t, q.agent.stderr.String(), "failed to apply the limits")
		assert.EqualValues(t, 123456, q.limit())
		q.set(0)
	})
}

// A pod that is no data mover and presses the disk beside a service is throttled first,
// if its owner allows it, and told so.
func TestThrottleAnyPod(t *testing.T) {
	q := newMoverWorld(t)
	q.dryRun, q.labels = true, map[string]string{names.Throttle: "allow"}
	q.configure()
	learned(t, q.state, q.disk)
	q.start()
	q.press()
	before, most := q.observe()
	assert.False(t, q.loads().Throttles.Throttled[0].Mover)
	assert.Contains(t, q.agent.stderr.String(), `msg="pod throttled"`)
	assert.Empty(t, q.told("Throttled"), "a dry run tells no owner")

	q.dryRun = false
	q.follow()
	first := q.slowed()
	after, part, took := q.relieved(before)
	t.Logf("before: the service waits %.0f %% of the time, %.0f %% of the traffic is the other pod's; %s after its first limit (%d MB/s): %.0f %%, %.0f %%", 100*before, 100*most, took.Round(time.Second), first/1e6, 100*after, 100*part)
	eventually(t, "its owner is told", func() error {
		if text := q.told("Throttled"); !strings.Contains(text, q.disk+" limited to ") || !strings.Contains(text, "service waits ") {
			return fmt.Errorf("%q", text)
		}
		return nil
	})
	_, err := q.c.Client.CoreV1().Pods(q.namespace).Patch(t.Context(), q.mover.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.Throttle+`":null}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "it is freed: it has no controller, so it would never be evicted", func() error {
		l := q.loads().Throttles
		if q.limit() != 0 || len(l.NotThrottled) != 1 || !strings.Contains(l.NotThrottled[0].Why, "protected: none of its 0 ownerReferences") {
			return fmt.Errorf("%d %+v", q.limit(), l)
		}
		return nil
	})
}

// told is what the Events with that reason tell the owner of the pod that presses.
func (q *moverWorld) told(reason string) (text string) {
	q.t.Helper()
	list, err := q.c.Client.CoreV1().Events(q.namespace).List(q.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(q.mover.UID)})
	require.NoError(q.t, err)
	for i := range list.Items {
		text += list.Items[i].Message
	}
	return text
}

// learned has an earlier agent leave in a state directory what a disk's requests usually
// take: 50 µs.
func learned(t *testing.T, dir, disk string) {
	t.Helper()
	boot := readFile(t, "/proc/sys/kernel/random/boot_id")
	d := snapshot.Disk{Name: disk, Number: strings.TrimSpace(readFile(t, "/sys/block/"+disk+"/dev"))}
	if text, err := os.ReadFile("/sys/block/" + disk + "/diskseq"); err == nil {
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		require.NoError(t, err)
		d.Sequence = snapshot.Some(n)
	}
	b := plugins.Baseline{Device: disk, Seen: time.Now()}
	for i := range b.Read {
		b.Read[i] = plugins.RequestStats{Requests: 1e6, Seconds: 24 * 3600, TotalSeconds: 50}
		b.Write[i] = b.Read[i]
	}
	known := plugins.Baselines{plugins.DiskKey(&d, strings.TrimSpace(boot)): b}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, state.File[plugins.Baselines]{Path: filepath.Join(dir, "baselines.json")}.Save(known))
}
