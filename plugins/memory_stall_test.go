package plugins

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	gib = 1 << 30
	mib = 1 << 20
)

// node is a made-up node, second by second.
type node struct {
	t         *testing.T
	history   *snapshot.History
	set       *Set
	at        time.Duration
	full      uint64
	scans     uint64
	available uint64
	total     uint64
	swapFree  uint64 // of 8 GiB; noSwap: there is none
	noSwap    bool
	swapIns   uint64 // so far
	hugetlb   uint64
	pod       *snapshot.Workload
	other     *snapshot.Workload
	noPSI     bool
	// noScans and noAvailable: /proc/vmstat and MemAvailable cannot be read.
	noScans, noAvailable bool
	levels               *Levels
}

func newNode(t *testing.T) *node {
	return &node{
		t: t, total: 64 * gib, available: 32 * gib, at: time.Hour, noSwap: true,
		history: &snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second},
		set:     NewSet(Config{WarmUp: 5 * time.Minute, MemoryStall: DefaultMemoryStall()}, nil),
	}
}

// second lets one pass, stalled for the given share of it.
func (n *node) second(stall float64, scans uint64) Verdict {
	n.at += time.Second
	n.full += uint64(stall * 1e6)
	n.scans += scans
	s := &snapshot.Sample{
		Time: time.Unix(0, 0).Add(n.at), Monotonic: n.at, Boottime: n.at, BootID: "a",
		Memory: snapshot.Memory{
			TotalBytes: snapshot.Some(n.total), AvailableBytes: snapshot.Some(n.available), HugetlbBytes: snapshot.Some(n.hugetlb),
			ScansDirect: snapshot.Some(uint64(0)), ScansKswapd: snapshot.Some(n.scans),
		},
	}
	if !n.noSwap {
		s.Memory.SwapTotalBytes, s.Memory.SwapFreeBytes, s.Memory.SwapIns = snapshot.Some(uint64(8*gib)), snapshot.Some(n.swapFree), snapshot.Some(n.swapIns)
	}
	if n.noPSI {
		s.Pressure.Absent.Because("memory", "no PSI (kernel built without CONFIG_PSI)")
	} else {
		s.Pressure.Memory.Full = snapshot.Some(n.full)
	}
	if n.noScans {
		s.Memory.ScansDirect, s.Memory.ScansKswapd = snapshot.Opt[uint64]{}, snapshot.Opt[uint64]{}
		s.Memory.Absent.Because("vmstat", "permission denied")
	}
	if n.noAvailable {
		s.Memory.AvailableBytes = snapshot.Opt[uint64]{}
		s.Memory.Absent.Because("availableBytes", "not in /proc/meminfo")
	}
	for _, w := range []*snapshot.Workload{n.pod, n.other} {
		if w != nil {
			s.Workloads = append(s.Workloads, *w)
		}
	}
	n.levels = n.set.Judge(n.history.Add(s))
	require.Len(n.t, n.levels.Verdicts, 1)
	return n.levels.Verdicts[0]
}

func (n *node) seconds(count int, stall float64, scans uint64) (v Verdict) {
	for range count {
		v = n.second(stall, scans)
	}
	return v
}

func (n *node) warm() *node {
	n.seconds(301, 0, 0)
	return n
}

// until counts the seconds until the level is there.
func (n *node) until(l Level, most int, stall float64, scans uint64) int {
	for i := 1; i <= most; i++ {
		if n.second(stall, scans).Level == l {
			return i
		}
	}
	n.t.Fatalf("not %s within %d s: %s", l, most, n.levels.Verdicts[0].Reason)
	return 0
}

