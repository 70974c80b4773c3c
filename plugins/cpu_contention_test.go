package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// cpuSecond is what happens to a node in a second: a service, a batch that has the
// rest, and pods elsewhere.
type cpuSecond struct {
	stall                   float64 // of the node
	service, batch          float64 // CPUs
	elsewhere               float64 // CPUs that neither of them uses
	waits, own              float64 // of the service: while others had its CPUs, and what its quota held back, summed over CPUs
	batchWaits, batchItself float64 // of the batch: while others had its CPUs, and while its own tasks did
	steal                   float64 // CPUs
}

// quietCPU is a healthy node whose CPUs are used to the last.
func quietCPU() cpuSecond {
	return cpuSecond{stall: 0.3, service: 0.3, batch: 1.68, waits: 0.04, batchWaits: 0.05, batchItself: 0.2}
}

// contendedCPU is a service that waits for a batch of many tasks.
func contendedCPU() cpuSecond {
	return cpuSecond{stall: 0.99, service: 0.4, batch: 1.58, waits: 0.64, batchWaits: 0.2, batchItself: 0.8}
}

// cpuNode is a made-up node.
type cpuNode struct {
	*life
	cpus                      int
	cpu, steal                float64
	stall                     uint64
	cores, waits, some, held  [2]uint64
	noPSI, noFull, noThrottle bool
	noPodPSI                  bool
	batch                     string
}

func newCPUNode(t *testing.T, change ...func(*CPUContention)) *cpuNode {
	t.Helper()
	c := Config{CPUContention: DefaultCPUContention()}
	for _, f := range change {
		f(&c.CPUContention)
	}
	return &cpuNode{life: newLife(t, c), cpus: 2, batch: "/kubepods/burstable/pod22222222-2222-2222-2222-222222222222"}
}

func (n *cpuNode) next(d cpuSecond) Verdict {
	n.cpu, n.steal = n.cpu+d.service+d.batch+d.elsewhere, n.steal+d.steal
	n.stall += uint64(d.stall * 1e6)
	for i, v := range [2][4]float64{{d.service, d.waits, 0.1, d.own}, {d.batch, d.batchWaits, d.batchItself, 0}} {
		n.cores[i] += uint64(v[0] * 1e6)
		n.waits[i] += uint64(v[1] * 1e6)
		n.some[i] += uint64((v[1] + v[2]) * 1e6)
		n.held[i] += uint64(v[3] * 1e6)
	}
	list := n.second(func(s *snapshot.Sample) {
		s.CPU = snapshot.CPU{Online: snapshot.Some(n.cpus), Seconds: map[string]float64{"user": n.cpu, "steal": n.steal}}
		if n.noPSI {
			s.Pressure.Absent.Because("cpu", "no PSI")
		} else {
			s.Pressure.CPU.Some = snapshot.Some(n.stall)
		}
		for i, cgroup := range []string{"/kubepods/burstable/pod11111111-1111-1111-1111-111111111111", n.batch} {
			s.Workloads = append(s.Workloads, n.workload(i, cgroup))
		}
	})
	require.Len(n.t, list, 1)
	return list[0]
}

func (n *cpuNode) workload(i int, cgroup string) snapshot.Workload {
	w := snapshot.NewWorkload(cgroup)
	w.Inode, w.At, w.ThrottledAt, w.CPUMicroseconds = uint64(i+1), n.at, n.at, snapshot.Some(n.cores[i])
	w.Name = []string{"service", "batch"}[i]
	if !n.noPodPSI {
		w.Pressure.CPU.Some = snapshot.Some(n.some[i])
		if !n.noFull {
			w.Pressure.CPU.Full = snapshot.Some(n.waits[i])
		}
	}
	if !n.noThrottle {
		w.ThrottledMicroseconds = snapshot.Some(n.held[i])
	} else {
		w.Absent.Because("throttledMicrosecondsTotal", "no throttled_usec")
	}
	return w
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
		assert.Equal(t, "a workload waits because of others over 10s 64.0 % (≥ 50 %); met for 61 s (≥ 60 s); "+
			"service waits 64 % of the time; batch uses 80 % of the CPU time in use; service uses 20 % of the CPU time in use", v.Reason)
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
		dip.waits = 0.4
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
		"a batch waits for itself":           {stall: 1, service: 0.02, batch: 1.94, waits: 0.05, batchWaits: 0.07, batchItself: 0.93},
		"a pod waits for its own quota":      change(func(d *cpuSecond) { d.service, d.waits, d.own = 0.5, 0.75, 1.45 }),
		"a service waits for less than half": change(func(d *cpuSecond) { d.waits = 0.48 }),
		"idle":                               {service: 0.01},
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
				if i >= 10 { // all of the window was seen
					require.Empty(t, v.Absent)
				}
			}
		})
	}
	t.Run("the lowest class waits for a service", func(t *testing.T) {
		n := newCPUNode(t)
		n.batch = "/kubepods/besteffort/pod22222222-2222-2222-2222-222222222222"
		v := n.seconds(200, cpuSecond{stall: 0.99, service: 1.9, batch: 0.08, waits: 0.05, batchWaits: 0.99})
		assert.Equal(t, None, v.Level, v.Reason)
	})
}

