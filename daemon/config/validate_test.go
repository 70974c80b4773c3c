package config

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/problems"
)

func TestAgentDefaults(t *testing.T) {
	a := Default()
	require.Empty(t, a.Validate())
	assert.Equal(t, 1*time.Second, a.Tick)
	assert.Equal(t, 60*time.Second, a.Watchdog)
	assert.Equal(t, []string{"127.0.0.1:9773"}, a.Web.ListenAddresses)
	assert.False(t, a.Web.Open)
	assert.Zero(t, a.Web.PodSeries.Top, "series of single pods are asked for")
	assert.Equal(t, plugins.StallRule{StallFull: 0.10, Window: 30 * time.Second, Available: 0.10}, a.Plugins.MemoryStall.Soft)
	assert.Equal(t, plugins.StallRule{StallFull: 0.25, Window: 5 * time.Second, Available: 0.04}, a.Plugins.MemoryStall.Hard)

	a.Web.ListenAddresses[0] = "changed"
	assert.Equal(t, []string{"127.0.0.1:9773"}, Default().Web.ListenAddresses, "each caller has its own")
}

func TestValidateContradictions(t *testing.T) {
	tests := map[string]struct {
		change func(*Agent)
		keys   []string
		why    string
	}{
		"tick too short": {
			func(a *Agent) { a.Tick = 99 * time.Millisecond },
			[]string{"tick"},
			"99ms is not between 100ms and 1m",
		},
		"an opt-out without a value": {
			func(a *Agent) { a.Eviction.OptOuts = append(a.Eviction.OptOuts, "example.com/keep") },
			[]string{"eviction.optOut[2]"},
			`want key=value, such as plimsoll.dev/skip-eviction=true, got "example.com/keep"`,
		},
		"critical pods that could be evicted": {
			func(a *Agent) { a.Eviction.Protect.Priority = 2_000_000_001 },
			[]string{"eviction.protect.priority"},
			"2000000001 would allow evicting pods that Kubernetes calls critical (2000000000 and above)",
		},
		"a web configuration that is nowhere": {
			func(a *Agent) { a.Web.ConfigFile = "web.yaml" },
			[]string{"web.configFile"},
			`want an absolute path without .., // or a slash at its end, got "web.yaml"`,
		},
		"tick of nothing": {
			func(a *Agent) { a.Tick = 0 },
			[]string{"tick"},
			"0s is not between 100ms and 1m",
		},
		"window shorter than two ticks": {
			func(a *Agent) { a.Window = 1999 * time.Millisecond },
			[]string{"window", "tick"},
			"window (1.999s) must be at least 2 × tick (1s)",
		},
		"a trigger over a window that no kernel has": {
			func(a *Agent) { a.Triggers.Window = 11 * time.Second },
			[]string{"triggers.window"},
			"11s is not between 500ms and 10s",
		},
		"a trigger for more stall than its window holds": {
			func(a *Agent) { a.Triggers.Stall = 1001 * time.Millisecond },
			[]string{"triggers.stall"},
			"1.001s is not between 1ms and 1s",
		},
		"watchdog shorter than ten ticks": {
			func(a *Agent) { a.Watchdog = 9999 * time.Millisecond },
			[]string{"watchdog", "tick"},
			"watchdog (9.999s) must be at least 10 × tick (1s)",
		},
		"a cluster of an agent that runs standalone": {
			func(a *Agent) { a.Kubernetes.Standalone, a.Kubernetes.Kubeconfig = true, "/etc/kubeconfig" },
			[]string{"kubernetes.kubeconfig", "kubernetes.standalone"},
			"a standalone agent has no kubeconfig",
		},
		"rounds too often": {
			func(a *Agent) { a.Tick, a.Eviction.Round = 100*time.Millisecond, 999*time.Millisecond },
			[]string{"eviction.round"},
			"999ms is not between 1s and 24h",
		},
		"a controller that no Lease asks": {
			func(a *Agent) { a.Eviction.Via, a.Lease.Enabled = evict.ViaController, false },
			[]string{"eviction.via", "lease.enabled"},
			"the agent's Lease carries requests to the controller: want lease.enabled: true",
		},
		"somebody else evicts": {
			func(a *Agent) { a.Eviction.Via = "nobody" },
			[]string{"eviction.via"},
			`want one of direct, controller, request, got "nobody"`,
		},
		"series of fewer than no workloads": {
			func(a *Agent) { a.Web.PodSeries.Top = -1 },
			[]string{"web.podSeries.top"},
			"-1 is not between 0 and 10000",
		},
		"series without an end": {
			func(a *Agent) { a.Web.PodSeries.MaxSeries = 100_001 },
			[]string{"web.podSeries.maxSeries"},
			"100001 is not between 100 and 100000",
		},
		"rounds more often than ticks": {
			func(a *Agent) { a.Tick, a.Eviction.Round = 2*time.Second, time.Second },
			[]string{"eviction.round", "tick"},
			"eviction.round (1s) must be at least tick (2s)",
		},
		"history shorter than the rules look back": {
			func(a *Agent) { a.History = 39 * time.Second },
			[]string{"history", "plugins.memoryStall.soft.window", "window"},
			"history (39s) must reach back over plugins.memoryStall.soft.window (30s) and window (10s) together",
		},
		"a rule looks back further than history": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Window = 111 * time.Second },
			[]string{"history", "plugins.memoryStall.hard.window", "window"},
			"history (2m) must reach back over plugins.memoryStall.hard.window (1m51s) and window (10s) together",
		},
		"history that fills the memory": {
			func(a *Agent) { a.Tick, a.History = 100*time.Millisecond, time.Hour },
			[]string{"history", "tick"},
			"history (1h) must not hold more than 7200 ticks (100ms)",
		},
		"a rule shorter than a tick": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Window = 0 },
			[]string{"plugins.memoryStall.hard.window", "tick"},
			"plugins.memoryStall.hard.window (0s) must be at least tick (1s)",
		},
		"negative warm-up": {
			func(a *Agent) { a.Plugins.WarmUp = -time.Second },
			[]string{"plugins.warmUp"},
			"-1s is not between 0s and 24h",
		},
		"longer to be over than history reaches": {
			func(a *Agent) { a.Plugins.MemoryStall.ClearFor = 2 * time.Minute },
			[]string{"history", "plugins.memoryStall.clearFor", "window"},
			"history (2m) must reach back over plugins.memoryStall.clearFor (2m) and window (10s) together",
		},
		"a rule over at once": {
			func(a *Agent) { a.Plugins.MemoryStall.ClearFor = 0 },
			[]string{"plugins.memoryStall.clearFor", "tick"},
			"plugins.memoryStall.clearFor (0s) must be at least tick (1s)",
		},
		"always met": {
			func(a *Agent) { a.Plugins.MemoryStall.Soft.StallFull = 0 },
			[]string{"plugins.memoryStall.soft.stallFull"},
			"0 would always be met: to turn the rule off, set enabled: false",
		},
		"a disk's rule over at once": {
			func(a *Agent) { a.Plugins.DiskContention.ClearFor = 0 },
			[]string{"plugins.diskContention.clearFor", "tick"},
			"plugins.diskContention.clearFor (0s) must be at least tick (1s)",
		},
		"a disk that is never slow": {
			func(a *Agent) { a.Plugins.DiskContention.AwaitRotational = 2 * time.Hour },
			[]string{"plugins.diskContention.awaitRotational"},
			"2h is not between 1µs and 1h",
		},
		"a disk that is always slow": {
			func(a *Agent) { a.Plugins.DiskContention.Factor = 0 },
			[]string{"plugins.diskContention.factor"},
			"0 is not between 1 and 1000",
		},
		"a link's rule that always holds": {
			func(a *Agent) { a.Plugins.NetworkContention.Retransmits = 0 },
			[]string{"plugins.networkContention.retransmits"},
			"0 would always be met: to turn the rule off, set enabled: false",
		},
		"any link is full": {
			func(a *Agent) { a.Plugins.NetworkContention.Utilization = 0 },
			[]string{"plugins.networkContention.utilization"},
			"0 would always be met: to turn the rule off, set enabled: false",
		},
		"a link's rule looks back further than history": {
			func(a *Agent) { a.Plugins.NetworkContention.Window = 111 * time.Second },
			[]string{"history", "plugins.networkContention.window", "window"},
			"history (2m) must reach back over plugins.networkContention.window (1m51s) and window (10s) together",
		},
		"a link without a speed": {
			func(a *Agent) { a.Network.Devices = []probes.NetworkDevice{{Name: "eth0"}} },
			[]string{"network.devices[0].speed"},
			"0 is not between 1 and 10000000",
		},
		"a link without a name": {
			func(a *Agent) { a.Network.Devices = []probes.NetworkDevice{{Speed: 1}} },
			[]string{"network.devices[0].name"},
			"want the name of a device, such as eth0",
		},
		"a link of two speeds": {
			func(a *Agent) {
				a.Network.Devices = []probes.NetworkDevice{{Name: "eth0", Speed: 1}, {Name: "eth1", Speed: 1}, {Name: "eth0", Speed: 2}}
			},
			[]string{"network.devices[2].name"},
			`"eth0" is named twice`,
		},
		"a filesystem's rule that never holds": {
			func(a *Agent) { a.Plugins.Filesystem.Available, a.Plugins.Filesystem.FilesFree = 0, 0 },
			[]string{"plugins.filesystem.available", "plugins.filesystem.filesFree"},
			"0 for both would never be met: to turn the rule off, set enabled: false",
		},
		"any filesystem is full": {
			func(a *Agent) { a.Plugins.Filesystem.Available = 1 },
			[]string{"plugins.filesystem.available"},
			"1 would always be met: every file takes some space",
		},
		"any filesystem has too many files": {
			func(a *Agent) { a.Plugins.Filesystem.FilesFree = 1 },
			[]string{"plugins.filesystem.filesFree"},
			"1 would always be met: the root directory is one",
		},
		"nothing is enough": {
			func(a *Agent) { a.Plugins.Filesystem.Enough = 0 },
			[]string{"plugins.filesystem.enough"},
			"0 would never be met: available: 0 turns this half of the rule off",
		},
		"no files are enough": {
			func(a *Agent) { a.Plugins.Filesystem.EnoughFiles = 0 },
			[]string{"plugins.filesystem.enoughFiles"},
			"0 is not between 1 and 1099511627776",
		},
		"a filesystem's values are too old before they are new": {
			func(a *Agent) { a.Filesystems.Every = 31 * time.Second },
			[]string{"plugins.filesystem.maxAge", "filesystems.every"},
			"plugins.filesystem.maxAge (1m) must be at least 2 × filesystems.every (31s)",
		},
		"a filesystem's level over at once": {
			func(a *Agent) {
				a.Tick, a.Window, a.Plugins.Filesystem.ClearFor = 2*time.Second, 4*time.Second, time.Second
				a.Eviction.Round = time.Minute
			},
			[]string{"plugins.filesystem.clearFor", "tick"},
			"plugins.filesystem.clearFor (1s) must be at least tick (2s)",
		},
		"a storm of nothing": {
			func(a *Agent) { a.Plugins.OOMStorm.Kills = 0 },
			[]string{"plugins.oomStorm.kills"},
			"0 is not between 1 and 1000",
		},
		"hard easier by kills": {
			func(a *Agent) { a.Plugins.OOMStorm.HardKills = 2 },
			[]string{"plugins.oomStorm.hardKills", "plugins.oomStorm.kills"},
			"hard must not be easier to reach than soft: hardKills 2 is less than kills 3",
		},
		"a storm further back than history": {
			func(a *Agent) { a.Plugins.OOMStorm.Enabled, a.Plugins.OOMStorm.Window = true, 2*time.Minute },
			[]string{"history", "plugins.oomStorm.window", "window"},
			"history (2m) must reach back over plugins.oomStorm.window (2m) and window (10s) together",
		},
		"waiting for nothing": {
			func(a *Agent) { a.Plugins.CPUContention.Waiting = 0 },
			[]string{"plugins.cpuContention.waiting"},
			"0 would be met by a healthy node: to turn the rule off, set enabled: false",
		},
		"a supply that nobody is below": {
			func(a *Agent) { a.Plugins.CPUSuppression.Supply = 0 },
			[]string{"plugins.cpuSuppression.supply"},
			"0 would never be met: to turn the rule off, set enabled: false",
		},
		"who sleeps waits": {
			func(a *Agent) { a.Plugins.CPUSuppression.Waiting = 0 },
			[]string{"plugins.cpuSuppression.waiting"},
			"0 would be met by an idle pod",
		},
		"a ceiling of nothing": {
			func(a *Agent) { a.Plugins.DiskContention.Ceilings = []plugins.DiskCeiling{{Device: "sda"}} },
			[]string{"plugins.diskContention.ceilings[0].iops", "plugins.diskContention.ceilings[0].bytesPerSecond"},
			"0 for both would never be met: leave the disk out",
		},
		"two ceilings of one disk": {
			func(a *Agent) {
				a.Plugins.DiskContention.Ceilings = []plugins.DiskCeiling{{Device: "sda", IOPS: 1}, {Device: "sda", IOPS: 2}}
			},
			[]string{"plugins.diskContention.ceilings[1].device"},
			`"sda" is named twice`,
		},
		"no rate of what is lent": {
			func(a *Agent) {
				a.Plugins.ReclaimedOvercommit.CPURate, a.Plugins.ReclaimedOvercommit.SoftCPURate = 0, 0
			},
			[]string{"plugins.reclaimedOvercommit.cpuRate"},
			"0 is not between 1 and 10000",
		},
		"reclaimed CPUs harder at soft": {
			func(a *Agent) { a.Plugins.ReclaimedOvercommit.SoftCPURate = 121 },
			[]string{"plugins.reclaimedOvercommit.cpuRate", "plugins.reclaimedOvercommit.softCpuRate"},
			"hard must not be easier to reach than soft: cpuRate 120 is less than softCpuRate 121",
		},
		"reclaimed memory harder at soft": {
			func(a *Agent) { a.Plugins.ReclaimedOvercommit.SoftMemoryRate = 111 },
			[]string{"plugins.reclaimedOvercommit.memoryRate", "plugins.reclaimedOvercommit.softMemoryRate"},
			"hard must not be easier to reach than soft: memoryRate 110 is less than softMemoryRate 111",
		},
		"a NUMA node hard easier by what is available": {
			func(a *Agent) { a.Plugins.NUMAMemory.Hard.Available = 0.11 },
			[]string{"plugins.numaMemory.hard.available", "plugins.numaMemory.soft.available"},
			"hard must not be easier to reach than soft: available 0.11 is more than 0.1",
		},
		"a NUMA node watched for longer than samples are kept": {
			func(a *Agent) {
				a.Plugins.NUMAMemory.Enabled = true
				a.Plugins.NUMAMemory.Soft.Window = a.History
			},
			[]string{"history", "plugins.numaMemory.soft.window", "window"},
			"history (2m) must reach back over plugins.numaMemory.soft.window (2m) and window (10s) together",
		},
		"root filesystems judged by values that are always too old": {
			func(a *Agent) {
				a.Plugins.RootfsOveruse.Enabled = true
				a.ContainerRuntime.Every = 61 * time.Second
			},
			[]string{"plugins.rootfsOveruse.maxAge", "containerRuntime.every"},
			"plugins.rootfsOveruse.maxAge (2m) must be at least 2 × containerRuntime.every (1m1s)",
		},
		"a container runtime that may answer after it is asked again": {
			func(a *Agent) { a.ContainerRuntime.Timeout = 31 * time.Second },
			[]string{"containerRuntime.every", "containerRuntime.timeout"},
			"timeout (31s) must not be longer than every (30s)",
		},
		"a rate below zero": {
			func(a *Agent) { a.Plugins.RSSOveruse.Rate = -1 },
			[]string{"plugins.rssOveruse.rate"},
			"-1 is not between 0 and 10000",
		},
		"hard easier by stall": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.StallFull = 0.09 },
			[]string{"plugins.memoryStall.hard.stallFull", "plugins.memoryStall.soft.stallFull"},
			"hard must not be easier to reach than soft: stallFull 0.09 is less than 0.1",
		},
		"hard easier by available memory": {
			func(a *Agent) { a.Plugins.MemoryStall.Hard.Available = 0.11 },
			[]string{"plugins.memoryStall.hard.available", "plugins.memoryStall.soft.available"},
			"hard must not be easier to reach than soft: available 0.11 is more than 0.1",
		},
		"floors beyond any memory": {
			func(a *Agent) { a.Plugins.MemoryStall.KubeletEvictionHard = math.MaxUint64 },
			[]string{"plugins.memoryStall.kubeletEvictionHard"},
			"more than 1Pi of memory",
		},
		"a user ID with leading zeros": {
			func(a *Agent) { a.Plugins.Uids = []string{"0", "01000"} },
			[]string{"plugins.uids[1]"},
			`want a user ID in digits without leading zeros, got "01000"`,
		},
		"a recording in the state directory": {
			func(a *Agent) { a.Recording.Dir, a.State.Dir = "/a", "/a" },
			[]string{"recording.dir", "state.dir"},
			"want two directories: each is locked by its writer",
		},
		"recording too small": {
			func(a *Agent) { a.Recording.MaxSize = 2*a.Recording.SegmentSize - 1 },
			[]string{"recording.maxSize", "recording.segmentSize"},
			"recording.maxSize (33554431) must be at least 2 × recording.segmentSize (16Mi): a segment is deleted as a whole",
		},
		"segments too small": {
			func(a *Agent) { a.Recording.SegmentSize = 64<<10 - 1 },
			[]string{"recording.segmentSize"},
			"65535 is less than 64Ki: too small for more than a few samples",
		},
		"segments older than the recording": {
			func(a *Agent) { a.Recording.SegmentAge, a.Recording.MaxAge = 2*time.Hour, time.Hour },
			[]string{"recording.maxAge", "recording.segmentAge"},
			"recording.maxAge (1h) must be at least recording.segmentAge (2h)",
		},
		"a floor that is never reached": {
			func(a *Agent) { a.Recording.MinAvailable = 1 },
			[]string{"recording.minAvailable"},
			"1 is not between 0 and 0.9",
		},
		"level": {
			func(a *Agent) { a.Log.Level = "" },
			[]string{"log.level"},
			`want one of debug, info, warn, error, got ""`,
		},
		"format": {
			func(a *Agent) { a.Log.Format = "xml" },
			[]string{"log.format"},
			`want one of text, json, got "xml"`,
		},
		"second address": {
			func(a *Agent) { a.Web.ListenAddresses = []string{":0", "localhost"} },
			[]string{"web.listenAddresses[1]"},
			`want host:port (IPv6 as [::1]:9773), got "localhost"`,
		},
		"second root": {
			func(a *Agent) { a.Workloads.Roots = []string{"/", "kubepods"} },
			[]string{"workloads.roots[1]"},
			`want an absolute path without .., // or a slash at its end, got "kubepods"`,
		},
		"filesystems asked without a pause": {
			func(a *Agent) { a.Filesystems.Every = 0 },
			[]string{"filesystems.every"},
			"0s is not between 1s and 24h",
		},
		"filesystems that must answer at once": {
			func(a *Agent) { a.Filesystems.Timeout = time.Millisecond },
			[]string{"filesystems.timeout"},
			"1ms is not between 100ms and 1m",
		},
		"socket path too long": {
			func(a *Agent) { a.API.Socket = "/" + strings.Repeat("x", 107) },
			[]string{"api.socket"},
			"longer than the 107 bytes a Unix socket's path can have",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent := Default()
			tt.change(&agent)
			assert.Equal(t, problems.List{{Keys: tt.keys, Reason: tt.why}}, agent.Validate())
		})
	}
}

