package config

import (
	"bytes"
	"errors"
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/cri"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/recording"
)

func printed(t *testing.T, d Document) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Print(&b, d))
	return b.String()
}

func TestPrintLooksHandwritten(t *testing.T) {
	got := printed(t, everything{
		shared: shared{"text"},
		Word:   "10", Pause: 2 * time.Minute, Share: 0.1, Size: 256 << 20, Names: []string{"/a/b", "host:1"},
		Parts: []part{{Label: "x", Limit: 1500}},
	})
	want := `apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration

# A key of an inline struct.
inner: text

# A flag.
flag: false

# A word.
word: "10"

# A count.
count: 0

# A pause.
pause: 2m

# A share of something that takes so many words to explain that they do not fit on one
# line of a comment.
share: 0.1

# A size.
size: 256Mi

# Names.
names:
  - /a/b
  - "host:1"

# A part.
part:
  # A label.
  label: ""
  # A limit.
  limit: 0
  # Tags.
  tags: []

# Parts.
parts:
  -
    # A label.
    label: x
    # A limit.
    limit: 1500
    # Tags.
    tags: []
`
	assert.Empty(t, cmp.Diff(want, got))
}

func TestPrintRoundTrip(t *testing.T) {
	property := func(want everything) bool {
		text := printed(t, want)
		var got everything
		require.NoError(t, Decode("printed.yaml", []byte(text), &got), text)
		return assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(everything{})), text)
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: live.Times(100, 500)}))
}

func TestPrintAgentRoundTrip(t *testing.T) {
	property := func(want validAgent) bool {
		require.Empty(t, want.Validate())
		text := printed(t, want.Agent)
		got := Agent{Web: Web{ListenAddresses: []string{"overwritten"}}}
		require.NoError(t, Decode("printed.yaml", []byte(text), &got), text)
		return assert.Empty(t, cmp.Diff(want.Agent, got), text)
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: live.Times(100, 500)}))
	assert.True(t, property(validAgent{Default()}))
}

// validAgent is an agent that passes Validate, else anything.
type validAgent struct{ Agent }

