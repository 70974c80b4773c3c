package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// asking for two CPUs, of low QoS.
func asking() snapshot.Pod { return snapshot.Pod{LowQoS: true, CPURequestMillicores: 2000} }

func suppression(t *testing.T, change ...func(*CPUSuppression)) *podNode {
	t.Helper()
	c := Config{CPUSuppression: DefaultCPUSuppression()}
	c.CPUSuppression.Enabled = true
	for _, f := range change {
		f(&c.CPUSuppression)
	}
	return newPodNode(t, c)
}

func TestCPUSuppression(t *testing.T) {
	t.Run("names pod", cpuSuppressionNamesPod)
	t.Run("none", cpuSuppressionNone)
	t.Run("restarts when supplied", cpuSuppressionRestartsWhenSupplied)
	t.Run("restarts after gap", cpuSuppressionRestartsAfterGap)
	t.Run("unmeasured", cpuSuppressionUnmeasured)
	t.Run("warm up", cpuSuppressionWarmUp)
	t.Run("model", cpuSuppressionModel)
}

func cpuSuppressionNamesPod(t *testing.T) {
	w := suppression(t).pod("a", asking()).pod("b", asking())
	starve := func() { w.runs(0, 0.4, 0.9, 0); w.runs(1, 0.2, 0.8, 0) }
	v := w.repeat(301*time.Second, starve)
	require.Equal(t, None, v.Level, v.Reason)
	assert.Contains(t, v.Reason, "ns/b gets 0.20 of the 2 CPUs that it requests (10 %) and waits for CPU 80 % of the time, for 4m59s (needs < 50 % of its request and ≥ 50 % waiting, for 5m0s)")
	v = w.repeat(time.Second, starve)
	require.Equal(t, Hard, v.Level, v.Reason)
	assert.Equal(t, Hard, v.MetLevel)
	assert.Equal(t, "cpu-suppression", v.Plugin)
	assert.Equal(t, CPU, v.Resource)
	assert.Equal(t, "CPUSuppression", v.Condition)
	assert.True(t, v.Target.IsZero() && v.Whole.IsZero(), "it goes for its own sake, however little it gives back")
	observed, _ := v.Observed.Get()
	assert.InDelta(t, 0.1, observed, 1e-6)
	require.Len(t, v.Candidates, 2)
	assert.Equal(t, "ns/b", v.Candidates[0].Name, "the one with the least first")
	assert.InDelta(t, 0.2, v.Candidates[0].Relief, 1e-6)
	assert.Equal(t, "cores", v.Candidates[0].Unit)
	assert.Equal(t, "gets 0.20 of the 2 CPUs that it requests (10 %) and waits for CPU 80 % of the time, for 5m0s", v.Candidates[0].Why)
}

func cpuSuppressionNone(t *testing.T) {
	for what, row := range map[string]struct {
		pod                 snapshot.Pod
		cores, waited, held float64
	}{
		"a healthy busy node":                       {asking(), 1.9, 0.3, 0},
		"it sleeps":                                 {asking(), 0.01, 0.01, 0},
		"it waits and has what it asks for":         {asking(), 2.0, 1, 0},
		"it waits for its own quota":                {asking(), 0.5, 0.9, 0.6},
		"its quota holds several of its tasks back": {asking(), 0.5, 0.9, 3},
		"it asks for nothing":                       {snapshot.Pod{LowQoS: true}, 0.1, 0.9, 0},
		"it is no pod of low QoS":                   {snapshot.Pod{CPURequestMillicores: 2000}, 0.1, 0.9, 0},
		"it is ending already":                      {snapshot.Pod{LowQoS: true, CPURequestMillicores: 2000, Terminating: true}, 0.1, 0.9, 0},
	} {
		t.Run(what, func(t *testing.T) {
			w := suppression(t).pod("a", row.pod)
			for range 320 {
				w.runs(0, row.cores, row.waited, row.held)
				v := w.pass()[0]
				require.Equal(t, None, v.Level, v.Reason)
				require.Empty(t, v.Candidates)
			}
			require.Empty(t, w.levels.Verdicts[0].Absent)
		})
	}
}

func cpuSuppressionRestartsWhenSupplied(t *testing.T) {
	w := suppression(t, func(c *CPUSuppression) { c.For = time.Minute }).pod("a", asking())
	starve := func() { w.runs(0, 0.1, 0.9, 0) }
	w.repeat(50*time.Second, starve)
	w.repeat(25*time.Second, func() { w.runs(0, 2, 0.1, 0) })
	v := w.repeat(60*time.Second, starve)
	require.Equal(t, None, v.Level, v.Reason)
	assert.Equal(t, Hard, w.repeat(30*time.Second, starve).Level)
	v = w.repeat(25*time.Second, func() { w.runs(0, 2, 0.1, 0) })
	assert.Equal(t, None, v.MetLevel)
	assert.Equal(t, Hard, v.Level, "kept until clear for half a minute")
	assert.Contains(t, v.Reason, "level stays on until clear")
	assert.Empty(t, v.Candidates)
	assert.Equal(t, None, w.repeat(30*time.Second, func() { w.runs(0, 2, 0.1, 0) }).Level)
}

