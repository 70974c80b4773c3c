package web

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func droppedBy(t testing.TB, text string) float64 {
	t.Helper()
	return podValues(t, text, "plimsoll_pod_series_dropped_total")[""]
}

func TestPodSeriesOfBusiest(t *testing.T) {
	text := podText(NewPodSeries(2, 1000), sampled(1, using("a", 5), using("b", 300), using("c", 40), using("d", 200)))
	assert.Equal(t, []string{"b", "d"}, namesIn(t, text))
	assert.Equal(t, 2.0, droppedBy(t, text))
}

// burdened is a workload that uses or suffers one thing alone.
func burdened(name string, rates snapshot.WorkloadRates) snapshot.WorkloadState {
	w := using(name, 1)
	w.Rates = snapshot.Some(rates)
	return w
}

func TestPodSeriesRankUseAndPressure(t *testing.T) {
	full := snapshot.StallRatio{Full: snapshot.Some(0.2)}
	for name, rates := range map[string]snapshot.WorkloadRates{
		"CPU":          {CPUCores: snapshot.Some(0.4)}, // of 2
		"CPU stall":    {Pressure: snapshot.Ratios{CPU: full}},
		"memory stall": {Pressure: snapshot.Ratios{Memory: full}},
		"I/O stall":    {Pressure: snapshot.Ratios{IO: full}},
		"network":      {Network: snapshot.Some(snapshot.WorkloadNetworkRates{ReceiveBytesPerSecond: 1, TransmitBytesPerSecond: 250})},
		"disk":         {IO: []snapshot.WorkloadIORates{{Number: "9:9"}, {Number: "8:0", ReadsPerSecond: 60, WritesPerSecond: 20}}}, // 80 of 160 requests, 40 % busy
	} {
		less, more := using("less", 195), using("more", 215) // of 1024 MiB: 19 % and 21 %
		s := sampled(1, less, burdened("it", rates), more)
		s.Snapshot.CPU.Online = snapshot.Some(2)
		veth := snapshot.NIC{SpeedBytesPerSecond: snapshot.Some[uint64](1e9)} // what the kernel says of it means nothing
		s.Snapshot.NICs = []snapshot.NICState{{NIC: snapshot.NIC{Physical: true, SpeedBytesPerSecond: snapshot.Some[uint64](1250)}}, {NIC: veth}}
		s.Snapshot.Disks = []snapshot.DiskState{{
			Disk:  snapshot.Disk{Name: "sda", Number: "8:0"},
			Rates: snapshot.Some(snapshot.DiskRates{ReadsPerSecond: 100, WritesPerSecond: 60, BusyRatio: 0.4}),
		}}
		assert.Equal(t, []string{"it", "more"}, namesIn(t, podText(NewPodSeries(2, 1000), s)), "%s: it is as loaded as 20 %% of the memory", name)
		assert.Equal(t, []string{"more"}, namesIn(t, podText(NewPodSeries(1, 1000), s)), name)
	}
}

func TestPodSeriesRankWorkingSet(t *testing.T) {
	cache := using("cache", 900)
	cache.WorkingSetBytes = snapshot.Some[uint64](1 << 20)
	assert.Equal(t, []string{"b"}, namesIn(t, podText(NewPodSeries(1, 1000), sampled(1, cache, using("b", 100)))))
}

func TestPodSeriesHysteresis(t *testing.T) {
	p := NewPodSeries(2, 1000)
	assert.Equal(t, []string{"a", "b"}, namesIn(t, podText(p, sampled(1, using("a", 90), using("b", 80), using("c", 70), using("d", 10)))))
	assert.Equal(t, []string{"a", "b", "c"}, namesIn(t, podText(p, sampled(2, using("a", 90), using("b", 70), using("c", 80), using("d", 10)))),
		"c is among the first two and comes in at once, b is third and stays")
	assert.Equal(t, []string{"a", "b", "c"}, namesIn(t, podText(p, sampled(3, using("a", 90), using("b", 80), using("c", 70), using("d", 10)))), "and so on")
	assert.Equal(t, []string{"a", "c"}, namesIn(t, podText(p, sampled(4, using("a", 90), using("b", 5), using("c", 70), using("d", 10)))), "fourth is too far")
	assert.Equal(t, []string{"a", "c"}, namesIn(t, podText(p, sampled(5, using("a", 90), using("b", 30), using("c", 70), using("d", 10)))),
		"third does not bring it back")
}