func (validAgent) Generate(r *rand.Rand, _ int) reflect.Value {
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int63n(int64(high-low)+1)) }
	pick := func(from ...string) string { return from[r.Intn(len(from))] }
	flip := func() bool { return r.Intn(2) == 0 }

	a := Agent{Tick: between(minTick, 4*time.Second)}
	a.Window = between(2*a.Tick, time.Minute)
	a.Watchdog = between(watchdogTicks*a.Tick, time.Hour)
	a.Triggers = Triggers{Enabled: flip(), Stall: between(time.Millisecond, minTrigger), Window: between(minTrigger, maxTrigger)}
	a.Eviction.Round = between(max(a.Tick, evict.MinRound), time.Hour)
	a.Eviction.Cooldown, a.Eviction.Transition = between(0, time.Hour), between(0, time.Hour)
	a.Eviction.ReliefWait, a.Eviction.UrgentWait = between(0, time.Minute), between(0, time.Minute)
	a.Eviction.ViaFallbackAfter = between(evict.CallTimeout, problems.MaxDuration)
	a.Eviction.Via = evict.ViaDirect
	a.VGDP = VGDP{Enabled: flip(), DryRun: flip(), Concurrency: 1 + r.Intn(maxMoverLoads)}
	a.Eviction.MaxTerminationGrace, a.Eviction.MinRelief = between(time.Second, time.Hour), r.Float64()
	a.Eviction.Enabled, a.Eviction.DryRun = flip(), flip()
	some := func() int { return 1 + r.Intn(3600) }
	a.Eviction.Limits = evict.Limits{PerRound: some(), PerMinute: some(), PerOwnerHour: some()}
	a.Eviction.DryRunPlugins = [][]string{nil, {"*", "-" + pick("memory-stall", "7")}}[r.Intn(2)]
	a.Eviction.ReportOnly, a.Eviction.MaxAge = between(0, time.Hour), between(time.Second, time.Hour)
	a.Eviction.OverdueAfter, a.Eviction.KubeletCooldown = between(0, time.Hour), between(0, time.Hour)
	a.Eviction.Taints = evict.FlapBackoff{Minimum: between(0, time.Hour), Maximum: between(time.Hour, problems.MaxDuration)}
	a.Eviction.Protect.Priority = r.Intn(2_000_000_001)
	a.Eviction.Protect.Namespaces = []string{pick("kube-system", "true", "7")}
	a.Eviction.OptOutHard = []string{pick("default", "null", "*")}
	a.Eviction.OptOuts = pods.OptOuts{pick("a/b=true", "c=null", "d=7")}
	a.Kubernetes.Kubeconfig, a.Kubernetes.Node = pick("", "/etc/a b"), pick("", "node-1", "1.5")
	a.Kubernetes.Standalone = a.Kubernetes.Kubeconfig == "" && flip()
	a.State.Decisions, a.State.DecisionsSize = 1+r.Intn(maxDecisions), minDecisions+uint64(r.Int63n(1<<40))
	a.Lease = Lease{Enabled: flip(), Target: pick(LeaseOfAgent, LeaseOfNode), Interval: between(minInterval, time.Minute), Duration: between(2*time.Minute, problems.MaxDuration)}
	a.Eviction.Via, a.Eviction.ViaFallback = pick(evict.ViaDirect, evict.ViaController), flip()
	if a.Eviction.Via == evict.ViaController {
		a.Lease.Enabled = true
	}
	a.State.Dir, a.Conditions.Enabled = pick("", "/var/lib/x"), flip()
	a.Plugins.WarmUp = between(0, problems.MaxDuration)
	a.Plugins.Outer = Outer{
		Dirs: []string{pick("/run/a", "/b: c")}, Uids: []string{pick("0", "1000")}, Names: []string{pick("p", "null", "7")},
		Strict: flip(), TokenDir: pick("/etc/tokens", "/t"), Deadline: between(100*time.Millisecond, time.Minute), CallTimeout: between(100*time.Millisecond, time.Minute), Beside: pick("exclusive", "report", "mark", "act"), Top: 1 + r.Intn(100),
		FullPods: flip(), NoExecute: []string{pick("p/C", "a/b/C")}, ForceGraceZero: []string{pick("p", "true")},
	}
	soft := plugins.StallRule{StallFull: 0.5 - r.Float64()/2, Window: between(a.Tick, time.Minute), Available: r.Float64()}
	hard := plugins.StallRule{StallFull: 0.5 + r.Float64()/2, Window: between(a.Tick, time.Minute), Available: soft.Available * r.Float64()}
	a.Plugins.MemoryStall = plugins.MemoryStall{
		Enabled: flip(), Soft: soft, Hard: hard,
		KubeletEvictionHard: uint64(r.Int63n(1 << 50)), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.DiskContention = plugins.DiskContention{
		Enabled: flip(), Await: between(time.Microsecond, time.Hour), AwaitRotational: between(time.Microsecond, time.Hour), Factor: 1 + r.Intn(1000),
		For: between(a.Tick, problems.MaxDuration), Coverage: r.Float64(), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.DiskContention.Ceilings = [][]plugins.DiskCeiling{nil, {{Device: "sda", IOPS: 1 + r.Intn(100_000_000)}, {Device: pick("true", "7"), BytesPerSecond: 1 + uint64(r.Int63n(1<<40))}}}[r.Intn(2)]
	a.Plugins.NetworkContention = plugins.NetworkContention{
		Enabled: flip(), Utilization: 1 - r.Float64(), Retransmits: 1 - r.Float64(), Window: between(a.Tick, time.Minute), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.Filesystem = plugins.FilesystemSpace{
		Enabled: flip(), Available: r.Float64(), Enough: 1 + uint64(r.Int63n(1<<60)), FilesFree: r.Float64(), EnoughFiles: 1 + r.Intn(1<<40),
		MinSize: uint64(r.Int63n(1 << 40)), For: between(0, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute), Margin: r.Float64(), MaxAge: 2 * problems.MaxDuration,
	}
	a.Plugins.OOMStorm = plugins.OOMStorm{
		Enabled: flip(), Kills: 1 + r.Intn(9), HardKills: []int{0, 9 + r.Intn(991)}[r.Intn(2)],
		Window: between(a.Tick+time.Second, time.Minute), ClearFor: between(a.Tick+time.Second, time.Minute),
	}
	a.Plugins.CPUContention = plugins.CPUContention{
		Enabled: flip(), Mark: flip(), Waiting: 1 - r.Float64(),
		For: between(0, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.CPUSuppression = plugins.CPUSuppression{
		Enabled: flip(), Supply: 1 - r.Float64(), Waiting: 1 - r.Float64(), For: between(minTick, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.ReclaimedOvercommit = plugins.ReclaimedOvercommit{
		Enabled: flip(), CPURate: 5000 + r.Intn(5000), MemoryRate: 5000 + r.Intn(5000),
		SoftCPURate: r.Intn(5000), SoftMemoryRate: r.Intn(5000), CPU: r.Intn(100_000_000), Memory: uint64(r.Int63n(1 << 40)),
		For: between(0, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute),
	}
	a.Plugins.RSSOveruse = plugins.RSSOveruse{Enabled: flip(), Rate: r.Intn(10_001), For: between(0, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute)}
	a.Plugins.NUMAMemory = plugins.NUMAMemory{Enabled: flip(), Soft: soft, Hard: hard, ClearFor: between(a.Tick, time.Minute)}
	softRootfs := plugins.RootfsRule{Available: 0.5 + r.Float64()/3, FilesFree: 0.5 + r.Float64()/3}
	a.Plugins.RootfsOveruse = plugins.RootfsOveruse{
		Enabled: flip(), Soft: softRootfs, Hard: plugins.RootfsRule{Available: r.Float64() / 3, FilesFree: r.Float64() / 3},
		Used: 0.01 + r.Float64()/2, UsedLowQoS: 0.01 + r.Float64()/2, MinUsed: 1 + uint64(r.Int63n(1<<40)), MinFiles: 1 + r.Intn(1<<30),
		For: between(0, problems.MaxDuration), ClearFor: between(a.Tick, time.Minute), MaxAge: between(2*time.Minute, 2*problems.MaxDuration),
	}
	a.ContainerRuntime = cri.Config{Socket: pick("/run/containerd/containerd.sock", "/a b"), Every: between(5*time.Second, time.Minute), Timeout: between(100*time.Millisecond, 5*time.Second)}
	a.Network.Devices = [][]probes.NetworkDevice{nil, {{Name: "eth0", Speed: 1 + r.Intn(10_000_000)}, {Name: pick("true", "7"), Speed: 100}}}[r.Intn(2)]
	a.History = between(max(soft.Window, hard.Window, a.Plugins.MemoryStall.ClearFor, a.Plugins.DiskContention.ClearFor,
		a.Plugins.NetworkContention.Window, a.Plugins.NetworkContention.ClearFor, a.Plugins.Filesystem.ClearFor, a.Plugins.OOMStorm.Window, a.Plugins.OOMStorm.ClearFor, time.Minute)+a.Window, 2*time.Minute+maxHistoryTicks/2*minTick)
	a.Paths = Paths{pick("/proc", "/host/proc"), pick("/sys", "/host sys/ü"), pick("", "/sys/fs/cgroup"), pick("", "/", "/host")}
	a.Filesystems.Mounts = [][]string{nil, {"/"}, {"/mnt/a b", `/mnt/"quoted" #1`}}[r.Intn(3)]
	a.Filesystems.Every, a.Filesystems.Timeout = between(time.Second, problems.MaxDuration), between(100*time.Millisecond, time.Minute)
	a.Filesystems.Kubelet, a.Filesystems.Runtimes = pick("", "/var/lib/kubelet"), [][]string{nil, {"/var/lib/containerd", "/a b"}}[r.Intn(2)]
	a.Web = Web{[]string{pick(":0", "[::1]:9773", "localhost:65535"), "127.0.0.1:9773"}[r.Intn(2):], pick("", "/etc/plimsoll/web.yaml"), flip(), flip(), flip(), PodSeries{r.Intn(maxTop + 1), minSeries + r.Intn(maxSeries-minSeries)}}
	a.API.Socket = pick("", "/run/x.sock")
	a.Log = Log{pick("debug", "info", "warn", "error"), pick("text", "json")}
	a.Workloads.Roots = [][]string{nil, {"/"}, {"/kubepods.slice", `/a\x2db.slice`}}[r.Intn(3)]
	segment := 64<<10 + uint64(r.Int63n(1<<40))
	a.Recording = recording.Config{
		Dir: pick("", "/var/lib/plimsoll/recording"), MaxSize: 2*segment + uint64(r.Int63n(1<<40)), MaxAge: between(problems.MaxDuration, 10*365*24*time.Hour),
		SegmentSize: segment, SegmentAge: between(time.Second, problems.MaxDuration), MinAvailable: 0.9 * float64(r.Intn(101)) / 100,
	}
	return reflect.ValueOf(validAgent{a})
}

func TestFormatDurationsAndSizes(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1s": time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "1h": time.Hour, "1h0m30s": time.Hour + 30*time.Second,
		"10m": 10 * time.Minute, "20h": 20 * time.Hour, "1h10m": 70 * time.Minute, "100ms": 100 * time.Millisecond, "-2m": -2 * time.Minute,
	} {
		assert.Equal(t, want, problems.Duration(d))
		back, err := time.ParseDuration(want)
		require.NoError(t, err)
		assert.Equal(t, d, back)
	}
	for want, b := range map[string]uint64{
		"0": 0, "1": 1, "1Ki": 1024, "1k": 1000, "256Mi": 256 << 20, "1500M": 1_500_000_000, "1Ei": 1 << 60, "18446744073709551615": 1<<64 - 1,
	} {
		assert.Equal(t, want, problems.Bytes(b))
	}
}

func TestPrintBrokenPipe(t *testing.T) {
	broken := errors.New("broken pipe")
	assert.ErrorIs(t, Print(brokenPipe{broken}, Default()), broken)
	assert.ErrorIs(t, Markdown(brokenPipe{broken}), broken)
}

type brokenPipe struct{ err error }

func (b brokenPipe) Write([]byte) (int, error) { return 0, b.err }