func TestValidateAtBounds(t *testing.T) {
	a := Default()
	a.Tick, a.Window, a.Watchdog, a.Eviction.Round = 2*time.Second, 4*time.Second, 20*time.Second, 2*time.Second
	a.History = 34 * time.Second
	a.Plugins.MemoryStall.Hard = a.Plugins.MemoryStall.Soft
	a.Plugins.MemoryStall.KubeletEvictionHard = 1 << 50
	a.Plugins.WarmUp, a.Plugins.MemoryStall.ClearFor = 0, 2*time.Second
	a.Plugins.OOMStorm.Window, a.Plugins.OOMStorm.HardKills = time.Hour, 3 // rules that are off look back nowhere
	a.Plugins.NetworkContention.Enabled, a.Plugins.NetworkContention.Window = false, time.Hour
	a.Plugins.CPUContention.For = 0
	a.Plugins.Filesystem.FilesFree, a.Plugins.Filesystem.EnoughFiles = 0, 0
	a.Filesystems.Every, a.Plugins.Filesystem.For = 30*time.Second, 0
	a.Recording.MaxSize, a.Recording.SegmentSize, a.Recording.MaxAge, a.Recording.MinAvailable = 128<<10, 64<<10, a.Recording.SegmentAge, 0
	a.API.Socket = "/" + strings.Repeat("x", 106)
	assert.Empty(t, a.Validate())
	a = Default()
	a.Plugins.Filesystem.Available, a.Plugins.Filesystem.Enough = 0, 0
	assert.Empty(t, a.Validate(), "files alone are judged")
}