func TestMemoryStall(t *testing.T) {
	t.Run("healthy node", memoryStallHealthyNode)
	t.Run("hard within window", memoryStallHardWithinWindow)
	t.Run("swap used up", memoryStallSwapUsedUp)
	t.Run("soft", memoryStallSoft)
	t.Run("floor without stall", memoryStallFloorWithoutStall)
	t.Run("throttled pod ignored", memoryStallThrottledPodIgnored)
	t.Run("clears", memoryStallClears)
	t.Run("pause keeps level", memoryStallPauseKeepsLevel)
	t.Run("own limit ignored", memoryStallOwnLimitIgnored)
	t.Run("own limit, read seldom", memoryStallOwnLimitReadSeldom)
	t.Run("beside own limit", memoryStallBesideOwnLimit)
	t.Run("warm up hard only", memoryStallWarmUpHardOnly)
	t.Run("changed rule", memoryStallChangedRule)
	t.Run("same config kept", memoryStallSameConfigKept)
	t.Run("without PSI floors only", memoryStallWithoutPSIFloorsOnly)
	t.Run("after gap", memoryStallAfterGap)
	t.Run("missing input", memoryStallMissingInput)
	t.Run("missing once", memoryStallMissingOnce)
	t.Run("missing and clear", memoryStallMissingAndClear)
	t.Run("largest first", memoryStallLargestFirst)
	t.Run("unknown memory not named", memoryStallUnknownMemoryNotNamed)
	t.Run("release target", memoryStallReleaseTarget)
	t.Run("huge pages", memoryStallHugePages)
	t.Run("target unknown", memoryStallTargetUnknown)
}

func memoryStallHealthyNode(t *testing.T) {
	for _, c := range []struct {
		name      string
		available uint64
		stall     float64
		scans     uint64
	}{
		{"idle", 32 * gib, 0, 0},
		{"full of page cache, reclaiming without pain", 20 * gib, 0.001, 50_000},
		{"little available, nobody stalls", 2 * gib, 0.02, 50_000},
		{"a stall with plenty available is no shortage", 32 * gib, 0.9, 50_000},
		{"a stall without global reclaim is a cgroup's own", 2 * gib, 0.9, 0},
		{"small and nearly full, but nothing reclaims", 90 * mib, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t).warm()
			n.available = c.available
			for range 120 {
				require.Equal(t, None, n.second(c.stall, c.scans).Level)
			}
			assert.Empty(t, n.levels.Verdicts[0].Candidates)
		})
	}
}

func memoryStallHardWithinWindow(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib // 3.1 %
	assert.LessOrEqual(t, n.until(Hard, 10, 1, 9000), 2, "25 % of 5 s is stalled after 1.25 s of full stall")
	assert.Contains(t, n.levels.Verdicts[0].Reason, "memory stall, full, over 5s")
}

// A node whose swap is used up is short, however much looks available; swap
// that is full of what nobody asks for is not.
func memoryStallSwapUsedUp(t *testing.T) {
	n := newNode(t)
	n.noSwap, n.swapFree = false, 8*gib*9/100
	n.warm()
	v := n.seconds(60, 0.9, 800)
	require.Equal(t, None, v.Level, "nothing is swapped in: %s", v.Reason)
	for n.levels.Verdicts[0].Level != Hard {
		n.swapIns += 50
		n.second(0.9, 800)
		require.Less(t, n.at, 2*time.Hour, n.levels.Verdicts[0].Reason)
	}
	assert.Contains(t, n.levels.Verdicts[0].Reason, "swap free 9.0 % (< 10 %)")
	for range 120 { // it is kept while it lasts, and no longer
		n.swapIns += 50
		require.Equal(t, Hard, n.second(0.2, 800).Level)
	}
	n.swapFree = 8 * gib * 11 / 100
	assert.Equal(t, None, n.seconds(31, 0.9, 800).Level)
	n.seconds(10, 0, 0)
	n.swapFree = 0
	for range 60 {
		n.swapIns += 50
		require.Equal(t, None, n.second(0.05, 800).Level, "hardly a stall")
	}
}

func memoryStallSoft(t *testing.T) {
	n := newNode(t).warm()
	n.available = 5 * gib // 7.8 %
	assert.InDelta(t, 20, n.until(Soft, 40, 0.15, 500), 1, "15 % reaches 10 % of 30 s after 20 s")
	n.seconds(60, 0.15, 500)
	assert.Equal(t, Soft, n.levels.Verdicts[0].Level, "it stays and does not become hard")
}

