package served_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/served"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// sensitive are the inner plugins with windows so short that a made-up node of
// some minutes shows all their levels.
func sensitive() plugins.Config {
	c := plugins.Default()
	c.WarmUp = 0
	c.MemoryStall.Soft.Window, c.MemoryStall.Hard.Window, c.MemoryStall.ClearFor = 2*time.Second, 2*time.Second, 3*time.Second
	c.DiskContention.For, c.DiskContention.ClearFor = 2*time.Second, 3*time.Second
	c.NetworkContention.Window, c.NetworkContention.ClearFor = 2*time.Second, 3*time.Second
	c.Filesystem.For, c.Filesystem.ClearFor = 2*time.Second, 3*time.Second
	c.CPUContention.Mark, c.CPUContention.For, c.CPUContention.ClearFor = true, 2*time.Second, 3*time.Second
	c.OOMStorm = plugins.OOMStorm{Enabled: true, Kills: 2, HardKills: 4, Window: 10 * time.Second, ClearFor: 3 * time.Second}
	return c
}

// Each inner plugin judges 400 s of a made-up node directly and as an outer
// plugin behind a socket: both agree at every second.
func TestInnerPluginsThroughSocket(t *testing.T) {
	for _, inner := range plugins.Inners(sensitive()) {
		t.Run(inner.Name(), func(t *testing.T) {
			t.Parallel()
			direct := plugins.SetOf(inner, nil)
			behind := &served.Inner{Set: plugins.SetOf(inner, nil)}
			ask := serve(t, "next", behind)
			n := newNode(7)
			levels := map[plugins.Level]int{}
			for range 400 {
				snapshot := n.second()
				want := direct.Judge(snapshot).Verdicts
				behind.Judge(snapshot)
				levels[compare(t, want, ask, n.pods())]++
			}
			assert.Positive(t, levels[plugins.None], "it was never calm")
			assert.Positive(t, levels[plugins.Soft]+levels[plugins.Hard], "nothing was ever met")
			t.Log(levels)
		})
	}
}

// compare one second, and return its level.
func compare(t *testing.T, want []plugins.Verdict, ask v1alpha1.EvictionPluginClient, shown [][]byte) plugins.Level {
	t.Helper()
	got, err := ask.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{ActivePods: shown})
	if err != nil {
		for _, v := range want {
			require.Equal(t, plugins.None, v.Level, "%v: %+v", err, v)
			require.True(t, v.Absent != "" || v.Observed.IsZero(), "%v: %+v", err, v)
		}
		return plugins.None
	}
	v := verdict(t, want, got)
	top, err := ask.GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{
		ActivePods: shown, EvictionScope: got.GetEvictionScope(), TopN: 2,
	})
	require.NoError(t, err)
	var names []string
	if v.MetLevel == v.Level {
		for _, c := range v.Candidates[:min(2, len(v.Candidates))] {
			names = append(names, c.PodUID)
		}
	}
	require.Equal(t, names, uids(t, top.GetTargetPods()))
	return v.Level
}

// verdict returns the verdict that an answer is of, and checks that none is
// worse and that all fields agree.
func verdict(t *testing.T, want []plugins.Verdict, got *v1alpha1.ThresholdMetResponse) plugins.Verdict {
	t.Helper()
	var of plugins.Verdict
	for _, v := range want {
		require.LessOrEqual(t, v.Level, plugins.Level(got.GetMetType()))
		if v.Scope == got.GetEvictionScope() {
			of = v
		}
	}
	observed, _ := of.Observed.Get()
	limit, _ := of.Threshold.Get()
	require.Equal(t, of.Level, plugins.Level(got.GetMetType()))
	require.InDelta(t, observed, got.GetObservedValue(), 0)
	require.InDelta(t, limit, got.GetThresholdValue(), 0)
	require.Equal(t, of.Operator == "<", got.GetThresholdOperator() == v1alpha1.ThresholdOperator_LESS_THAN)
	require.Equal(t, of.Condition, got.GetCondition().GetConditionName())
	require.Equal(t, of.Level > plugins.None, got.GetCondition().GetMetCondition())
	return of
}

