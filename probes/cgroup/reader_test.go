package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// cgroupTree writes files, by path, below a new directory.
func cgroupTree(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for name, content := range files {
		path := filepath.Join(top, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return top
}

// cgroupRecording unpacks what testdata/record.sh wrote.
func cgroupRecording(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	files := map[string]string{}
	file := ""
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, " --\n"), "-- "); ok {
			file = path
			files[file] = ""
		} else if file != "" {
			files[file] += line
		}
	}
	return cgroupTree(t, files)
}

func mustFind(t *testing.T, root string, roots ...string) *Reader {
	t.Helper()
	c, err := Find("/proc", root, roots)
	require.NoError(t, err)
	c.proc = t.TempDir() // the processes in a made-up tree are not this machine's
	t.Cleanup(c.Close)
	return c
}

func mustRead(t *testing.T, c *Reader) []snapshot.Workload {
	t.Helper()
	// An hour later, all that is kept is due to be read anew.
	workloads, err := c.Read(c.now + time.Hour)
	require.NoError(t, err)
	return workloads
}

func cgroupPaths(workloads []snapshot.Workload) []string {
	var paths []string
	for _, w := range workloads {
		paths = append(paths, w.Cgroup)
	}
	return paths
}

// diffWorkload compares all but the inode, which a fixture cannot choose, and
// the network, which is not among a cgroup's files.
func diffWorkload(want, got snapshot.Workload) string {
	got.Absent = maps.Clone(got.Absent)
	delete(got.Absent, nameNetwork)
	if len(got.Absent) == 0 {
		got.Absent = nil
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(snapshot.Opt[uint64]{}, snapshot.Opt[snapshot.WorkloadNetwork]{}), cmpopts.IgnoreFields(snapshot.Workload{}, "Inode", "At", "DetailAt", "StatAt", "ThrottledAt", "series"))
}

func TestCgroupRecordedHybrid(t *testing.T) {
	c := mustFind(t, cgroupRecording(t, "hybrid-recorded.txt"))
	assert.Equal(t, "hybrid", c.Flavour())
	got := mustRead(t, c)
	const pod = "/plimsoll-record/kubepods/burstable/pod6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11"
	require.Equal(t, []string{"/plimsoll-record/cron.service", pod}, cgroupPaths(got), "the pod's container is part of the pod")

	assert.Empty(t, diffWorkload(snapshot.Workload{
		Cgroup: pod, Kind: snapshot.KindPod, PodUID: "6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11", Name: "pod 6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11",
		MemoryBytes: u64(876544), InactiveFileBytes: u64(0), RSSBytes: u64(114688), Charged: u64(771), SwapBytes: u64(0), MemoryLimitBytes: u64(268435456), LimitHits: u64(0), OOMKills: u64(0),
		CPUMicroseconds:       u64(208376),
		ThrottledMicroseconds: u64(414571), // of the container: the pod's own file says 0
		IO:                    []snapshot.WorkloadIO{{Number: "254:0", Reads: 32, Writes: 8, ReadBytes: 32 << 20, WrittenBytes: 8 << 20}},
		Pressure: snapshot.Pressure{
			CPU:    snapshot.Stall{Some: u64(404734), Full: u64(404693)},
			Memory: snapshot.Stall{Some: u64(0), Full: u64(0)},
			IO:     snapshot.Stall{Some: u64(12993), Full: u64(12993)},
		},
	}, got[1]))
	off := "PSI is disabled for this cgroup (cgroup.pressure is 0)"
	assert.Empty(t, diffWorkload(snapshot.Workload{
		Cgroup: "/plimsoll-record/cron.service", Kind: snapshot.KindService, Name: "cron.service",
		MemoryBytes: u64(331776), InactiveFileBytes: u64(0), RSSBytes: u64(110592), Charged: u64(136), SwapBytes: u64(0), LimitHits: u64(0), OOMKills: u64(0),
		CPUMicroseconds: u64(1964), ThrottledMicroseconds: u64(0),
		Pressure: snapshot.Pressure{Absent: snapshot.Absent{"cpu": off, "memory": off, "io": off}},
		Absent:   snapshot.Absent{"io": whyBlkioInactive},
	}, got[0]))
}

