package snapshot

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// shrinks plays a node whose available memory in MiB is given second by second.
func shrinks(seconds int, available func(second int) float64) *Snapshot {
	h := &History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 5 * time.Second}
	var s *Snapshot
	for i := range seconds {
		s = h.Add(memoryAt(i, available(i)))
	}
	return s
}

func memoryAt(second int, available float64) *Sample {
	at := time.Duration(second+1) * time.Second
	return &Sample{BootID: "b", Monotonic: at, Boottime: at, Memory: Memory{AvailableBytes: Some(uint64(max(0, available) * mib))}}
}

func TestExhaustion(t *testing.T) {
	for name, c := range map[string]struct {
		seconds   int
		available func(int) float64
		want      float64 // seconds; 0: none
	}{
		"a steady leak":                           {30, func(i int) float64 { return 2000 - 40*float64(i) }, 21},
		"a leak that has lasted for 12 s":         {13, func(i int) float64 { return 1000 - 40*float64(i) }, 13},
		"one of 11 s may be the start of a pod":   {12, func(i int) float64 { return 1000 - 40*float64(i) }, 0},
		"a slow one is seen by longer steps":      {600, func(i int) float64 { return 1000 - float64(i) }, 401},
		"further than it has lasted for":          {30, func(i int) float64 { return 8000 - 40*float64(i) }, 0},
		"what does not shrink":                    {600, func(int) float64 { return 1000 }, 0},
		"what grows":                              {600, func(i int) float64 { return 1000 + float64(i) }, 0},
		"a program that started and holds it":     {60, func(i int) float64 { return 1500 - 100*float64(min(max(i-30, 0), 10)) }, 0},
		"a single step down":                      {60, func(i int) float64 { return 1500 - 1400*float64(i/50) }, 0},
		"a leak that has stopped":                 {50, func(i int) float64 { return 2000 - 40*float64(min(i, 40)) }, 0},
		"a leak that has almost stopped":          {50, func(i int) float64 { return 2000 - 40*float64(min(i, 40)) - 2*float64(max(0, i-40)) }, 0},
		"taken and released, again and again":     {600, func(i int) float64 { return 1000 - 40*float64(i%10) }, 0},
		"one reading that is off changes nothing": {30, func(i int) float64 { return 2000 - 40*float64(i) + 300*float64(i/28*(1-i/29)) }, 21},
		"nothing left and nothing to lose":        {60, func(int) float64 { return 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := shrinks(c.seconds, c.available).Exhaustion.Memory().Get()
			require.Equal(t, c.want > 0, ok, "%v", e)
			if ok {
				assert.InDelta(t, c.want, e.Seconds, 1)
				assert.LessOrEqual(t, e.EarliestSeconds, e.Seconds)
				assert.GreaterOrEqual(t, e.LatestSeconds, e.Seconds)
			}
		})
	}
}

func TestExhaustionText(t *testing.T) {
	e := Exhaustion{Kind: ExhaustsMemory, Seconds: 41.4, EarliestSeconds: 31, LatestSeconds: 7300, OverSeconds: 125}
	assert.Equal(t, "no memory available in about 41 s (31 s to 2 h, if it shrinks as in the last 2 min)", e.String())
}

// A gap, another boot and another agent begin anew: the slope between two readings of
// different times means nothing.
func TestExhaustionBreaks(t *testing.T) {
	leak := func(i int) *Sample { return memoryAt(i, 4000-40*float64(i)) }
	for name, spoil := range map[string]func(*History, *Sample){
		"a suspend": func(_ *History, s *Sample) { s.Boottime += time.Hour },
		"a boot":    func(_ *History, s *Sample) { s.BootID = "another" },
		"an agent":  func(h *History, _ *Sample) { h.Break("another agent") },
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 5 * time.Second}
			for i := range 60 {
				h.Add(leak(i))
			}
			require.NotEmpty(t, h.newest.Exhaustion)
			s := leak(60)
			spoil(h, s)
			assert.Empty(t, h.Add(s).Exhaustion)
		})
	}
	t.Run("the wall clock", func(t *testing.T) {
		h := &History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 5 * time.Second}
		for i := range 60 {
			s := leak(i)
			s.Time = time.Unix(int64(1000-i*37), 0)
			if i >= 40 {
				require.NotEmpty(t, h.Add(s).Exhaustion)
			} else {
				h.Add(s)
			}
		}
	})
	t.Run("a missing measurement", func(t *testing.T) {
		h := &History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 5 * time.Second}
		for i := range 60 {
			h.Add(leak(i))
		}
		none := leak(60)
		none.Memory = Memory{}
		assert.Empty(t, h.Add(none).Exhaustion)
		assert.Empty(t, h.Add(leak(61)).Exhaustion)
	})
}