func TestPodSeriesSimilarUseNoSwaps(t *testing.T) {
	p, random := NewPodSeries(20, 1000), rand.New(rand.NewSource(1))
	came := map[string]int{}
	var before []string
	for i := range uint64(500) {
		list := make([]snapshot.WorkloadState, 50)
		for n := range list {
			list[n] = using(fmt.Sprintf("w%02d", n), uint64(500-8*n+random.Intn(60))) // a noise of seven places
		}
		now := namesIn(t, podText(p, sampled(i+1, list...)))
		for _, name := range now {
			if !slices.Contains(before, name) {
				came[name]++
			}
		}
		before = now
	}
	for name, times := range came {
		assert.Equal(t, 1, times, "%s comes once and stays", name)
	}
}

func TestPodSeriesCgroupReplaced(t *testing.T) {
	p := NewPodSeries(1, 1000)
	a := using("a", 50)
	namesIn(t, podText(p, sampled(1, a, using("b", 10))))
	first := p.cache.entries[keyOf(&a)]
	a.Inode++
	assert.Equal(t, []string{"a"}, namesIn(t, podText(p, sampled(2, a, using("b", 10)))))
	assert.NotSame(t, first, p.cache.entries[keyOf(&a)])
	assert.Len(t, p.cache.entries, 1)
	assert.Len(t, p.cache.owners, 1)
}

func TestPodSeriesPrefixMadeOnce(t *testing.T) {
	p := NewPodSeries(10, 1000)
	s := manyPods(3)
	podText(p, s)
	w := &s.Snapshot.Workloads[1]
	e := p.cache.entries[keyOf(w)]
	prefix, device := &e.prefixes[0], &e.devices[0]
	s.Snapshot.Sequence++
	podText(p, s)
	assert.Same(t, e, p.cache.entries[keyOf(w)])
	assert.Same(t, prefix, &e.prefixes[0])
	assert.Same(t, device, &e.devices[0])

	text := &e.devices[0].prefixes[0]
	w.IO = append([]snapshot.WorkloadIO{{Number: "8:0"}}, w.IO...)
	podText(p, s)
	assert.Same(t, text, &e.devices[1].prefixes[0], "a further device leaves that of the others")
	assert.Same(t, prefix, &e.prefixes[0])

	podText(p, sampled(9))
	assert.Empty(t, p.cache.entries, "no entry of an ended workload")
	assert.Empty(t, p.cache.owners)
	assert.Empty(t, p.disks)
}

func TestPodSeriesWithinLimit(t *testing.T) {
	s := manyPods(30)
	for i := range 400 { // one that went over every disk
		s.Snapshot.Workloads[29].IO = append(s.Snapshot.Workloads[29].IO, snapshot.WorkloadIO{Number: fmt.Sprintf("65:%d", i)})
	}
	p := NewPodSeries(25, 300)
	families := parseMetrics(t, []byte(podText(p, s)))
	assert.Len(t, families["plimsoll_pod_memory_bytes"].GetMetric(), 10, "two thirds of 300 series, at 20 each")
	assert.Equal(t, 200+1, countSeries(families), "and the one that counts what was dropped")
	assert.Equal(t, float64(19*20+1620), families["plimsoll_pod_series_dropped_total"].GetMetric()[0].GetCounter().GetValue())
}