func memoryStallFloorWithoutStall(t *testing.T) {
	n := newNode(t).warm()
	n.available = 300 * mib
	assert.GreaterOrEqual(t, n.until(Soft, 40, 0, 100), 30, "throughout the window")
	assert.False(t, n.levels.Verdicts[0].Urgent)
	n.available = 150 * mib
	assert.GreaterOrEqual(t, n.until(Hard, 10, 0, 100), 5)
	assert.True(t, n.levels.Verdicts[0].Urgent, "nothing milder is waited for")
	n.available = 2 * gib
	n.seconds(6, 0.8, 9000)
	assert.Equal(t, Hard, n.levels.Verdicts[0].Level)
	assert.False(t, n.levels.Verdicts[0].Urgent, "short, but above its floor")
}

func memoryStallThrottledPodIgnored(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.pod = &snapshot.Workload{Cgroup: "/pod", Inode: 1, Throttled: []snapshot.SharedResource{snapshot.SharedMemory}, LimitHits: snapshot.Some(uint64(0)), MemoryBytes: snapshot.Some(uint64(gib))}
	n.pod.Pressure.Memory.Full = snapshot.Some(uint64(0))
	n.second(0, 100)
	for range 60 {
		*n.pod = grown(*n.pod, 900_000, 0)
		require.Equal(t, None, n.second(0.9, 100).Level)
	}
	n.pod.Throttled = nil
	for range 40 {
		require.Equal(t, None, n.second(0, 100).Level, "what it waited for its throttle is in the window still")
	}
	*n.pod = grown(*n.pod, 900_000, 0)
	n.until(Hard, 40, 0.9, 100)
}

func memoryStallClears(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.seconds(20, 0.8, 9000)
	require.Equal(t, Hard, n.levels.Verdicts[0].Level)
	n.available = 40 * gib
	took := n.until(None, 60, 0, 0)
	assert.InDelta(t, 30, took, 1)
}

func memoryStallPauseKeepsLevel(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.seconds(10, 0.8, 9000)
	for range 5 {
		for range 20 {
			require.Equal(t, Hard, n.second(0, 0).Level)
		}
		n.seconds(5, 0.8, 9000)
	}
}

func memoryStallOwnLimitIgnored(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib // little, and something reclaims: the stall alone decides
	n.pod = &snapshot.Workload{Cgroup: "/pod", Inode: 1, LimitHits: snapshot.Some(uint64(0)), MemoryBytes: snapshot.Some(uint64(gib))}
	n.pod.Pressure.Memory.Full = snapshot.Some(uint64(0))
	n.second(0, 100)
	for range 60 {
		*n.pod = grown(*n.pod, 900_000, 50)
		require.Equal(t, None, n.second(0.9, 100).Level)
	}
	n.pod = nil // killed at its own limit: what it stalled is in the windows of the node still
	for i := range 60 {
		v := n.second(0, 100)
		require.Equal(t, None, v.Level, "second %d: %s", i, v.Reason)
	}
}

// Workloads that are dear to read are read every seven seconds, and hard looks at five.
func memoryStallOwnLimitReadSeldom(t *testing.T) {
	n := newNode(t)
	n.noSwap = false // it is full, and is swapped in: nothing but the stall keeps hard away
	n.warm()
	n.pod = &snapshot.Workload{Cgroup: "/pod", Inode: 1, At: n.at + time.Second, LimitHits: snapshot.Some(uint64(0)), MemoryBytes: snapshot.Some(uint64(gib))}
	n.pod.Pressure.Memory.Full = snapshot.Some(uint64(0))
	n.second(0, 100)
	for i := range 60 {
		if i%7 == 0 {
			*n.pod = grown(*n.pod, 7*900_000, 350)
			n.pod.At = n.at + time.Second
		}
		n.swapIns += 50
		v := n.second(0.9, 100)
		require.Equal(t, None, v.Level, "second %d: %s", i, v.Reason)
	}
}

func memoryStallBesideOwnLimit(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.pod = &snapshot.Workload{Cgroup: "/limited", Inode: 1, LimitHits: snapshot.Some(uint64(0))}
	n.pod.Pressure.Memory.Full = snapshot.Some(uint64(0))
	n.other = &snapshot.Workload{Cgroup: "/victim", Inode: 2, LimitHits: snapshot.Some(uint64(0))}
	n.other.Pressure.Memory.Full = snapshot.Some(uint64(0))
	n.second(0, 100)
	for range 5 {
		*n.pod, *n.other = grown(*n.pod, 900_000, 50), grown(*n.other, 600_000, 0)
		n.second(0.5, 9000)
	}
	assert.Equal(t, Hard, n.levels.Verdicts[0].Level)
}