func TestFilesystemExhaustion(t *testing.T) {
	// A filesystem that is read every ten seconds, half a second before the sample.
	fill := func(h *History, from, seconds int, with func(i int, f *Filesystem)) *Snapshot {
		var s *Snapshot
		for i := from; i < from+seconds; i++ {
			raw := memoryAt(i, 1000)
			read := i - i%10
			f := Filesystem{
				Mountpoint: "/data", Device: "/dev/sda1", Type: "ext4", AgeSeconds: Some(float64(i-read) + 0.5),
				SizeBytes: Some[uint64](1 << 40), AvailableBytes: Some(uint64(30e9 - 50e6*float64(read))), FilesFree: Some[uint64](1e6),
			}
			with(i, &f)
			raw.Filesystems = []Filesystem{f}
			s = h.Add(raw)
		}
		return s
	}
	begin := func() *History {
		return &History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 5 * time.Second}
	}
	same := func(int, *Filesystem) {}
	t.Run("space", func(t *testing.T) {
		s := fill(begin(), 0, 300, same)
		e, ok := s.Exhaustion.Filesystem("/data").Get()
		require.True(t, ok)
		assert.Equal(t, ExhaustsSpace, e.Kind)
		assert.InDelta(t, 600-299-0.5+0.0, e.Seconds, 1.5, "counted from now, not from the reading")
		assert.InDelta(t, 50e6, e.ShrinksPerSecond, 1)
		assert.True(t, s.Exhaustion.Filesystem("/").IsZero())
	})
	t.Run("inodes before space", func(t *testing.T) {
		s := fill(begin(), 0, 300, func(i int, f *Filesystem) { f.FilesFree = Some(uint64(400_000 - 1000*(i-i%10))) })
		e, ok := s.Exhaustion.Filesystem("/data").Get()
		require.True(t, ok)
		assert.Equal(t, ExhaustsInodes, e.Kind)
		assert.InDelta(t, 100, e.Seconds, 2)
		assert.Len(t, s.Exhaustion, 2)
	})
	t.Run("a mount that hangs", func(t *testing.T) {
		h := begin()
		require.NotEmpty(t, fill(h, 0, 300, same).Exhaustion)
		s := fill(h, 300, 1, func(_ int, f *Filesystem) { f.Absent.Because(AbsentFilesystem, "statfs hangs") })
		assert.Empty(t, s.Exhaustion)
	})
	t.Run("another filesystem in its place", func(t *testing.T) {
		h := begin()
		require.NotEmpty(t, fill(h, 0, 300, same).Exhaustion)
		assert.Empty(t, fill(h, 300, 1, func(_ int, f *Filesystem) { f.Device = "/dev/sdb1" }).Exhaustion)
	})
	t.Run("one large file is no trend", func(t *testing.T) {
		s := fill(begin(), 0, 300, func(i int, f *Filesystem) { f.AvailableBytes = Some(uint64(30e9 - 29e9*float64(i/280))) })
		assert.Empty(t, s.Exhaustion)
	})
	t.Run("values of the kernel that make no sense", func(t *testing.T) {
		for _, age := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
			assert.Empty(t, fill(begin(), 0, 100, func(_ int, f *Filesystem) { f.AgeSeconds = Some(age) }).Exhaustion)
		}
	})
}