// madeUpV2 is one whole cgroup of v2, made up: a pod with two containers, of
// which one is throttled.
func madeUpV2() map[string]string {
	const pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f7c1c9e_3f0a.slice/"
	return map[string]string{
		"cgroup.controllers":           "cpu io memory\n",
		"cgroup.procs":                 "1\n2\n",
		"kubepods.slice/cgroup.procs":  "",
		pod + "cgroup.procs":           "",
		pod + "memory.current":         "104857600\n",
		pod + "memory.max":             "209715200\n",
		pod + "memory.swap.current":    "12288\n",
		pod + "memory.stat":            "anon 1\nfile 2\ninactive_file 4096\npgsteal 9\nactive_file 3\n",
		pod + "memory.events":          "low 0\nhigh 5\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n",
		pod + "cpu.stat":               "usage_usec 5000000\nuser_usec 1\nsystem_usec 2\nnr_periods 0\nnr_throttled 0\nthrottled_usec 10\n",
		pod + "io.stat":                "7:1 7:0 8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n253:0 \n",
		pod + "cpu.pressure":           "some avg10=0.00 avg60=0.00 avg300=0.00 total=10\n",
		pod + "memory.pressure":        "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=15\n",
		pod + "io.pressure":            "some avg10=0.00 avg60=0.00 avg300=0.00 total=30\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=25\n",
		pod + "cgroup.pressure":        "1\n",
		pod + "a.scope/cgroup.procs":   "100\n",
		pod + "a.scope/cpu.stat":       "usage_usec 1\nthrottled_usec 700\n",
		pod + "b.scope/cgroup.procs":   "101\n",
		pod + "b.scope/cpu.stat":       "usage_usec 1\n",
		pod + "b.scope/sub/cpu.stat":   "usage_usec 1\nthrottled_usec 1\n",
		"system.slice/cgroup.procs":    "",
		"cron/cgroup.procs":            "77\n",
		"cron/cpu.stat":                "usage_usec 9\n",
		"system.slice/s/cgroup.procs":  "",
		"system.slice/s/t/cgroup.type": "threaded\n",
	}
}

const madeUpPod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f7c1c9e_3f0a.slice"

func wantMadeUpPod() snapshot.Workload {
	return snapshot.Workload{
		Cgroup: madeUpPod, Kind: snapshot.KindPod, PodUID: "6f7c1c9e-3f0a", Name: "pod 6f7c1c9e-3f0a",
		MemoryBytes: u64(104857600), InactiveFileBytes: u64(4096), RSSBytes: u64(1), Reclaimed: u64(9), SwapBytes: u64(12288), MemoryLimitBytes: u64(209715200), LimitHits: u64(7), OOMKills: u64(1),
		CPUMicroseconds: u64(5000000), ThrottledMicroseconds: u64(711),
		IO: []snapshot.WorkloadIO{{Number: "8:0", Reads: 1, Writes: 2, ReadBytes: 4096, WrittenBytes: 8192}},
		Pressure: snapshot.Pressure{
			CPU: snapshot.Stall{Some: u64(10)}, Memory: snapshot.Stall{Some: u64(20), Full: u64(15)}, IO: snapshot.Stall{Some: u64(30), Full: u64(25)},
		},
	}
}

func TestCgroupV2Pod(t *testing.T) {
	c := mustFind(t, cgroupTree(t, madeUpV2()))
	assert.Equal(t, "v2", c.Flavour())
	got := mustRead(t, c)
	require.Equal(t, []string{"/cron", madeUpPod}, cgroupPaths(got))
	assert.Empty(t, diffWorkload(wantMadeUpPod(), got[1]))
	assert.NotZero(t, got[1].Inode)
	assert.NotEqual(t, got[0].Inode, got[1].Inode)
}