func grown(w snapshot.Workload, full, hits uint64) snapshot.Workload {
	was, _ := w.Pressure.Memory.Full.Get()
	w.Pressure.Memory.Full = snapshot.Some(was + full)
	was, _ = w.LimitHits.Get()
	w.LimitHits = snapshot.Some(was + hits)
	return w
}

func memoryStallWarmUpHardOnly(t *testing.T) {
	n := newNode(t)
	n.available = 5 * gib
	for range 290 {
		require.Equal(t, None, n.second(0.2, 500).Level)
	}
	assert.Contains(t, n.levels.Verdicts[0].Reason, "warming up")
	n.seconds(15, 0.2, 500)
	assert.Equal(t, Soft, n.levels.Verdicts[0].Level)

	n = newNode(t)
	n.available = 2 * gib
	assert.LessOrEqual(t, n.until(Hard, 10, 1, 9000), 6)
}

func memoryStallChangedRule(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.seconds(60, 0.2, 500)
	require.Equal(t, Soft, n.levels.Verdicts[0].Level)
	c := n.set.config
	c.MemoryStall.Hard.StallFull = 0.1
	n.set.Configure(c)
	require.Equal(t, None, n.second(0.2, 500).Level, "the old verdict does not count")
	assert.Equal(t, 5, n.until(Hard, 10, 0.2, 500), "nor does what was before the change")
}

func memoryStallSameConfigKept(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.seconds(10, 0.8, 9000)
	n.set.Configure(n.set.config)
	assert.Equal(t, Hard, n.second(0.8, 9000).Level)
}

func memoryStallWithoutPSIFloorsOnly(t *testing.T) {
	n := newNode(t)
	n.noPSI = true
	n.pod = &snapshot.Workload{Cgroup: "/a", Inode: 1, MemoryBytes: snapshot.Some(uint64(gib)), InactiveFileBytes: snapshot.Some(uint64(0))}
	n.warm()
	v := n.second(0, 100)
	assert.Equal(t, None, v.Level)
	assert.Contains(t, v.Absent, "no PSI")
	n.available = 150 * mib
	n.until(Hard, 10, 0, 100)
	assert.Empty(t, n.levels.Verdicts[0].Candidates)
}

func memoryStallAfterGap(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	n.seconds(10, 0.8, 9000)
	n.at += time.Minute // starved: no sample for a minute, and no evidence of calm
	v := n.second(0, 0)
	assert.Equal(t, Hard, v.Level)
	assert.NotEmpty(t, v.Absent)
	assert.Empty(t, v.Candidates)
	n.available = 40 * gib
	assert.InDelta(t, 30, n.until(None, 60, 0, 0), 1, "all of the cleared window must be seen")
}

// What is missing neither turns a level on nor ends one at once, and evicts no pod.
func memoryStallMissingInput(t *testing.T) {
	for absent, remove := range map[string]func(*node){
		"pages scanned: permission denied":         func(n *node) { n.noScans = true },
		"memory available: not in /proc/meminfo":   func(n *node) { n.noAvailable = true },
		"no PSI (kernel built without CONFIG_PSI)": func(n *node) { n.noPSI = true },
	} {
		t.Run(absent, func(t *testing.T) {
			n := newNode(t)
			n.pod = &snapshot.Workload{Cgroup: "/a", Inode: 1, MemoryBytes: snapshot.Some(uint64(gib)), InactiveFileBytes: snapshot.Some(uint64(0))}
			n.warm()
			n.available = 2 * gib
			v := n.seconds(20, 0.8, 9000)
			require.Equal(t, Hard, v.Level)
			require.NotEmpty(t, v.Candidates)
			remove(n)
			for range 300 {
				v = n.second(0.8, 9000)
				require.Equal(t, Hard, v.Level, v.Reason)
				require.Equal(t, None, v.MetLevel)
				require.Equal(t, absent, v.Absent)
				require.Empty(t, v.Candidates)
				require.Contains(t, v.Reason, "for five minutes at most")
			}
			assert.LessOrEqual(t, n.until(None, 60, 0.8, 9000), 40, "it does not stay on for ever")
			for range 60 {
				v = n.second(0.8, 9000)
				require.Equal(t, None, v.Level, v.Reason)
				require.Equal(t, absent, v.NotJudged(), "no all-clear")
			}
		})
	}
}