func TestValidateOverflow(t *testing.T) {
	a := Default()
	a.Tick = math.MaxInt64
	var keys []string
	for _, p := range a.Validate() {
		keys = append(keys, p.Keys[0])
	}
	assert.Subset(t, keys, []string{"tick", "window", "watchdog", "eviction.round"})
}

func TestValidateAddress(t *testing.T) {
	for _, good := range []string{":0", ":9773", "127.0.0.1:9773", "[::1]:65535", "localhost:1", "[fe80::1%eth0]:1"} {
		assert.Empty(t, addressProblem(good), good)
	}
	for _, bad := range []string{"", "9773", "localhost", "::1:9773", "a:b", ":65536", ":-1", ":+1", ":", ":http", "http://a:1", "a b:1", "[::1]"} {
		assert.NotEmpty(t, addressProblem(bad), bad)
	}
}

func TestValidatePath(t *testing.T) {
	for _, bad := range []string{"proc", "/proc/", "//proc", "/a/../proc", "/a/.", "."} {
		a := Default()
		a.Paths = Paths{bad, bad, bad, bad}
		a.API.Socket, a.Recording.Dir, a.Workloads.Roots, a.Filesystems.Mounts = bad, bad, []string{bad}, []string{"/", bad}
		a.Filesystems.Kubelet, a.Filesystems.Runtimes = bad, []string{"/x", bad}
		var keys []string
		for _, p := range a.Validate() {
			keys = append(keys, p.Keys...)
		}
		assert.Equal(t, []string{
			"paths.procfs", "paths.sysfs", "paths.cgroupfs", "paths.rootfs", "api.socket", "workloads.roots[0]",
			"filesystems.kubelet", "filesystems.runtimes[1]", "filesystems.mounts[1]", "recording.dir",
		}, keys, bad)
	}
	a := Default()
	a.Paths = Paths{}
	assert.Len(t, a.Validate(), 2, "procfs and sysfs are not searched for")
}