func cpuSuppressionRestartsAfterGap(t *testing.T) {
	w := suppression(t, func(c *CPUSuppression) { c.For = time.Minute }).pod("a", asking())
	starve := func() { w.runs(0, 0.1, 0.9, 0) }
	w.repeat(58*time.Second, starve)
	w.sleep(10 * time.Second)
	assert.Equal(t, None, w.repeat(59*time.Second, starve).Level)
	assert.Equal(t, Hard, w.repeat(5*time.Second, starve).Level)
}

func cpuSuppressionUnmeasured(t *testing.T) {
	for why, change := range map[string]func(*podNode){
		"no API server is configured": func(w *podNode) { w.standalone = true },
		"not listed yet":              func(w *podNode) { w.pods, w.absent = nil, snapshot.Absent{"pods": "not listed yet"} },
		"no cpu.pressure (v1)": func(w *podNode) {
			w.list[0].Pressure = snapshot.Pressure{Absent: snapshot.Absent{"cpu": "no cpu.pressure (v1)"}}
		},
		"no throttled_usec": func(w *podNode) {
			w.list[0].ThrottledMicroseconds, w.list[0].Absent = snapshot.Opt[uint64]{}, snapshot.Absent{"throttledMicrosecondsTotal": "no throttled_usec"}
		},
		"no cpu hierarchy mounted": func(w *podNode) {
			w.list[0].CPUMicroseconds, w.list[0].Absent = snapshot.Opt[uint64]{}, snapshot.Absent{"cpuMicrosecondsTotal": "no cpu hierarchy mounted"}
		},
	} {
		t.Run(why, func(t *testing.T) {
			w := suppression(t).pod("a", asking())
			change(w)
			v := w.repeat(310*time.Second, func() { w.runs(0, 0.1, 0.9, 0) })
			assert.Equal(t, None, v.Level)
			assert.Contains(t, v.Absent, why)
			assert.Contains(t, v.Reason, why)
			assert.Empty(t, v.Candidates)
		})
	}
}

func cpuSuppressionWarmUp(t *testing.T) {
	w := suppression(t, func(c *CPUSuppression) { c.For = 10 * time.Second }).pod("a", asking())
	w.set.config.WarmUp = 5 * time.Minute
	starve := func() { w.runs(0, 0.1, 0.9, 0) }
	v := w.repeat(299*time.Second, starve)
	require.Equal(t, None, v.Level)
	assert.True(t, v.Partial)
	assert.Equal(t, Hard, w.repeat(3*time.Second, starve).Level)
}

// slowSupply is the slow obvious version: it keeps every second of every pod.
type slowSupply struct{ cores, waited, held [][]float64 }

func (s *slowSupply) add(pods int, of func(i int) [3]float64) {
	row := make([][3]float64, pods)
	for i := range row {
		row[i] = of(i)
	}
	list := [3][]float64{}
	for k := range list {
		for i := range row {
			list[k] = append(list[k], row[i][k])
		}
	}
	s.cores, s.waited, s.held = append(s.cores, list[0]), append(s.waited, list[1]), append(s.held, list[2])
}

// starvedAt says whether a pod was at a second: seconds are differences, so the
// first has none.
func (s *slowSupply) starvedAt(second, pod int) bool {
	from := max(1, second-29)
	if second < 1 {
		return false
	}
	var cores, waited, held float64
	for k := from; k <= second; k++ {
		cores, waited, held = cores+s.cores[k][pod], waited+s.waited[k][pod], held+s.held[k][pod]
	}
	n := float64(second - from + 1)
	return cores/n < 0.5*2 && max(0, min(1, waited/n)-held/n) >= 0.5
}

func (s *slowSupply) met(pod, seconds int) bool {
	last := len(s.cores) - 1
	for k := last - seconds; k <= last; k++ {
		if k < 0 || !s.starvedAt(k, pod) {
			return false
		}
	}
	return true
}

func cpuSuppressionModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	w := suppression(t, func(c *CPUSuppression) { c.For, c.ClearFor = 40*time.Second, time.Second })
	for _, name := range []string{"a", "b", "c"} {
		w.pod(name, asking())
	}
	slow, now, seen := &slowSupply{}, make([][3]float64, 3), map[bool]int{}
	pick := func(list ...float64) float64 { return list[rnd.IntN(len(list))] }
	for second := range 6000 {
		for i := range now {
			if rnd.IntN(60) == 0 || second == 0 {
				now[i] = [3]float64{pick(0.130417, 0.421931, 0.770249, 1.210183, 1.901573), pick(0.110219, 0.470863, 0.620537, 0.910129), pick(0, 0, 0.070241, 0.330713)}
			}
			w.runs(i, now[i][0], now[i][1], now[i][2])
		}
		slow.add(3, func(i int) [3]float64 { return now[i] })
		v := w.pass()[0]
		for i := range now {
			named := false
			for _, c := range v.Candidates {
				named = named || c.PodUID == w.pods[i].UID
			}
			want := slow.met(i, 40)
			require.Equal(t, want, named, "second %d, pod %d: %s", second, i, v.Reason)
			seen[want]++
		}
	}
	t.Log(seen)
	require.Greater(t, seen[true], 200)
	require.Greater(t, seen[false], 200)
}
