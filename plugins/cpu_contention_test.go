package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// cpuSecond is what happens to a node of two CPUs in a second: a service, a batch
// that has the rest, and the tasks at its end.
type cpuSecond struct {
	stall          float64 // of the node
	runnable       int
	service, batch float64 // CPUs
	waits, own     float64 // of the service: its stall, and what its quota held back
	batchWaits     float64
	steal          float64 // CPUs
}

// quietCPU is a healthy node whose CPUs are used to the last.
func quietCPU() cpuSecond {
	return cpuSecond{stall: 0.3, runnable: 2, service: 0.3, batch: 1.68, waits: 0.04, batchWaits: 0.25}
}

// contendedCPU is a service that waits for a batch of many tasks.
func contendedCPU() cpuSecond {
	return cpuSecond{stall: 0.99, runnable: 9, service: 0.4, batch: 1.58, waits: 0.8, batchWaits: 0.99}
}

// cpuNode is a made-up node.
type cpuNode struct {
	*life
	cpu, steal                 float64
	stall                      uint64
	cores, waits, held         [2]uint64
	noPSI, noQueue, noThrottle bool
	batch                      string
}

func newCPUNode(t *testing.T, change ...func(*CPUContention)) *cpuNode {
	t.Helper()
	c := Config{CPUContention: DefaultCPUContention()}
	for _, f := range change {
		f(&c.CPUContention)
	}
	return &cpuNode{life: newLife(t, c), batch: "/kubepods/burstable/pod22222222-2222-2222-2222-222222222222"}
}

func (n *cpuNode) next(d cpuSecond) Verdict {
	n.cpu, n.steal = n.cpu+d.service+d.batch, n.steal+d.steal
	n.stall += uint64(d.stall * 1e6)
	for i, v := range [2][3]float64{{d.service, d.waits, d.own}, {d.batch, d.batchWaits, 0}} {
		n.cores[i] += uint64(v[0] * 1e6)
		n.waits[i] += uint64(v[1] * 1e6)
		n.held[i] += uint64(v[2] * 1e6)
	}
	list := n.second(func(s *snapshot.Sample) {
		s.CPU = snapshot.CPU{Online: snapshot.Some(2), Seconds: map[string]float64{"user": n.cpu, "steal": n.steal}}
		if !n.noQueue {
			s.CPU.Runnable = snapshot.Some(d.runnable)
		}
		if n.noPSI {
			s.Pressure.Absent.Because("cpu", "no PSI")
		} else {
			s.Pressure.CPU.Some = snapshot.Some(n.stall)
		}
		for i, cgroup := range []string{"/kubepods/burstable/pod11111111-1111-1111-1111-111111111111", n.batch} {
			w := snapshot.NewWorkload(cgroup)
			w.Inode, w.At, w.ThrottledAt, w.CPUMicroseconds = uint64(i+1), n.at, n.at, snapshot.Some(n.cores[i])
			w.Name = []string{"service", "batch"}[i]
			w.Pressure.CPU.Some = snapshot.Some(n.waits[i])
			if !n.noThrottle {
				w.ThrottledMicroseconds = snapshot.Some(n.held[i])
			} else {
				w.Absent.Because("throttledMicrosecondsTotal", "no throttled_usec")
			}
			s.Workloads = append(s.Workloads, w)
		}
	})
	require.Len(n.t, list, 1)
	return list[0]
}

func (n *cpuNode) seconds(count int, d cpuSecond) (v Verdict) {
	for range count {
		v = n.next(d)
	}
	return v
}

func TestCPUContention(t *testing.T) {
	t.Run("a service that waits for others for a minute", func(t *testing.T) {
		n := newCPUNode(t)
		v := n.seconds(69, contendedCPU())
		require.Equal(t, None, v.Level, v.Reason)
		assert.Contains(t, v.Reason, "met for 58 s (needs ≥ 60 s)")
		v = n.seconds(3, contendedCPU())
		require.Equal(t, Soft, v.Level, v.Reason)
		assert.Equal(t, "CPU stall, some, over 10s 99.0 % (≥ 50 %); tasks that run or wait, of the CPUs, over 10s 450.0 % (≥ 125 %); "+
			"a workload waits because of others over 10s 63.8 % (≥ 50 %); met for 61 s (≥ 60 s); service waits 64 % of the time; batch uses 80 % of the CPU time in use; service uses 20 % of the CPU time in use", v.Reason)
		assert.True(t, v.ReportOnly)
		assert.Empty(t, v.Condition, "it is only reported")
		assert.Empty(t, v.Candidates)
		v = n.seconds(29, quietCPU())
		assert.Equal(t, Soft, v.Level, "kept until clear for half a minute")
		assert.Equal(t, None, n.seconds(30, quietCPU()).Level)
	})
	t.Run("with mark it has a condition", func(t *testing.T) {
		v := newCPUNode(t, func(c *CPUContention) { c.Mark = true }).seconds(75, contendedCPU())
		assert.Equal(t, Soft, v.Level)
		assert.Equal(t, "CPUContention", v.Condition)
		assert.False(t, v.ReportOnly)
	})
	t.Run("what the hypervisor takes is said", func(t *testing.T) {
		d := contendedCPU()
		d.steal, d.batch = 0.4, 1.18
		assert.Contains(t, newCPUNode(t).seconds(75, d).Reason, "the hypervisor gave 20 % of the CPU time to others (steal)")
	})
	t.Run("a moment below the threshold does not start the minute anew", func(t *testing.T) {
		n := newCPUNode(t)
		n.seconds(40, contendedCPU())
		dip := contendedCPU()
		dip.stall, dip.waits = 0.4, 0.5
		n.seconds(8, dip)
		assert.Equal(t, Soft, n.seconds(40, contendedCPU()).Level)
	})
}

