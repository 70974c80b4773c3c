package plugins

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	rootfsDir  = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
	rootfsSize = 100 * gib
)

// rootfsNode is a made-up node whose container runtime has a filesystem of 100 GiB and
// ten million inodes.
type rootfsNode struct {
	*podNode
	fs snapshot.Rootfs
	// age of what the runtime reports.
	age    time.Duration
	silent bool // it never answered
	// answered is when it answered last; 0: now, but for age.
	answered time.Duration
}

func newRootfsNode(t *testing.T, change ...func(*RootfsOveruse)) *rootfsNode {
	t.Helper()
	c := Config{RootfsOveruse: DefaultRootfsOveruse()}
	c.RootfsOveruse.Enabled = true
	for _, f := range change {
		f(&c.RootfsOveruse)
	}
	return &rootfsNode{podNode: newPodNode(t, c), fs: snapshot.Rootfs{
		Mountpoint: rootfsDir, SizeBytes: snapshot.Some[uint64](rootfsSize), AvailableBytes: snapshot.Some[uint64](60 * gib),
		Files: snapshot.Some[uint64](10_000_000), FilesFree: snapshot.Some[uint64](9_000_000),
	}}
}

// uses adds a pod whose root filesystem uses so much.
func (w *rootfsNode) uses(name string, p snapshot.Pod, bytes, files uint64) *rootfsNode {
	w.pod(name, p)
	w.fs.Pods = append(w.fs.Pods, snapshot.PodRootfs{PodUID: name, UsedBytes: snapshot.Some(bytes), FilesUsed: snapshot.Some(files)})
	return w
}

// left on the filesystem from now on.
func (w *rootfsNode) left(bytes, files uint64) *rootfsNode {
	w.fs.AvailableBytes, w.fs.FilesFree = snapshot.Some(bytes), snapshot.Some(files)
	return w
}

// tick is a second.
func (w *rootfsNode) tick() []Verdict {
	w.t.Helper()
	return w.second(func(s *snapshot.Sample) {
		s.Workloads = append(s.Workloads, w.list...)
		if !w.silent {
			fs := w.fs
			fs.Pods = slices.Clone(fs.Pods)
			fs.At = cmp.Or(w.answered, s.Monotonic-w.age)
			s.Rootfs = &fs
		}
		if !w.standalone {
			s.Cluster = snapshot.NewCluster(append([]snapshot.Pod{}, w.pods...), w.reclaimable, w.absent)
		}
	})
}

// ticks is the last of so many; the first verdict is that of space, the second that of
// inodes.
func (w *rootfsNode) ticks(n int) (list []Verdict) {
	w.t.Helper()
	for range n {
		list = w.tick()
	}
	return list
}

func namesOf(v Verdict) (names []string) {
	for _, c := range v.Candidates {
		names = append(names, c.Name)
	}
	return names
}

func TestRootfsOveruse(t *testing.T) {
	t.Run("levels", rootfsLevels)
	t.Run("inodes", rootfsInodes)
	t.Run("none", rootfsNone)
	t.Run("candidates", rootfsCandidates)
	t.Run("low QoS", rootfsLowQoS)
	t.Run("unknown", rootfsUnknown)
	t.Run("layers unknown", rootfsLayersUnknown)
	t.Run("stays on while unknown", rootfsStaysOn)
	t.Run("no inodes", rootfsNoInodes)
	t.Run("by answers", rootfsByAnswers)
	t.Run("terminating", rootfsTerminating)
	t.Run("bounds", rootfsBounds)
	t.Run("model", rootfsModel)
}

func rootfsLevels(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{}, 15*gib, 1000)
	v := w.left(24*gib, 9_000_000).ticks(60)[0]
	require.Equal(t, None, v.Level, v.Reason)
	v = w.tick()[0]
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.Equal(t, "rootfs-overuse", v.Plugin)
	assert.Equal(t, "rootfs space", v.Scope)
	assert.Equal(t, Filesystem, v.Resource)
	assert.Equal(t, "RootfsOveruse", v.Condition)
	assert.Equal(t, "space available on the filesystem of "+rootfsDir+" 24.0 % (< 25 %); root filesystem of ns/a 15360 MiB (> 10240 MiB); met by all answers of the runtime for 60 s (≥ 60 s)", v.Reason)

	v = w.left(18*gib, 9_000_000).ticks(60)[0]
	require.Equal(t, Soft, v.Level, "hard has to last by itself")
	v = w.tick()[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, snapshot.Some(0.18), v.Observed)
	assert.Equal(t, snapshot.Some(0.20), v.Threshold)
	target, _ := v.Target.Get()
	assert.InDelta(t, 2*gib, target, 1)
	assert.Equal(t, snapshot.Some(float64(rootfsSize)), v.Whole)

	v = w.left(60*gib, 9_000_000).ticks(29)[0]
	assert.Equal(t, Hard, v.Level)
	assert.Equal(t, None, v.MetLevel, "no pod is evicted for it any more")
	assert.Equal(t, None, w.tick()[0].Level)
}