// TestCPUPool is of made-up nodes of 64 CPUs, two of which two pods share, as a
// kubelet's static CPU manager leaves them: the other pods have CPUs of their own.
func TestCPUPool(t *testing.T) {
	pool := func() *cpuNode {
		n := newCPUNode(t)
		n.cpus = 64
		return n
	}
	t.Run("a service waits for the other pod of its pool", func(t *testing.T) {
		d := contendedCPU()
		d.stall, d.elsewhere = 0.03, 60
		v := pool().seconds(75, d)
		assert.Equal(t, Soft, v.Level, v.Reason)
		assert.Contains(t, v.Reason, "service waits 64 % of the time")
		d.elsewhere = 5
		assert.Equal(t, Soft, pool().seconds(75, d).Level, "and where the other CPUs are idle")
	})
	t.Run("a pod that has its CPUs to itself", func(t *testing.T) {
		v := pool().seconds(200, cpuSecond{stall: 0.04, service: 0.5, elsewhere: 40, batch: 2, batchWaits: 0.01, batchItself: 0.98})
		assert.Equal(t, None, v.Level, v.Reason)
		assert.Empty(t, v.Absent)
	})
	t.Run("a pod with a quota on four CPUs", func(t *testing.T) {
		d := cpuSecond{stall: 0.05, service: 2, elsewhere: 40, batch: 2, waits: 0.5, own: 2}
		v := pool().seconds(200, d)
		assert.Equal(t, None, v.Level, v.Reason)
		assert.Contains(t, v.Reason, "over 10s 0.0 %")
		d.service, d.waits = 0.6, 0.85 // the others have three times as much of its CPUs
		d.own = 1
		v = pool().seconds(75, d)
		assert.Equal(t, Soft, v.Level, "what its quota costs it does not hide the others: "+v.Reason)
	})
	t.Run("pods whose own pressure is unknown", func(t *testing.T) {
		n := pool()
		n.noPodPSI = true
		v := n.seconds(75, cpuSecond{stall: 0.03, service: 0.4, batch: 1.6, elsewhere: 40})
		assert.Equal(t, None, v.Level)
		assert.Contains(t, v.Absent, "the stall of 2 workloads is unknown")
	})
}

func TestCPUNotJudged(t *testing.T) {
	for why, change := range map[string]func(*cpuNode){
		"no PSI":                               func(n *cpuNode) { n.noPSI = true },
		"no throttled_usec":                    func(n *cpuNode) { n.noThrottle = true },
		"has no line full before 5.13":         func(n *cpuNode) { n.noFull = true },
		"the stall of 2 workloads is unknown ": func(n *cpuNode) { n.noPodPSI = true },
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
	t.Run("does not end a level at once", func(t *testing.T) {
		n := newCPUNode(t)
		require.Equal(t, Soft, n.seconds(75, contendedCPU()).Level)
		n.noPSI = true
		for range 300 {
			v := n.next(contendedCPU())
			require.Equal(t, Soft, v.Level, v.Reason)
			require.Equal(t, None, v.MetLevel)
			require.Equal(t, "no PSI", v.Absent)
		}
		v := n.seconds(40, contendedCPU())
		assert.Equal(t, None, v.Level, "it does not stay on for ever")
		assert.Equal(t, "no PSI", v.NotJudged())
	})
	t.Run("does not count towards the minute", func(t *testing.T) {
		n := newCPUNode(t)
		n.seconds(60, contendedCPU())
		n.noPSI = true
		n.seconds(20, contendedCPU())
		n.noPSI = false
		assert.Equal(t, None, n.seconds(50, contendedCPU()).Level)
	})
	t.Run("after a gap", func(t *testing.T) {
		n := newCPUNode(t)
		seen := func(level Level) {
			n.sleep(time.Minute)
			v := n.next(quietCPU())
			require.Equal(t, level, v.Level)
			require.Equal(t, "a ratio needs two samples", v.Absent)
			v = n.seconds(4, quietCPU())
			require.Equal(t, level, v.Level)
			require.Equal(t, "4s of the last 10s seen so far", v.Absent)
			require.Empty(t, n.seconds(6, quietCPU()).Absent)
		}
		n.seconds(20, quietCPU())
		seen(None)
		require.Equal(t, Soft, n.seconds(75, contendedCPU()).Level)
		seen(Soft)
		assert.Equal(t, None, n.seconds(35, quietCPU()).Level)
	})
	t.Run("is no matter while no workload can wait for long", func(t *testing.T) {
		n := newCPUNode(t)
		n.noThrottle = true
		d := contendedCPU()
		d.waits = 0.2
		assert.Empty(t, n.seconds(100, d).Absent)
		n.noPodPSI = true
		d.stall = 0.1
		assert.Empty(t, n.seconds(100, d).Absent)
	})
	t.Run("a short wait that is known does not hide one that is not", func(t *testing.T) {
		on := &snapshot.Contention{State: snapshot.ContentionPresent, Sufferers: []snapshot.Sufferer{{Waited: 0.9}, {Waited: 0.3, Share: snapshot.Some(0.1)}}}
		on.Absent.Because("shareRatio", "not counted")
		waited, unknown := longestWait(on, 0.5)
		assert.True(t, waited.IsZero())
		assert.Equal(t, "not counted", unknown)
		on.Sufferers[1].Waited = 0.6
		waited, unknown = longestWait(on, 0.5)
		assert.Equal(t, snapshot.Some(0.6), waited, "a long one that is known is enough")
		assert.Empty(t, unknown)
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
	service, held, waits := 0.0, 0.0, 0.0
	for _, p := range s.past[len(s.past)-10:] {
		service, held, waits = service+p.service/10, held+p.own/10, waits+p.waits/10
	}
	on := max(1, min(2, service/max(0.05, 1-waits))) // CPUs
	waited := max(0, waits-held/on)
	met, lower := waited >= 0.5, waited >= 0.35
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
			d = cpuSecond{stall: pick(0.1013, 0.9297), service: pick(0.1, 0.5), batch: 1.4, waits: pick(0.0307, 0.2311, 0.5717, 0.8329), own: pick(0, 0, 0.6103), batchWaits: 0.1}
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