// Of leaks under noise the interval has the true time in nineteen of twenty cases.
func TestExhaustionInterval(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all, inside := 0, 0
	for range 300 {
		rate, noise := 20+80*random.Float64(), 1+30*random.Float64()
		s := shrinks(40, func(i int) float64 { return 60*rate - rate*float64(i) + noise*random.NormFloat64() })
		if e, ok := s.Exhaustion.Memory().Get(); ok {
			all++
			if truth := 60.0 - 39; e.EarliestSeconds <= truth+1 && truth-1 <= e.LatestSeconds {
				inside++
			}
		}
	}
	assert.Greater(t, all, 200)
	assert.GreaterOrEqual(t, 20*inside, 19*all, "%d of %d", inside, all)
}

// slowExhaustion is the same from all readings ever made, with nothing kept but them.
func slowExhaustion(all []reading) (best Opt[Exhaustion]) {
	now := all[len(all)-1]
	for _, step := range shrinkSteps() {
		thin := thinned(all, step)
		for _, n := range []int{8, 13, 24} {
			if len(thin) < n {
				continue
			}
			window := slices.Clone(thin[len(thin)-n:])
			if window[n-1] != now {
				window = append(window[1:], now)
			}
			e, ok := slowEstimate(window).Get()
			if b, some := best.Get(); ok && (!some || e.Seconds < b.Seconds) {
				best = Some(e)
			}
		}
	}
	return best
}

func thinned(all []reading, step time.Duration) (thin []reading) {
	for _, r := range all {
		if len(thin) == 0 || r.at-thin[len(thin)-1].at >= step-jitter {
			thin = append(thin, r)
		}
	}
	return thin
}

func slowEstimate(list []reading) (none Opt[Exhaustion]) {
	var slopes []float64
	for i := range list {
		for j := i + 1; j < len(list); j++ {
			slopes = append(slopes, (list[j].available-list[i].available)/(list[j].at-list[i].at).Seconds())
		}
	}
	slices.Sort(slopes)
	of := map[int][2]int{8: {3, 25}, 13: {17, 61}, 24: {85, 191}}[len(list)] // C of Sen's table at 99 %
	mean := func(from, to int) float64 {
		return (list[to].available - list[from].available) / (list[to].at - list[from].at).Seconds()
	}
	third, last, median := len(list)/3, len(list)-1, slopes[len(slopes)/2]
	slowest := slopes[of[1]]
	left, over := list[last].available, (list[last].at - list[0].at).Seconds()
	switch {
	case over < 11.95, slowest >= 0, left/-median > 4*over:
		return none
	case mean(0, third) >= 0, mean(third, 2*third) >= 0, mean(2*third, last) >= 0:
		return none
	case mean(0, third) > median/2, mean(third, 2*third) > median/2, mean(2*third, last) > median/2:
		return none
	}
	return Some(Exhaustion{
		Seconds: left / -median, EarliestSeconds: left / -slopes[of[0]], LatestSeconds: left / -slowest, ShrinksPerSecond: -median, OverSeconds: over,
	})
}

func FuzzExhaustion(f *testing.F) {
	f.Add([]byte{40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40}, uint8(100))
	f.Add([]byte{0, 255, 0, 255, 3, 9}, uint8(3))
	f.Fuzz(func(t *testing.T, falls []byte, pace uint8) {
		var s shrinking
		var all []reading
		at, left := time.Second, 1e4
		for i := range 4 * len(falls) {
			at += time.Duration(pace)*10*time.Millisecond + 20*time.Millisecond
			left = max(0, left+64-float64(falls[i%len(falls)]))
			r := reading{at, left}
			added := s.last
			s.add(r)
			if s.last != added {
				all = append(all, r)
				require.Equal(t, slowExhaustion(all), s.estimate, "reading %d", i)
			}
			for _, list := range s.steps {
				require.LessOrEqual(t, len(list), keptReadings)
			}
			if e, ok := s.estimate.Get(); ok {
				require.False(t, math.IsNaN(e.Seconds) || math.IsInf(e.LatestSeconds, 0) || e.Seconds < 0)
				require.LessOrEqual(t, e.EarliestSeconds, e.Seconds)
				require.LessOrEqual(t, e.Seconds, e.LatestSeconds)
			}
		}
	})
}

func BenchmarkExhaustion(b *testing.B) {
	var s shrinking
	for i := range b.N {
		s.add(reading{time.Duration(i) * time.Second, 1e9 - float64(i)})
	}
}