func TestHealthyCPU(t *testing.T) {
	change := func(f func(*cpuSecond)) cpuSecond {
		d := contendedCPU()
		f(&d)
		return d
	}
	for what, d := range map[string]cpuSecond{
		"99 % busy and nothing waits":        quietCPU(),
		"a batch waits for itself":           {stall: 1, runnable: 10, service: 0.02, batch: 1.94, waits: 0.05, batchWaits: 1},
		"a pod waits for its own quota":      change(func(d *cpuSecond) { d.waits, d.own = 0.99, 1.3 }),
		"one task too many on many CPUs":     change(func(d *cpuSecond) { d.runnable = 2 }),
		"tasks wait for less than half":      change(func(d *cpuSecond) { d.stall = 0.49 }),
		"a service waits for less than half": change(func(d *cpuSecond) { d.waits = 0.6 }),
		"idle":                               {runnable: 1, service: 0.01},
		"a queue without waiting workloads":  change(func(d *cpuSecond) { d.waits, d.batchWaits = 0.1, 0.1 }),
		"a start of pods of fifteen seconds": quietCPU(),
	} {
		t.Run(what, func(t *testing.T) {
			n := newCPUNode(t)
			for i := range 200 {
				now := d
				if what == "a start of pods of fifteen seconds" && i%60 < 15 {
					now = contendedCPU()
				}
				v := n.next(now)
				require.Equal(t, None, v.Level, v.Reason)
				if i > 1 {
					require.Empty(t, v.Absent)
				}
			}
		})
	}
	t.Run("the lowest class waits for a service", func(t *testing.T) {
		n := newCPUNode(t)
		n.batch = "/kubepods/besteffort/pod22222222-2222-2222-2222-222222222222"
		v := n.seconds(200, cpuSecond{stall: 0.99, runnable: 9, service: 1.9, batch: 0.08, waits: 0.05, batchWaits: 0.99})
		assert.Equal(t, None, v.Level, v.Reason)
	})
}

func TestCPUNotJudged(t *testing.T) {
	for why, change := range map[string]func(*cpuNode){
		"no PSI": func(n *cpuNode) { n.noPSI = true },
		"the number of runnable tasks is not in /proc/stat": func(n *cpuNode) { n.noQueue = true },
		"no throttled_usec": func(n *cpuNode) { n.noThrottle = true },
	} {
		t.Run(why, func(t *testing.T) {
			n := newCPUNode(t)
			change(n)
			v := n.seconds(100, contendedCPU())
			assert.Equal(t, None, v.Level)
			assert.Contains(t, v.Absent, why)
			assert.Contains(t, v.Reason, why)
		})
	}
	t.Run("is no matter while the node does not stall", func(t *testing.T) {
		n := newCPUNode(t)
		n.noThrottle = true
		d := contendedCPU()
		d.stall = 0.2
		assert.Empty(t, n.seconds(100, d).Absent)
	})
}

// slowCPU keeps every second.
type slowCPU struct {
	past           []cpuSecond
	since, cleared int // since when at least the lower thresholds are met, 0: they are not
	on             bool
}

// judge the last ten seconds at second i, for a rule of twenty.
func (s *slowCPU) judge(i int) Level {
	stall, tasks, service, held, used, waits := 0.0, 0, 0.0, 0.0, 0.0, 0.0
	for _, p := range s.past[len(s.past)-10:] {
		stall, tasks, service = stall+p.stall/10, tasks+p.runnable, service+p.service/10
		held, used, waits = held+p.own/10, used+(p.service+p.batch)/10, waits+p.waits/10
	}
	waited := max(0, waits-held) * (1 - service/used)
	met, lower := stall >= 0.5 && tasks >= 25 && waited >= 0.5, stall >= 0.35 && waited >= 0.35
	switch {
	case !met && !lower:
		s.since = 0
	case s.since == 0 && met:
		s.since = i
	}
	lasted := met && s.since > 0 && i-s.since >= 20
	if lasted || lower {
		s.cleared = i
	}
	s.on = lasted || s.on && i-s.cleared < 30
	if s.on {
		return Soft
	}
	return None
}

// TestCPUModel holds the rule against a slow, obvious one that keeps every second.
func TestCPUModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	n, seen := newCPUNode(t, func(c *CPUContention) { c.For = 20 * time.Second }), map[Level]int{}
	var slow slowCPU
	pick := func(list ...float64) float64 { return list[rnd.IntN(len(list))] }
	d := quietCPU()
	for i := range 20_000 {
		if rnd.IntN(25) == 0 {
			d = cpuSecond{stall: pick(0.1013, 0.3719, 0.6131, 0.9297), runnable: int(pick(1, 2, 6)), service: 0.5, batch: 1.4, waits: pick(0.0307, 0.2311, 0.5717, 0.8329), own: pick(0, 0, 0.6103), batchWaits: 0.1}
		}
		slow.past = append(slow.past, d)
		v := n.next(d)
		if i < 10 {
			continue
		}
		want := slow.judge(i)
		require.Equal(t, want, v.Level, "second %d: %s", i, v.Reason)
		seen[want]++
	}
	t.Log(seen)
	require.Greater(t, seen[Soft], 100)
	require.Greater(t, seen[None], 500)
}