// Of a window in which a value is missing once it is not known how it was throughout.
func memoryStallMissingOnce(t *testing.T) {
	n := newNode(t).warm()
	n.available = 300 * mib
	n.noAvailable = true
	n.second(0, 100)
	n.noAvailable = false
	assert.Equal(t, "memory available: not measured throughout the window", n.seconds(10, 0, 100).Absent)
	n.available = 32 * gib
	assert.Empty(t, n.second(0, 100).Absent, "with so much now it was not below its floor throughout")

	n.available = 2 * gib
	require.Equal(t, Hard, n.seconds(20, 0.8, 9000).Level)
	n.noScans = true
	n.seconds(25, 0.8, 9000)
	n.noScans, n.available = false, 40*gib
	assert.InDelta(t, 30, n.until(None, 60, 0, 0), 1, "all of the time to clear must be seen")
}

// Where what is known is clear, what is missing does not matter.
func memoryStallMissingAndClear(t *testing.T) {
	n := newNode(t)
	n.noPSI = true
	n.warm()
	n.available = 150 * mib
	n.until(Hard, 10, 0, 100)
	n.available = 40 * gib
	assert.InDelta(t, 30, n.until(None, 60, 0, 100), 1)
}

func memoryStallLargestFirst(t *testing.T) {
	n := newNode(t)
	n.pod = &snapshot.Workload{Cgroup: "/a", Inode: 1, MemoryBytes: snapshot.Some(uint64(3 * gib)), InactiveFileBytes: snapshot.Some(uint64(2 * gib))}
	n.other = &snapshot.Workload{Cgroup: "/b", Inode: 2, MemoryBytes: snapshot.Some(uint64(2 * gib)), InactiveFileBytes: snapshot.Some(uint64(0))}
	n.warm()
	n.available = 2 * gib
	n.seconds(5, 1, 9000)
	c := n.levels.Verdicts[0].Candidates
	require.Len(t, c, 2)
	assert.Equal(t, "/b", c[0].Cgroup)
	assert.InDelta(t, 2*gib, c[0].Relief, 0)
	assert.Equal(t, "/a", c[1].Cgroup)
	assert.InDelta(t, gib, c[1].Relief, 0)
}

func memoryStallUnknownMemoryNotNamed(t *testing.T) {
	n := newNode(t)
	n.pod = &snapshot.Workload{Cgroup: "/a", Inode: 1}
	n.warm()
	n.available = 2 * gib
	n.seconds(5, 1, 9000)
	assert.Equal(t, Hard, n.levels.Verdicts[0].Level)
	assert.Empty(t, n.levels.Verdicts[0].Candidates)
}

func TestLevelTextRoundTrip(t *testing.T) {
	for _, l := range []Level{None, Soft, Hard} {
		b, err := l.MarshalText()
		require.NoError(t, err)
		var back Level
		require.NoError(t, back.UnmarshalText(b))
		assert.Equal(t, l, back)
	}
	var l Level
	require.ErrorContains(t, l.UnmarshalText([]byte("harder")), "want none, soft or hard")
}

func TestMetLevelHardOnlyWhileMet(t *testing.T) {
	n := newNode(t).warm()
	require.Equal(t, None, n.second(0, 0).MetLevel)
	n.available = 2 * gib
	n.until(Hard, 10, 1, 9000)
	for range 5 {
		require.Equal(t, Hard, n.second(1, 9000).MetLevel)
	}
	n.available = 40 * gib // somebody was ended: from now on it is over
	for range 29 {
		v := n.second(0, 0)
		require.Equal(t, Hard, v.Level)
		require.Equal(t, None, v.MetLevel, "nobody more is to go for it")
	}
	n.available = 2 * gib
	v := n.seconds(2, 1, 9000)
	assert.Equal(t, Hard, v.MetLevel, "it is back while the level was kept")
}