func TestCgroupWithoutControllers(t *testing.T) {
	got := mustRead(t, mustFind(t, cgroupTree(t, madeUpV2())))
	assert.Empty(t, diffWorkload(snapshot.Workload{
		Cgroup: "/cron", Kind: snapshot.KindOther, Name: "/cron", CPUMicroseconds: u64(9),
		Pressure: snapshot.Pressure{Absent: snapshot.Absent{"cpu": psi.WhyNone, "memory": psi.WhyNone, "io": psi.WhyNone}},
		Absent: snapshot.Absent{
			"memory":                     "the memory controller is not enabled for this cgroup",
			"io":                         "the io controller is not enabled for this cgroup",
			"throttledMicrosecondsTotal": "the cpu controller is not enabled for this cgroup",
		},
	}, got[0]))
}

// spoil replaces one file of the made-up pod by one with a real read error
// (EIO), or by malformed content.
func spoil(t *testing.T, file, content string) snapshot.Workload {
	t.Helper()
	top := cgroupTree(t, madeUpV2())
	path := filepath.Join(top, madeUpPod, file)
	require.NoError(t, os.Remove(path))
	if content == "EIO" {
		require.NoError(t, os.Symlink("/proc/self/mem", path))
	} else {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return mustRead(t, mustFind(t, top))[1]
}

func TestCgroupReadErrorCostsItsValue(t *testing.T) {
	const eio = ": input/output error"
	none := snapshot.Opt[uint64]{}
	for file, change := range map[string]func(w *snapshot.Workload){
		"memory.current": func(w *snapshot.Workload) {
			w.MemoryBytes, w.Absent = none, snapshot.Absent{"memoryBytes": "memory.current" + eio}
		},
		"memory.stat": func(w *snapshot.Workload) {
			w.InactiveFileBytes, w.RSSBytes, w.Reclaimed = none, none, none
			w.Absent = snapshot.Absent{"inactiveFileBytes": "memory.stat" + eio, "rssBytes": "memory.stat" + eio, "reclaimedTotal": "memory.stat" + eio}
		},
		"memory.max": func(w *snapshot.Workload) {
			w.MemoryLimitBytes, w.Absent = none, snapshot.Absent{"memoryLimitBytes": "memory.max" + eio}
		},
		"memory.events": func(w *snapshot.Workload) {
			w.LimitHits, w.OOMKills = none, none
			w.Absent = snapshot.Absent{"limitHitsTotal": "memory.events" + eio, "oomKillsTotal": "memory.events" + eio}
		},
		"cpu.stat": func(w *snapshot.Workload) {
			w.CPUMicroseconds, w.ThrottledMicroseconds = none, none
			w.Absent = snapshot.Absent{"cpuMicrosecondsTotal": "cpu.stat" + eio, "throttledMicrosecondsTotal": "cpu.stat" + eio}
		},
		"a.scope/cpu.stat": func(w *snapshot.Workload) {
			w.ThrottledMicroseconds = none
			w.Absent = snapshot.Absent{"throttledMicrosecondsTotal": "child cgroup: cpu.stat" + eio}
		},
		"io.stat": func(w *snapshot.Workload) { w.IO, w.Absent = nil, snapshot.Absent{"io": "io.stat" + eio} },
		"io.pressure": func(w *snapshot.Workload) {
			w.Pressure.IO, w.Pressure.Absent = snapshot.Stall{}, snapshot.Absent{"io": "io.pressure" + eio}
		},
	} {
		t.Run(file, func(t *testing.T) {
			want := wantMadeUpPod()
			change(&want)
			assert.Empty(t, diffWorkload(want, spoil(t, file, "EIO")))
		})
	}
}

func TestCgroupOddContent(t *testing.T) {
	none := snapshot.Opt[uint64]{}
	for name, c := range map[string]struct {
		file, content string
		change        func(w *snapshot.Workload)
	}{
		"no limit is no fault": {"memory.max", "max\n", func(w *snapshot.Workload) { w.MemoryLimitBytes = none }},
		"an odd line of io.stat leaves the other devices": {"io.stat", "sda rbytes=1 wbytes=1 rios=1 wios=1\n8:0 rbytes=4096 wbytes=8192 rios=1 wios=2\n", func(w *snapshot.Workload) {
			w.Absent = snapshot.Absent{"io": `io.stat: line "sda rbytes=1 wbytes=1 rios=1 wios=1": counters without a device number`}
		}},
		"the path of a multipath is no fault":            {"io.stat", "(unknown) rbytes=0 wbytes=0 rios=1 wios=1\n8:0 rbytes=4096 wbytes=8192 rios=1 wios=2\n", func(w *snapshot.Workload) {}},
		"an odd line of cpu.stat leaves the other lines": {"cpu.stat", "core_sched.force_idle_usec -\nusage_usec 5000000\nthrottled_usec 10\n", func(w *snapshot.Workload) {}},
		"an old kernel without oom_kill": {"memory.events", "low 0\nhigh 5\nmax 2\n", func(w *snapshot.Workload) {
			w.OOMKills, w.Absent = none, snapshot.Absent{"oomKillsTotal": "no oom_kill in memory.events"}
		}},
		"a sum that does not fit": {"memory.events", "high 18446744073709551615\nmax 1\noom_kill 1\n", func(w *snapshot.Workload) {
			w.LimitHits, w.Absent = none, snapshot.Absent{"limitHitsTotal": "number above 2^64-1"}
		}},
		"a number that is none": {"memory.current", "lots\n", func(w *snapshot.Workload) {
			w.MemoryBytes, w.Absent = none, snapshot.Absent{"memoryBytes": `memory.current: line "lots\n": not a decimal number`}
		}},
		"a value of one key that is none": {"memory.stat", "inactive_file x\n", func(w *snapshot.Workload) {
			const why = `memory.stat: line "inactive_file x": not a decimal number`
			w.InactiveFileBytes, w.RSSBytes, w.Reclaimed = none, none, none
			w.Absent = snapshot.Absent{"inactiveFileBytes": why, "rssBytes": why, "reclaimedTotal": why}
		}},
		"an empty pressure file": {"cpu.pressure", "", func(w *snapshot.Workload) {
			w.Pressure.CPU, w.Pressure.Absent = snapshot.Stall{}, snapshot.Absent{"cpu": "cpu.pressure: no line \"some\""}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := wantMadeUpPod()
			c.change(&want)
			assert.Empty(t, diffWorkload(want, spoil(t, c.file, c.content)))
		})
	}
}

func TestCgroupLongFile(t *testing.T) {
	long := strings.Repeat("some_other_key 123456789\n", 20_000) + "anon 1\ninactive_file 4096\npgsteal 9\n"
	assert.Empty(t, diffWorkload(wantMadeUpPod(), spoil(t, "memory.stat", long)))
	endless := strings.Repeat("x", 2*maxText)
	assert.Equal(t, "memory.stat: longer than 8388608 bytes", spoil(t, "memory.stat", endless).Absent["rssBytes"])
}

func TestCgroupPSIOffForOneToldApart(t *testing.T) {
	files := madeUpV2()
	delete(files, madeUpPod[1:]+"/io.pressure")
	got := mustRead(t, mustFind(t, cgroupTree(t, files)))[1]
	assert.Equal(t, snapshot.Absent{"io": psi.WhyNone}, got.Pressure.Absent)

	files[madeUpPod[1:]+"/cgroup.pressure"] = "0\n"
	got = mustRead(t, mustFind(t, cgroupTree(t, files)))[1]
	assert.Equal(t, snapshot.Absent{"io": psi.WhyOffForCgroup}, got.Pressure.Absent)
	assert.Equal(t, snapshot.Stall{}, got.Pressure.IO)
	assert.Equal(t, snapshot.Stall{Some: u64(10)}, got.Pressure.CPU)
}

func u64(n uint64) snapshot.Opt[uint64] { return snapshot.Some(n) }