func rootfsInodes(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{StorageRequestBytes: 50 * gib}, gib, 4_000_000)
	list := w.left(60*gib, 900_000).ticks(61)
	assert.Equal(t, None, list[0].Level)
	v := list[1]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, "rootfs inodes", v.Scope)
	assert.Equal(t, []Candidate{{
		Cgroup: "/kubepods/burstable/poda", Name: "ns/a", PodUID: "a", Relief: 4_000_000, Unit: "files",
		Why: "its root filesystem uses 4000000 inodes, 40 % of the filesystem of " + rootfsDir + ", limit 1000000 inodes",
	}}, v.Candidates)
}

func rootfsNone(t *testing.T) {
	for what, w := range map[string]*rootfsNode{
		"much used, and enough available": newRootfsNode(t).uses("a", snapshot.Pod{}, 30*gib, 4_000_000).left(26*gib, 2_000_000),
		// A node with many images and pods that log and write a little.
		"a healthy busy node":                newRootfsNode(t).uses("a", snapshot.Pod{}, 9*gib, 900_000).uses("b", snapshot.Pod{}, 8*gib, 0).uses("c", snapshot.Pod{}, 9*gib, 0).left(16*gib, 600_000),
		"no pod there":                       newRootfsNode(t).left(5*gib, 100),
		"what it uses, it requests":          newRootfsNode(t).uses("a", snapshot.Pod{StorageRequestBytes: 40 * gib}, 40*gib, 900_000).left(5*gib, 600_000),
		"a pod that the API server has not":  newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).forget().left(5*gib, 600_000),
		"exactly what may be, of a small fs": newRootfsNode(t).small().uses("a", snapshot.Pod{}, gib, 0).left(100*mib, 600_000),
	} {
		t.Run(what, func(t *testing.T) {
			for range 100 {
				verdicts := w.tick()
				require.NotEmpty(t, verdicts)
				for _, v := range verdicts {
					require.Equal(t, None, v.Level, v.Reason)
					require.Empty(t, v.Absent)
					require.Empty(t, v.Candidates)
				}
			}
		})
	}
}

// forget has the API server not list the pods.
func (w *rootfsNode) forget() *rootfsNode {
	w.pods = nil
	return w
}

// small is a filesystem of 2 GiB.
func (w *rootfsNode) small() *rootfsNode {
	w.fs.SizeBytes = snapshot.Some[uint64](2 * gib)
	return w
}

func rootfsCandidates(t *testing.T) {
	w := newRootfsNode(t).
		uses("little", snapshot.Pod{}, 9*gib, 0).
		uses("above", snapshot.Pod{}, 11*gib, 0).
		uses("promised", snapshot.Pod{StorageRequestBytes: 21 * gib}, 20*gib, 0). // within its request
		uses("most", snapshot.Pod{StorageRequestBytes: 20 * gib}, 24*gib, 0)      // above it
	v := w.left(15*gib, 9_000_000).ticks(61)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, []string{"ns/most", "ns/above"}, namesOf(v), "the heaviest first, though another one is further above")
	assert.Equal(t, Candidate{
		Cgroup: "/kubepods/burstable/podmost", Name: "ns/most", PodUID: "most", Relief: 24 * gib, Unit: "bytes",
		Why: "its root filesystem uses 24576 MiB, 24 % of the filesystem of " + rootfsDir + ", limit 20480 MiB",
	}, v.Candidates[0])
	assert.True(t, v.PerWorkload)
}

func rootfsLowQoS(t *testing.T) {
	w := newRootfsNode(t).uses("batch", snapshot.Pod{LowQoS: true}, 6*gib, 0).uses("shop", snapshot.Pod{}, 6*gib, 0)
	v := w.left(15*gib, 9_000_000).ticks(61)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, []string{"ns/batch"}, namesOf(v))
}