// scripted returns the verdicts of a test.
type scripted struct{ verdicts []plugins.Verdict }

func (scripted) Name() string { return "scripted" }

func (s scripted) Threshold(plugins.View) []plugins.Verdict { return s.verdicts }

func (s scripted) Top(_ plugins.View, of plugins.Verdict, _ int) []plugins.Candidate {
	return of.Candidates
}

func TestServedWorstScope(t *testing.T) {
	one := snapshot.Some(1.0)
	say := func(v ...plugins.Verdict) (kit.Threshold, error) {
		i := served.Inner{Set: plugins.SetOf(scripted{v}, nil)}
		i.Judge(newNode(1).second())
		return i.Threshold(t.Context(), nil)
	}
	calm := plugins.Verdict{Scope: "sda", Observed: one}
	absent := plugins.Verdict{Scope: "sdb", Absent: "no such file"}
	kept := plugins.Verdict{Scope: "sdc", Level: plugins.Soft, Observed: one}
	soft := plugins.Verdict{Scope: "sdd", Level: plugins.Soft, MetLevel: plugins.Soft, Observed: one}
	hard := plugins.Verdict{Scope: "sde", Level: plugins.Hard, Observed: one}
	for want, list := range map[string][]plugins.Verdict{
		"sda": {absent, calm}, "sdc": {calm, kept, absent}, "sdd": {kept, soft}, "sde": {soft, hard, kept},
	} {
		got, err := say(list...)
		require.NoError(t, err)
		assert.Equal(t, want, got.Scope)
	}
	_, err := say(absent)
	require.ErrorContains(t, err, "not measured")
	_, err = say()
	require.ErrorContains(t, err, "nothing to judge")
}

func TestServedLatchedNamesNoPod(t *testing.T) {
	list := []plugins.Candidate{{PodUID: "uid-a"}, {Cgroup: "/system.slice/backup.service"}, {PodUID: "uid-gone"}, {PodUID: "uid-b"}}
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "uid-b"}}, {ObjectMeta: metav1.ObjectMeta{UID: "uid-a"}}}
	named := func(pressing plugins.Level, n int) (names []types.UID) {
		i := served.Inner{Set: plugins.SetOf(scripted{[]plugins.Verdict{
			{Scope: "node", Level: plugins.Hard, MetLevel: pressing, Candidates: list},
		}}, nil)}
		i.Judge(newNode(1).second())
		got, err := i.Top(t.Context(), kit.Ask{Pods: pods, N: n, Scope: "node"})
		require.NoError(t, err)
		for _, p := range got.Pods {
			names = append(names, p.UID)
		}
		return names
	}
	assert.Equal(t, []types.UID{"uid-a", "uid-b"}, named(plugins.Hard, 5), "in the plugin's order, and only pods of the request")
	assert.Equal(t, []types.UID{"uid-a"}, named(plugins.Hard, 1))
	assert.Empty(t, named(plugins.Hard, 0), "soft asks for no pod")
	assert.Empty(t, named(plugins.Soft, 5))
}

func TestServedBeforeFirstSnapshot(t *testing.T) {
	i := served.Inner{Set: plugins.SetOf(scripted{}, nil)}
	_, err := i.Threshold(t.Context(), nil)
	require.EqualError(t, err, "no snapshot yet")
}

func TestServedReadsHost(t *testing.T) {
	host, err := probes.NewHost(probes.Paths{Procfs: "/proc", Sysfs: "/sys"}, nil)
	require.NoError(t, err)
	rule := plugins.DefaultMemoryStall()
	rule.Soft.Window, rule.Hard.Window = time.Second, time.Second
	ask := serve(t, "next", &served.SelfReading{Inner: served.Inner{Set: plugins.SetOf(rule, nil)}, Host: host})
	_, noPSI := os.Stat("/proc/pressure/memory")
	deadline.Eventually(t, func() bool {
		got, err := ask.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
		if noPSI != nil {
			return err != nil && strings.Contains(err.Error(), "not measured")
		}
		return err == nil && got.GetEvictionScope() == "node" && got.GetThresholdValue() > 0
	}, 30*time.Second, 50*time.Millisecond)
}