// eachValue visits the values of a document with their paths. A list of structs has one
// element then, with zero values.
func eachValue(path string, v reflect.Value, visit func(path string, v reflect.Value)) {
	visit(path, v)
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		eachValue(path, v.Elem(), visit)
	case isStructList(v.Type()):
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		eachValue(path+"[0]", v.Index(0), visit)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			key, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			if options == "inline" {
				eachValue(path, v.Field(i), visit)
				continue
			}
			eachValue(strings.TrimPrefix(path+"."+key, "."), v.Field(i), visit)
		}
	}
}

func documents() map[string]Document {
	return map[string]Document{"agent": new(Default()), "controller": new(DefaultController())}
}

// A number that nothing bounds lets a typo stop the program, or a threshold never be
// met.
func TestValidateBoundsEachNumber(t *testing.T) {
	unbounded := map[string][]int64{
		"controller/vgdp.diagnoseAfter":         {math.MaxInt64},     // however long: then there is no diagnosis
		"agent/eviction.protect.priority":       {math.MinInt64, -1}, // pods may have negative priorities
		"controller/agents.protect.priority":    {math.MinInt64, -1},
		"controller/backups.deadlines.priority": {-1}, // Backups may have negative priorities
	}
	for kind, document := range documents() {
		eachValue("", structOf(document), func(path string, v reflect.Value) {
			if !v.CanInt() {
				return
			}
			was := v.Int()
			defer v.SetInt(was)
			for _, value := range []int64{math.MaxInt64, math.MinInt64, -1} {
				v.SetInt(value)
				named := slices.ContainsFunc(document.Validate(), func(p problems.Problem) bool { return slices.Contains(p.Keys, path) })
				assert.Equal(t, !slices.Contains(unbounded[kind+"/"+path], value), named, "%s %s: %d is refused", kind, path, value)
			}
		})
	}
}

