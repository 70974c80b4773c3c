package plugins

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// oomNode is a made-up node whose workloads' processes are killed.
type oomNode struct {
	*life
	list []snapshot.Workload
}

func newOOMNode(t *testing.T, change ...func(*OOMStorm)) *oomNode {
	t.Helper()
	c := Config{OOMStorm: DefaultOOMStorm()}
	c.OOMStorm.Enabled = true
	for _, f := range change {
		f(&c.OOMStorm)
	}
	w := &oomNode{life: newLife(t, c)}
	for i, name := range []string{"/pods/a", "/pods/b", "/pods/c"} {
		w.list = append(w.list, snapshot.Workload{
			Cgroup: name, Name: "pod " + name[len("/pods/"):], PodUID: name, Inode: uint64(i + 1), OOMKills: snapshot.Some[uint64](7),
			MemoryBytes: snapshot.Some(uint64((i + 1) * gib)), InactiveFileBytes: snapshot.Some[uint64](0),
		})
	}
	return w
}

// kill ends processes of a workload within the next second.
func (c *oomNode) kill(i int, n uint64) *oomNode {
	was, _ := c.list[i].OOMKills.Get()
	c.list[i].OOMKills = snapshot.Some(was + n)
	return c
}

func (c *oomNode) seconds(n int) (v Verdict) {
	c.t.Helper()
	for range n {
		list := c.second(func(s *snapshot.Sample) { s.Workloads = append(s.Workloads, c.list...) })
		require.Len(c.t, list, 1)
		v = list[0]
	}
	return v
}

func TestOOMStorm(t *testing.T) {
	t.Run("names workload", oomStormNamesWorkload)
	t.Run("none", oomStormNone)
	t.Run("off by default", oomStormOffByDefault)
	t.Run("window", oomStormWindow)
	t.Run("clears", oomStormClears)
	t.Run("hard only if configured", oomStormHardOnlyIfConfigured)
	t.Run("names innermost cgroup", oomStormNamesInnermostCgroup)
	t.Run("kills uncounted", oomStormKillsUncounted)
	t.Run("warm up", oomStormWarmUp)
	t.Run("changed rule", oomStormChangedRule)
	t.Run("model", oomStormModel)
}

func oomStormNamesWorkload(t *testing.T) {
	c := newOOMNode(t)
	c.seconds(60)
	c.kill(1, 1).seconds(10)
	v := c.kill(1, 1).kill(0, 1).seconds(20)
	require.Equal(t, None, v.Level)
	assert.Contains(t, v.Reason, "OOM kills of pod b within 1m30s 2 (needs ≥ 3)")
	v = c.kill(1, 1).seconds(1)
	assert.Equal(t, Soft, v.Level)
	assert.Equal(t, "OOM kills of pod b within 1m30s 3 (≥ 3)", v.Reason)
	assert.Equal(t, "oom-storm", v.Plugin)
	assert.Equal(t, "node", v.Scope)
	assert.Equal(t, "OOMStorm", v.Condition)
	assert.Equal(t, snapshot.Some(3.0), v.Observed)
	assert.Equal(t, []Candidate{{
		Cgroup: "/pods/b", Name: "pod b", PodUID: "/pods/b", Relief: 2 * gib, Unit: "bytes",
		Why: "3 OOM kills within 1m30s, working set 2048 MiB",
	}}, v.Candidates, "nobody else")
	v = c.kill(2, 9).seconds(1)
	require.Len(t, v.Candidates, 2)
	assert.Equal(t, "pod c", v.Candidates[0].Name, "the worst first")
}

func oomStormNone(t *testing.T) {
	for what, pass := range map[string]func(*oomNode){
		"none":                     func(c *oomNode) { c.seconds(60) },
		"one, and one much later":  func(c *oomNode) { c.kill(0, 1).seconds(60) },
		"one of each workload":     func(c *oomNode) { c.kill(0, 1).kill(1, 1).kill(2, 1).seconds(100) },
		"a kubelet that backs off": func(c *oomNode) { c.kill(0, 1).seconds(300) },
		"a counter that starts anew": func(c *oomNode) {
			c.list[0].OOMKills = snapshot.Some[uint64](0)
			c.seconds(10)
			c.kill(0, 2).seconds(91)
		},
		"the number of a new workload": func(c *oomNode) {
			c.list[0].Inode += 10
			c.list[0].OOMKills = snapshot.Some[uint64](50)
			c.seconds(30)
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := newOOMNode(t)
			for range 5 {
				pass(c)
				v := c.levels.Verdicts[0]
				require.Equal(t, None, v.Level, v.Reason)
				require.Empty(t, v.Absent)
			}
		})
	}
}

func oomStormOffByDefault(t *testing.T) {
	for _, p := range Inners(Default()) {
		assert.NotEqual(t, "oom-storm", p.Name())
	}
}

func oomStormWindow(t *testing.T) {
	c := newOOMNode(t)
	c.seconds(2)
	c.kill(0, 2).seconds(90)
	require.Equal(t, None, c.levels.Verdicts[0].Level)
	assert.Equal(t, None, c.kill(0, 1).seconds(1).Level, "the first two are 91 s ago")
	c.seconds(60)
	assert.Equal(t, Soft, c.kill(0, 2).seconds(1).Level)
}

func oomStormClears(t *testing.T) {
	c := newOOMNode(t)
	c.seconds(2)
	require.Equal(t, Soft, c.kill(0, 3).seconds(1).Level)
	v := c.seconds(90)
	assert.Equal(t, Soft, v.Level)
	assert.Equal(t, None, v.MetLevel)
	assert.Empty(t, v.Candidates, "nobody is in one now")
	assert.Equal(t, Soft, c.seconds(28).Level)
	assert.Equal(t, None, c.seconds(1).Level, "30 s after the last of them left the window")
}