func rootfsUnknown(t *testing.T) {
	for why, change := range map[string]func(*rootfsNode){
		"what the container runtime reports is too old: the container runtime has not answered yet": func(w *rootfsNode) { w.silent = true },
		"what the container runtime reports is too old: connection refused": func(w *rootfsNode) {
			w.age = 121 * time.Second
			w.fs.Absent.Because(snapshot.AbsentRootfs, "connection refused")
		},
		"what the container runtime reports is too old: no newer answer yet": func(w *rootfsNode) { w.age = 121 * time.Second },
		"no API server is configured":                                        func(w *rootfsNode) { w.standalone = true },
		"not listed yet":                                                     func(w *rootfsNode) { w.absent = snapshot.Absent{"pods": "not listed yet"} },
		"space of the filesystem of " + rootfsDir + ": impossible size": func(w *rootfsNode) {
			w.fs.SizeBytes = snapshot.Opt[uint64]{}
			w.fs.Absent.Because("sizeBytes", "impossible size")
		},
	} {
		t.Run(why, func(t *testing.T) {
			w := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).left(5*gib, 9_000_000)
			change(w)
			v := w.ticks(100)[0]
			assert.Equal(t, None, v.Level)
			assert.Contains(t, v.Absent, why)
			assert.Contains(t, v.Reason, "incomplete data: ")
			assert.Empty(t, v.Candidates)
		})
	}
	t.Run("just not too old", func(t *testing.T) {
		w := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).left(15*gib, 9_000_000)
		w.age = 2 * time.Minute
		w.fs.Absent.Because(snapshot.AbsentRootfs, "connection refused")
		v := w.ticks(61)[0]
		assert.Equal(t, Hard, v.Level, v.Reason)
		assert.Empty(t, v.Absent)
	})
}

// What is unknown of some containers is no all-clear where the filesystem is short, and
// does not hide a pod that uses too much.
func rootfsLayersUnknown(t *testing.T) {
	const why = "the runtime has not measured the writable layers of 1 containers"
	w := newRootfsNode(t).uses("a", snapshot.Pod{}, 9*gib, 0)
	w.fs.Absent.Because(snapshot.AbsentLayers, why)
	v := w.left(30*gib, 9_000_000).ticks(61)[0]
	assert.Empty(t, v.Absent, "enough is available, whatever pods use")
	v = w.left(15*gib, 9_000_000).ticks(61)[0]
	require.Equal(t, None, v.Level, v.Reason)
	assert.Equal(t, why, v.Absent)
	v = w.uses("b", snapshot.Pod{}, 11*gib, 0).ticks(61)[0]
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Empty(t, v.Absent)
	assert.Equal(t, []string{"ns/b"}, namesOf(v))

	alone := newRootfsNode(t).left(15*gib, 9_000_000)
	alone.fs.Absent.Because(snapshot.AbsentLayers, why)
	assert.Equal(t, why, alone.ticks(61)[0].Absent, "also if no pod is known")
}

func rootfsStaysOn(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).left(15*gib, 9_000_000)
	require.Equal(t, Hard, w.ticks(61)[0].Level)
	w.age = time.Hour
	v := w.ticks(120)[0]
	assert.Equal(t, Hard, v.Level, "no all-clear that was not seen")
	assert.Equal(t, None, v.MetLevel)
	assert.Empty(t, v.Candidates)
	w.age = 0
	assert.Equal(t, None, w.left(60*gib, 9_000_000).ticks(30)[0].Level)
}

func rootfsNoInodes(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0)
	w.fs.Files, w.fs.FilesFree = snapshot.Opt[uint64]{}, snapshot.Opt[uint64]{}
	list := w.tick()
	require.Len(t, list, 1, "a filesystem without a count of inodes is not short of them")
	assert.Equal(t, "rootfs space", list[0].Scope)
	off := newRootfsNode(t, func(r *RootfsOveruse) { r.Soft.Available, r.Hard.Available = 0, 0 })
	list = off.tick()
	require.Len(t, list, 1)
	assert.Equal(t, "rootfs inodes", list[0].Scope)

	softOnly := newRootfsNode(t, func(r *RootfsOveruse) { r.Hard.Available = 0 }).uses("a", snapshot.Pod{}, 40*gib, 0)
	assert.Equal(t, Soft, softOnly.left(0, 9_000_000).ticks(61)[0].Level)
}