// spoil makes each value one that must not be used, as far as there is one.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MaxInt64)
	case reflect.Uint64:
		v.SetUint(0)
	case reflect.Float64:
		v.SetFloat(-1)
	case reflect.String:
		v.SetString("\x00")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2)) // the same twice
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			spoil(field)
		}
	}
}

// A section that is not asked accepts every typo.
func TestValidateAsksEachSection(t *testing.T) {
	for kind, document := range documents() {
		sections := 0
		eachValue("", structOf(document), func(path string, v reflect.Value) {
			s, is := reflect.TypeAssert[section](v.Addr())
			if !is || v.Kind() != reflect.Struct {
				return
			}
			sections++
			was := reflect.New(v.Type()).Elem()
			was.Set(v)
			defer v.Set(was)
			spoil(v)
			var own problems.List
			s.Validate(own.At(path))
			assert.NotEmpty(t, own, "%s %s: %s accepts everything", kind, path, v.Type())
			assert.Subset(t, document.Validate(), own, "%s %s: %s is not asked", kind, path, v.Type())
		})
		assert.Greater(t, sections, 8, kind)
	}
}

// pointed is a section whose method needs a pointer.
type pointed struct {
	Count int `yaml:"count" why:"A count."`
}

func (p *pointed) Validate(at problems.Section) { at.Int("count", p.Count, 1, 9) }

// pointers is a document of such sections.
type pointers struct {
	One  pointed   `yaml:"one" why:"One."`
	List []pointed `yaml:"list" why:"Several."`
}

func (pointers) Kind() string { return Agent{}.Kind() }

func (p pointers) Validate() problems.List { return ofSections(p) }

func TestValidatePointerReceivers(t *testing.T) {
	var keys []string
	for _, p := range (pointers{List: []pointed{{Count: 1}, {}}}).Validate() {
		keys = append(keys, p.Keys...)
	}
	assert.Equal(t, []string{"one.count", "list[1].count"}, keys)
}