// node is a made-up node of three pods that goes from calm to under pressure
// and back.
type node struct {
	random  *rand.Rand
	history snapshot.History
	at      time.Duration
	pressed bool

	stalled, scans, segments, again, waits uint64
	cpu                                    float64 // seconds in use
	cpuWaits                               uint64
	disk                                   snapshot.Disk
	nic                                    snapshot.NIC
	fs                                     snapshot.Filesystem
	list                                   []snapshot.Workload
}

func newNode(seed uint64) *node {
	n := &node{
		random: rand.New(rand.NewPCG(seed, seed)), at: time.Hour,
		history: snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second},
		disk:    snapshot.Disk{Name: "sda", Number: "8:0", Layer: snapshot.LayerLeaf, Kind: "disk", Sequence: snapshot.Some(uint64(7)), Rotational: snapshot.Some(false)},
		nic: snapshot.NIC{
			Name: "eth0", Index: snapshot.Some(2), Physical: true, Kind: "physical", Layer: snapshot.LayerLeaf,
			Carrier: snapshot.Some(true), SpeedBytesPerSecond: snapshot.Some[uint64](125_000_000),
		},
		fs: snapshot.Filesystem{
			Mountpoint: "/data", Type: "ext4", Device: "/dev/vdb", Use: snapshot.UseNode, SizeBytes: snapshot.Some[uint64](100 << 30),
			Files: snapshot.Some[uint64](1_000_000), FilesFree: snapshot.Some[uint64](500_000), AgeSeconds: snapshot.Some(1.0),
		},
	}
	for i := range 3 {
		n.list = append(n.list, snapshot.Workload{
			Cgroup: fmt.Sprintf("/kubepods/burstable/pod%08d-1111-1111-1111-111111111111", i), Name: fmt.Sprint("pod ", i), Kind: snapshot.KindPod,
			PodUID: uid(i), Inode: uint64(i + 1), IO: []snapshot.WorkloadIO{{Number: "8:0"}},
			OOMKills: snapshot.Some[uint64](0), InactiveFileBytes: snapshot.Some[uint64](0), MemoryBytes: snapshot.Some(uint64(i+1) << 30),
		})
	}
	return n
}

func uid(i int) string { return fmt.Sprintf("%08d-1111-1111-1111-111111111111", i) }

// second lets one pass.
func (n *node) second() *snapshot.Snapshot {
	n.at += time.Second
	if n.random.IntN(25) == 0 {
		n.pressed = !n.pressed
	}
	s := &snapshot.Sample{Time: time.Unix(0, 0).Add(n.at), Monotonic: n.at, Boottime: n.at, BootID: "a"}
	n.memory(s)
	n.traffic(s)
	n.io(s)
	n.cpus(s)
	n.fs.AvailableBytes = snapshot.Some(n.either(50<<30, 1<<30))
	s.Filesystems = []snapshot.Filesystem{n.fs}
	return n.history.Add(s)
}

// either is the first when the node is calm, the other when it is pressed.
func (n *node) either(calm, pressed uint64) uint64 {
	if n.pressed {
		return pressed
	}
	return calm
}

func (n *node) memory(s *snapshot.Sample) {
	n.stalled += n.either(0, uint64(n.random.IntN(900_000)))
	n.scans += n.either(0, 10_000)
	s.Pressure.Memory.Full, s.Pressure.Memory.Some = snapshot.Some(n.stalled), snapshot.Some(n.stalled)
	s.Memory.TotalBytes, s.Memory.AvailableBytes = snapshot.Some[uint64](64<<30), snapshot.Some(n.either(32<<30, 1<<30))
	s.Memory.ScansDirect, s.Memory.ScansKswapd = snapshot.Some(n.scans), snapshot.Some[uint64](0)
}