func TestMetLevelSoftWhileOnlySoftMet(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	v := n.seconds(20, 0.8, 9000)
	require.Equal(t, Hard, v.MetLevel)
	v = n.seconds(20, 0.15, 500)
	assert.Equal(t, Hard, v.Level, "half of its stall keeps it")
	assert.Equal(t, Soft, v.MetLevel)
	n.available = 5 * gib // 7.8 %, still below soft's 10 %
	v = n.seconds(20, 0.15, 500)
	assert.Equal(t, Hard, v.Level)
	assert.Equal(t, Soft, v.MetLevel)
}

func TestMetLevelNoneInWarmUp(t *testing.T) {
	n := newNode(t)
	n.available = 5 * gib
	assert.Equal(t, None, n.seconds(60, 0.2, 500).MetLevel)
}

func memoryStallReleaseTarget(t *testing.T) {
	for what, row := range map[string]struct {
		total, available, kubelet uint64
		target                    float64
	}{
		"a large node: a tenth of it":                    {64 * gib, 2 * gib, 100 * mib, 6.4*gib - 2*gib},
		"a small node: the floor, 4 times the kubelet's": {2 * gib, 150 * mib, 100 * mib, 250 * mib},
		"a kubelet that begins early":                    {64 * gib, 2 * gib, 2 * gib, 6 * gib},
		"exactly at the share":                           {10 * gib, gib, 100 * mib, 0},
		"a healthy node misses nothing":                  {64 * gib, 40 * gib, 100 * mib, 0},
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			c := n.set.config
			c.MemoryStall.KubeletEvictionHard = row.kubelet
			n.set.Configure(c)
			n.total, n.available = row.total, row.available
			v := n.seconds(2, 0, 0)
			target, ok := v.Target.Get()
			require.True(t, ok)
			assert.InDelta(t, row.target, target, 1)
			whole, ok := v.Whole.Get()
			require.True(t, ok)
			assert.InDelta(t, float64(row.total), whole, 0)
		})
	}
}

// Huge pages are a part of the node's memory that is never available: it neither lacks
// them, nor can any pod give them back.
func memoryStallHugePages(t *testing.T) {
	n := newNode(t).warm()
	n.total, n.hugetlb, n.available = 512*gib, 480*gib, 15*gib
	v := n.seconds(60, 0.3, 500)
	assert.Equal(t, None, v.Level, "15 of 32 GiB are available")
	assert.Equal(t, snapshot.Some(0.0), v.Target)
	n.available = gib
	v = n.seconds(10, 0.3, 500)
	assert.Equal(t, Hard, v.Level, "1 of 32 GiB is")
	target, _ := v.Target.Get()
	assert.InDelta(t, 2.2*gib, target, 1)
	assert.Equal(t, snapshot.Some(32.0*gib), v.Whole)
}

func memoryStallTargetUnknown(t *testing.T) {
	known := snapshot.Some(uint64(gib))
	for _, m := range []snapshot.Memory{{}, {TotalBytes: known}, {AvailableBytes: known}} {
		view := View{Snapshot: (&snapshot.History{Window: 1, Keep: 1, MaxGap: 1}).Add(&snapshot.Sample{Memory: m})}
		target, whole := DefaultMemoryStall().release(view)
		assert.True(t, target.IsZero())
		assert.True(t, whole.IsZero())
		v := NewSet(Config{MemoryStall: DefaultMemoryStall()}, nil).Judge(view.Snapshot).Verdicts[0]
		assert.True(t, v.Target.IsZero() && v.Whole.IsZero())
	}
}

func TestVerdictJSONRoundTrip(t *testing.T) {
	n := newNode(t).warm()
	n.available = 2 * gib
	v := n.seconds(5, 1, 9000)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"pressing":"hard"`)
	var back Verdict
	require.NoError(t, json.Unmarshal(b, &back))
	assert.Equal(t, v.MetLevel, back.MetLevel)
	assert.Equal(t, v.Target, back.Target)
	assert.Equal(t, v.Whole, back.Whole)
}