func TestPodSeriesDroppedOncePerSample(t *testing.T) {
	p := NewPodSeries(1, 1000)
	first, second := sampled(7, using("a", 9), using("b", 3), using("c", 1)), sampled(8, using("a", 9), using("b", 3))
	assert.Equal(t, 2.0, droppedBy(t, podText(p, first)))
	assert.Equal(t, 2.0, droppedBy(t, podText(p, first)))
	assert.Equal(t, 3.0, droppedBy(t, podText(p, second)))
	assert.Equal(t, 3.0, droppedBy(t, podText(p, first)), "one that was slow and comes late")
	assert.Equal(t, 3.0, droppedBy(t, podText(p, sampled(9, using("a", 9)))), "an ended workload was not dropped")
}

func TestPodSeriesLateScrape(t *testing.T) {
	p := NewPodSeries(1, 1000)
	old := sampled(1, using("a", 9), using("b", 3))
	podText(p, old)
	assert.Equal(t, []string{"b"}, namesIn(t, podText(p, sampled(2, using("a", 1), using("b", 3)))))
	assert.Equal(t, []string{"b"}, namesIn(t, podText(p, old)))
	assert.Equal(t, []string{"b"}, namesIn(t, podText(p, sampled(3, using("a", 2), using("b", 3)))))
}

// TestPodSeriesChoiceRandomized tries loads, sizes and bounds at random.
func TestPodSeriesChoiceRandomized(t *testing.T) {
	check := func(seed int64) bool {
		r := rand.New(rand.NewSource(seed))
		p := NewPodSeries(1+r.Intn(8), 50+r.Intn(400))
		in := map[workloadKey]bool{}
		for i := range uint64(20) {
			s := randomPods(r, i+1)
			families := parseMetrics(t, []byte(podText(p, s)))
			require.LessOrEqual(t, len(p.cache.entries), p.choice.maxKept())
			require.LessOrEqual(t, countSeries(families)-1, p.choice.max)
			require.Len(t, p.cache.owners, len(p.cache.entries))
			for _, f := range families {
				valuesIn(t, f) // none is there twice
			}
			checkPlaces(t, p, s, in)
			in = map[workloadKey]bool{}
			for key := range p.cache.entries {
				in[key] = true
			}
		}
		return !t.Failed()
	}
	require.NoError(t, quick.Check(check, &quick.Config{MaxCount: 10}))
}

// checkPlaces compares the chosen workloads with their ranks, where all series fit.
func checkPlaces(t *testing.T, p *PodSeries, s *view.State, before map[workloadKey]bool) {
	all := 0
	for i := range s.Snapshot.Workloads {
		all += p.metrics.seriesOf(&s.Snapshot.Workloads[i])
	}
	if all > p.choice.max-p.choice.max/3 {
		return
	}
	for place, r := range p.choice.ranks {
		_, in := p.cache.entries[r.key]
		require.Equal(t, place < p.choice.top || before[r.key] && place < p.choice.top+p.choice.top/2, in, "place %d of top %d", place, p.choice.top)
	}
}

// randomPods are a few pods that come and go, some in two cgroups.
func randomPods(r *rand.Rand, sequence uint64) *view.State {
	s := manyPods(14)
	s.Snapshot.Sequence = sequence
	s.Snapshot.Workloads = slices.DeleteFunc(s.Snapshot.Workloads, func(snapshot.WorkloadState) bool { return r.Intn(4) == 0 })
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		w.WorkingSetBytes = snapshot.Some(uint64(r.Intn(1 << 30)))
		w.Inode += uint64(r.Intn(2))
		if r.Intn(3) == 0 {
			w.Network, w.IO = snapshot.Opt[snapshot.WorkloadNetwork]{}, nil
		}
		for range r.Intn(3) {
			w.IO = append(w.IO, snapshot.WorkloadIO{Number: fmt.Sprintf("8:%d", len(w.IO))})
		}
	}
	if n := len(s.Snapshot.Workloads); n > 0 && r.Intn(2) == 0 {
		again := s.Snapshot.Workloads[r.Intn(n)]
		again.Cgroup = "/again" + again.Cgroup
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, again)
	}
	if r.Intn(3) == 0 {
		s.Cluster.PodOf = nil
	}
	return s
}