func (n *node) traffic(s *snapshot.Sample) {
	n.nic.ReceiveBytes += n.either(1_000_000, 120_000_000)
	n.segments += 10_000
	n.again += n.either(1, 500)
	s.NICs = []snapshot.NIC{n.nic}
	s.Network.TCPSegmentsSent, s.Network.TCPRetransmits = snapshot.Some(n.segments), snapshot.Some(n.again)
}

func (n *node) io(s *snapshot.Sample) {
	const requests = 400
	n.disk.Reads += requests
	n.disk.ReadBytes += requests * 8192
	n.disk.ReadMs += requests * n.either(1, 80)
	n.disk.BusyMs += n.either(100, 1000)
	n.waits += n.either(10_000, 700_000)
	s.Disks = []snapshot.Disk{n.disk}
	s.Pressure.IO.Some = snapshot.Some(n.waits)
	for i := range n.list {
		w := n.list[i]
		io := w.IO[0]
		io.Reads += []uint64{380, 10, 10}[i]
		io.ReadBytes += []uint64{380, 10, 10}[i] * 8192
		w.IO, w.At, w.DetailAt = []snapshot.WorkloadIO{io}, n.at, n.at
		w.Pressure.IO.Some = snapshot.Some(uint64(i) * n.waits / 2)
		kills, _ := w.OOMKills.Get()
		if i == 1 {
			kills += n.either(0, uint64(n.random.IntN(2)))
		}
		w.OOMKills = snapshot.Some(kills)
		n.list[i] = w
	}
}

// cpus: under pressure the first pod uses nearly all of two CPUs, and the second waits
// for it.
func (n *node) cpus(s *snapshot.Sample) {
	n.cpu += float64(n.either(400, 1980)) / 1000
	n.cpuWaits += n.either(10_000, 990_000)
	s.CPU = snapshot.CPU{Online: snapshot.Some(2), Seconds: map[string]float64{"user": n.cpu}}
	s.Pressure.CPU.Some = snapshot.Some(n.cpuWaits)
	for i := range n.list {
		w := &n.list[i]
		used, _ := w.CPUMicroseconds.Get()
		waited, _ := w.Pressure.CPU.Some.Get()
		w.CPUMicroseconds = snapshot.Some(used + []uint64{n.either(200_000, 1_570_000), n.either(100_000, 400_000), 1000}[i])
		w.Pressure.CPU.Some = snapshot.Some(waited + []uint64{n.either(10_000, 990_000), n.either(10_000, 800_000), 0}[i])
		w.Pressure.CPU.Full = w.Pressure.CPU.Some
		w.ThrottledMicroseconds, w.ThrottledAt = snapshot.Some[uint64](0), n.at
	}
	s.Workloads = append([]snapshot.Workload(nil), n.list...)
}

// pods are those of the workloads, as a host shows them.
func (n *node) pods() [][]byte {
	var list [][]byte
	for i := range n.list {
		b, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Namespace: "shop", UID: types.UID(uid(i))}}).Marshal()
		if err != nil {
			panic(err)
		}
		list = append(list, b)
	}
	return list
}

func uids(t *testing.T, wire [][]byte) (list []string) {
	t.Helper()
	for _, b := range wire {
		var p corev1.Pod
		require.NoError(t, p.Unmarshal(b))
		list = append(list, string(p.UID))
	}
	return list
}

// serve runs a plugin behind a socket for the test's time.
func serve(t *testing.T, name string, p kit.Plugin) v1alpha1.EvictionPluginClient {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name+".sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&kit.Server{Name: name, Plugin: p, Dir: dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	deadline.Eventually(t, func() bool { _, err := os.Lstat(path); return err == nil }, 10*time.Second, time.Millisecond)
	conn, err := grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return v1alpha1.NewEvictionPluginClient(conn)
}