func oomStormHardOnlyIfConfigured(t *testing.T) {
	c := newOOMNode(t)
	c.seconds(2)
	assert.Equal(t, Soft, c.kill(0, 100).seconds(1).Level)

	c = newOOMNode(t, func(o *OOMStorm) { o.HardKills = 5 })
	c.seconds(2)
	assert.Equal(t, Soft, c.kill(0, 4).kill(1, 3).seconds(1).Level)
	v := c.kill(0, 1).seconds(1)
	assert.Equal(t, Hard, v.Level)
	assert.Equal(t, Hard, v.MetLevel)
	assert.Equal(t, snapshot.Some(5.0), v.Threshold)
	require.Len(t, v.Candidates, 1, "who is below hard's line need not go")
	assert.Equal(t, "pod a", v.Candidates[0].Name)
}

func oomStormNamesInnermostCgroup(t *testing.T) {
	c := newOOMNode(t)
	c.list[0].Cgroup, c.list[0].Name = "/pods", "pods"
	c.seconds(2)
	v := c.kill(0, 4).kill(1, 4).seconds(1)
	require.Len(t, v.Candidates, 1)
	assert.Equal(t, "pod b", v.Candidates[0].Name)
}

func oomStormKillsUncounted(t *testing.T) {
	c := newOOMNode(t)
	assert.Equal(t, "a difference needs two samples", c.seconds(1).Absent)
	assert.Empty(t, c.seconds(1).Absent)
	for i := range c.list {
		c.list[i].OOMKills = snapshot.Opt[uint64]{}
		c.list[i].Absent = snapshot.Absent{"oomKillsTotal": "oom_kill in memory.oom_control (kernel before 4.13)"}
	}
	v := c.seconds(10)
	assert.Equal(t, None, v.Level)
	assert.Contains(t, v.Absent, "kernel before 4.13")
	assert.True(t, v.Observed.IsZero())
	c.list = nil
	assert.Equal(t, "no workload found", c.seconds(10).Absent)

	c = newOOMNode(t)
	c.list[0].OOMKills, c.list[2].MemoryBytes = snapshot.Opt[uint64]{}, snapshot.Opt[uint64]{}
	c.seconds(2)
	v = c.kill(1, 3).kill(2, 4).seconds(1)
	assert.Equal(t, Soft, v.Level, "the others are counted")
	require.Len(t, v.Candidates, 1, "nobody is named whose memory is not known")
	assert.Equal(t, "pod b", v.Candidates[0].Name)
}

func oomStormWarmUp(t *testing.T) {
	c := newOOMNode(t)
	storm := DefaultOOMStorm()
	storm.Enabled, storm.HardKills = true, 4
	c.set = NewSet(Config{WarmUp: 5 * time.Minute, OOMStorm: storm}, nil)
	for range 300 {
		require.Equal(t, None, c.kill(0, 1).seconds(1).Level)
	}
	assert.Equal(t, Hard, c.seconds(1).Level)
}

func oomStormChangedRule(t *testing.T) {
	c := newOOMNode(t)
	c.seconds(2)
	require.Equal(t, Soft, c.kill(0, 9).seconds(1).Level)
	now := c.set.config
	now.OOMStorm.Kills = 2
	c.set.Configure(now)
	assert.Equal(t, None, c.seconds(10).Level)
	assert.Equal(t, Soft, c.kill(0, 2).seconds(1).Level)
}

// slowStorm keeps the kills of every second of each workload.
type slowStorm struct {
	kills [][3]uint64
	worth []uint64
	on    bool
	since int
}

func (s *slowStorm) judge(now [3]uint64) (Level, map[string]bool) {
	s.kills = append(s.kills, now)
	last := len(s.kills) - 1
	most, named := uint64(0), map[string]bool{}
	for w := range 3 {
		n := uint64(0)
		for i := max(s.since+1, last-89); i <= last; i++ {
			n += s.kills[i][w]
		}
		if n >= 3 {
			named[fmt.Sprintf("/pods/%c", 'a'+w)] = true
		}
		most = max(most, n)
	}
	s.worth = append(s.worth, most)
	calm := last-s.since >= 30
	for i := last; calm && i > last-30; i-- {
		calm = s.worth[i] < 2
	}
	switch {
	case most >= 3:
		s.on = true
	case calm:
		s.on = false
	}
	if s.on {
		return Soft, named
	}
	return None, named
}

func oomStormModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 6))
	c, slow, seen := newOOMNode(t), &slowStorm{}, map[Level]int{}
	for i := range 30_000 {
		var now [3]uint64
		for w := range now {
			if rnd.IntN(150) == 0 {
				now[w] = uint64(1 + rnd.IntN(2))
			}
			c.kill(w, now[w])
		}
		if rnd.IntN(300) == 0 {
			c.sleep(10 * time.Second)
			slow.since = i
		}
		want, named := slow.judge(now)
		v := c.seconds(1)
		require.Equal(t, want, v.Level, "second %d: %s", i, v.Reason)
		if v.Absent == "" {
			got := map[string]bool{}
			for _, n := range v.Candidates {
				got[n.Cgroup] = true
			}
			require.Equal(t, named, got, "second %d", i)
		}
		seen[want]++
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft} {
		require.Greater(t, seen[l], 1000, l)
	}
}