// One answer, however old, may have been of a temporary file. A sample that is missing
// between two answers does not matter.
func rootfsByAnswers(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).left(15*gib, 9_000_000)
	w.answered = w.at
	require.Equal(t, None, w.ticks(100)[0].Level)
	w.sleep(10 * time.Second)
	w.answered += 59 * time.Second
	require.Equal(t, None, w.ticks(5)[0].Level)
	w.answered += time.Second
	v := w.tick()[0]
	require.Equal(t, Hard, v.Level, v.Reason)

	again := newRootfsNode(t).uses("a", snapshot.Pod{}, 40*gib, 0).left(15*gib, 9_000_000)
	require.Equal(t, None, again.ticks(60)[0].Level)
	again.left(60*gib, 9_000_000).tick()
	require.Equal(t, None, again.left(15*gib, 9_000_000).ticks(60)[0].Level, "it starts again")
	require.Equal(t, Hard, again.tick()[0].Level)
}

func rootfsTerminating(t *testing.T) {
	w := newRootfsNode(t).uses("a", snapshot.Pod{Terminating: true}, 40*gib, 0)
	v := w.left(15*gib, 9_000_000).ticks(61)[0]
	assert.Equal(t, None, v.Level, v.Reason)
}

func rootfsBounds(t *testing.T) {
	for why, change := range map[string]func(*RootfsOveruse){
		"":                              func(*RootfsOveruse) {},
		"0 for both would never be met": func(r *RootfsOveruse) { r.Soft, r.Hard = RootfsRule{}, RootfsRule{} },
		"1 would always be met":         func(r *RootfsOveruse) { r.Soft.Available = 1 },
		"hard must not be easier to reach than soft: available 0.3 is more than 0.25":  func(r *RootfsOveruse) { r.Hard.Available = 0.3 },
		"hard must not be easier to reach than soft: filesFree 0.16 is more than 0.15": func(r *RootfsOveruse) { r.Hard.FilesFree = 0.16 },
		"0 would name every pod":                        func(r *RootfsOveruse) { r.UsedLowQoS = 0 },
		"0 would name every pod on an empty filesystem": func(r *RootfsOveruse) { r.MinUsed = 0 },
	} {
		t.Run(why, func(t *testing.T) {
			r := DefaultRootfsOveruse()
			change(&r)
			var list problems.List
			r.Validate(list.At("rootfsOveruse"))
			if why == "" {
				assert.Empty(t, list)
				return
			}
			require.NotEmpty(t, list)
			assert.Contains(t, list[0].Reason, why)
		})
	}
}

// slowRootfs is the slow obvious version: it counts the seconds in which each level was
// met and not met.
type slowRootfs struct {
	met, unmet [2]int // seconds in a row, of soft and hard
	on         [2]bool
}

func (s *slowRootfs) judge(over bool, available uint64) (level Level) {
	for i, below := range []uint64{25 * gib, 20 * gib} {
		s.met[i]++
		if !over || available >= below {
			s.met[i] = 0
		}
		s.unmet[i]++
		if s.met[i] > 20 {
			s.unmet[i], s.on[i] = 0, true
		}
		s.on[i] = s.on[i] && s.unmet[i] < 30
		if s.on[i] {
			level = Level(i + 1)
		}
	}
	return level
}

// overLines are the names of the pods that use more than they may.
func (w *rootfsNode) overLines(lines []uint64) (over []string) {
	for i, p := range w.fs.Pods {
		if used, _ := p.UsedBytes.Get(); used > lines[i] {
			over = append(over, "ns/"+p.PodUID)
		}
	}
	return over
}

func rootfsModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 21))
	w := newRootfsNode(t, func(r *RootfsOveruse) { r.For = 20 * time.Second }).
		uses("a", snapshot.Pod{}, 0, 0).uses("b", snapshot.Pod{LowQoS: true}, 0, 0).uses("c", snapshot.Pod{StorageRequestBytes: 30 * gib}, 0, 0)
	available, seen, slow := uint64(60*gib), map[Level]int{}, slowRootfs{}
	for second := range 10_000 {
		for i := range w.fs.Pods {
			if rnd.IntN(40) == 0 {
				w.fs.Pods[i].UsedBytes = snapshot.Some(rnd.Uint64N(40 * gib))
			}
		}
		if rnd.IntN(40) == 0 {
			available = rnd.Uint64N(30 * gib)
		}
		over := w.overLines([]uint64{10 * gib, 5 * gib, 30 * gib})
		want := slow.judge(len(over) > 0, available)
		v := w.left(available, 9_000_000).tick()[0]
		require.Equal(t, want, v.Level, "second %d: %s", second, v.Reason)
		if want > None {
			require.ElementsMatch(t, over, namesOf(v), "second %d", second)
		}
		seen[want]++
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft, Hard} {
		require.Greater(t, seen[l], 100, l)
	}
}
