package durations

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var first = time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)

// good is the nth run of a Schedule that is good, one a day.
func good(schedule string, n int, minutes float64) Run {
	started := first.AddDate(0, 0, n)
	return Run{Schedule: schedule, Started: started, Completed: started.Add(time.Duration(minutes * float64(time.Minute))), Good: true, Kind: Incremental}
}

func TestEstimate(t *testing.T) {
	t.Run("not known yet", func(t *testing.T) {
		var h History
		assert.Equal(t, Estimate{Why: "no Backup of its schedule has ended yet"}, h.Next("a", Unknown, 0, time.Time{}))
		h.Add(good("a", 0, 10))
		h.Add(good("a", 1, 10))
		e := h.Next("a", Unknown, 0, time.Time{})
		assert.Equal(t, "an estimate needs 3 good Backups of its schedule, and there are 2", e.Why)
		for i := 2; i < 8; i++ {
			h.Add(good("a", i, 10))
		}
		e = h.Next("a", Unknown, 0, time.Time{})
		assert.Equal(t, "an interval needs 19 good Backups of all schedules, not counting the first 3 of each, and there are 5", e.Why)
		assert.False(t, e.Known())
		assert.Equal(t, 8, e.Runs)
	})
	t.Run("errors of other Schedules make the interval", func(t *testing.T) {
		var h History
		for i := range 8 {
			for of := range 5 {
				h.Add(good(fmt.Sprint(of), i, float64(10+i%2)))
			}
		}
		e := h.Next("0", Unknown, 0, time.Time{})
		require.True(t, e.Known(), e.Why)
		assert.True(t, e.Low < e.Mid && e.High > 12*time.Minute, e)
	})
	t.Run("an outlier moves nothing and a failure teaches none", func(t *testing.T) {
		var h History
		for i := range 29 {
			h.Add(good("a", i, 10))
		}
		want := h.Next("a", Unknown, 0, time.Time{})
		h.Add(good("a", 29, 1000))
		failed := good("a", 30, 1)
		failed.Good = false
		h.Add(failed)
		e := h.Next("a", Unknown, 0, time.Time{})
		assert.Equal(t, want.Mid, e.Mid)
		assert.Equal(t, 10*time.Minute, e.Mid)
		assert.Equal(t, 1, e.Failures)
		assert.Greater(t, e.High, time.Hour, "but the interval is wider")
	})
}

func TestEstimateKinds(t *testing.T) {
	t.Run("a full one is as long as full ones", func(t *testing.T) {
		var h History
		for i := range 30 {
			r := good("a", i, 10)
			if i%5 == 0 {
				r = good("a", i, 60)
				r.Kind = Full
			}
			h.Add(r)
		}
		assert.Equal(t, time.Hour, h.Next("a", Full, 0, time.Time{}).Mid)
		assert.Equal(t, 10*time.Minute, h.Next("a", Incremental, 0, time.Time{}).Mid)
	})
	t.Run("a size that is known scales it, within bounds", func(t *testing.T) {
		var h History
		for i := range 30 {
			r := good("a", i, 10)
			r.Bytes = 10 << 30
			h.Add(r)
		}
		assert.Equal(t, 20*time.Minute, h.Next("a", Incremental, 20<<30, time.Time{}).Mid)
		assert.Equal(t, 40*time.Minute, h.Next("a", Incremental, 1<<60, time.Time{}).Mid)
		assert.Equal(t, 150*time.Second, h.Next("a", Incremental, 1<<20, time.Time{}).Mid)
	})
}

func TestEstimateTimeOfDay(t *testing.T) {
	t.Run("one by night is as long as others by night", func(t *testing.T) {
		var h History
		for i := range 30 { // every hour, from 22:00 to 03:00 of the second night
			minutes := time.Duration(10)
			if i%24 < 6 || i%24 == 23 {
				minutes = 40
			}
			started := first.Add(time.Duration(i) * time.Hour)
			h.Add(Run{Schedule: "a", Started: started, Completed: started.Add(minutes * time.Minute), Good: true})
		}
		assert.Equal(t, 10*time.Minute, h.Next("a", Unknown, 0, first.Add(14*time.Hour)).Mid, "at noon")
		assert.Equal(t, 40*time.Minute, h.Next("a", Unknown, 0, first.Add(26*time.Hour)).Mid, "at midnight")
		assert.Equal(t, 40*time.Minute, h.Next("a", Unknown, 0, first.Add(47*time.Hour)).Mid, "at 21:00, by those until midnight, too")
		assert.Equal(t, 40*time.Minute, h.Next("a", Unknown, 0, time.Time{}).Mid, "at any time: as the newest")
		for i := range 25 {
			h.Add(good("nightly", i, 20))
		}
		assert.Equal(t, 20*time.Minute, h.Next("nightly", Unknown, 0, first.Add(14*time.Hour)).Mid, "none was by day")
	})
	t.Run("intervals and pace are by the time of the day too", func(t *testing.T) {
		var h History
		for i := range 30 {
			for of := range 5 {
				started := first.Add(time.Duration(i) * 12 * time.Hour)
				h.Add(Run{Schedule: fmt.Sprint(of), Started: started, Completed: started.Add([]time.Duration{40, 10}[i%2] * time.Minute), Good: true})
			}
		}
		assert.Equal(t, 64*time.Minute, h.Next("0", Unknown, 0, first.AddDate(0, 0, 15)).High, "only the first are mixed")
		assert.InDelta(t, 1, h.Pace(first.Add(29*12*time.Hour+30*time.Minute)), 0)
	})
}

func TestHistoryAdd(t *testing.T) {
	t.Run("times that cannot be teach nothing", func(t *testing.T) {
		var h History
		for _, r := range []Run{{}, good("", 0, 10), good("a", 0, -10), good("a", 0, 60*24*31), good(strings.Repeat("a", 254), 0, 10)} {
			h.Add(r)
		}
		assert.Empty(t, h.schedules)
	})
	t.Run("a run of no time took up to a second", func(t *testing.T) {
		var h History
		for i := range 25 {
			h.Add(good("a", i, 0))
		}
		assert.Equal(t, time.Second, h.Next("a", Unknown, 0, time.Time{}).Mid)
	})
	t.Run("the same twice is once", func(t *testing.T) {
		var h History
		for range 5 {
			h.Add(good("a", 0, 10))
		}
		assert.Equal(t, 1, h.Next("a", Unknown, 0, time.Time{}).Runs)
	})
	t.Run("a size that becomes known later is added, and stays", func(t *testing.T) {
		var h History
		for i := range 25 {
			r := good("a", i, 10)
			r.Kind = Unknown
			h.Add(r)
		}
		require.Equal(t, 10*time.Minute, h.Next("a", Incremental, 20<<30, time.Time{}).Mid, "without sizes nothing scales")
		for _, of := range []int64{10, 0, 40} { // of which the first counts
			for i := range 25 {
				r := good("a", i, 10)
				r.Bytes = of << 30
				h.Add(r)
			}
			assert.Equal(t, 20*time.Minute, h.Next("a", Incremental, 20<<30, time.Time{}).Mid)
		}
		assert.Equal(t, 25, h.Next("a", Unknown, 0, time.Time{}).Runs)
	})
	t.Run("sizes of another kind do not scale", func(t *testing.T) {
		var h History
		for i := range 25 {
			r := good("a", i, 10)
			r.Bytes = 10 << 30
			h.Add(r)
		}
		assert.Equal(t, 10*time.Minute, h.Next("a", Full, 1000<<30, time.Time{}).Mid)
		assert.Equal(t, 10*time.Minute, h.Next("a", Unknown, 1000<<30, time.Time{}).Mid)
	})
}

func TestLeft(t *testing.T) {
	// Nineteen of twenty runs took 9 or 11 minutes, the others an hour.
	var errors []float64
	for i := range 40 {
		errors = append(errors, math.Log([]float64{0.9, 1.1}[i/20]))
	}
	errors = append(errors, math.Log(6), math.Log(6))
	e := Estimate{Low: 9 * time.Minute, Mid: 10 * time.Minute, High: 11 * time.Minute, errors: errors}
	for elapsed, want := range map[time.Duration][3]time.Duration{
		-time.Minute:     {9 * time.Minute, 10 * time.Minute, 11 * time.Minute},
		0:                {9 * time.Minute, 10 * time.Minute, 11 * time.Minute},
		4 * time.Minute:  {5 * time.Minute, 7 * time.Minute, 7 * time.Minute},
		10 * time.Minute: {time.Minute, time.Minute, 50 * time.Minute},
		12 * time.Minute: {48 * time.Minute, 48 * time.Minute, 48 * time.Minute}, // what outlasts most is one of the long ones
		time.Hour:        {36 * time.Second, 6 * time.Minute, 11*time.Minute + 24*time.Second},
	} {
		left := e.Left(elapsed)
		assert.Equal(t, want, [3]time.Duration{left.Low, left.Mid, left.High}, elapsed)
	}
	assert.Equal(t, Estimate{Why: "new"}, Estimate{Why: "new"}.Left(time.Hour))
}

func TestPace(t *testing.T) {
	var h History
	for i := range 10 {
		for of := range 5 {
			h.Add(good(fmt.Sprint(of), i, 10))
		}
	}
	now := first.AddDate(0, 0, 10).Add(30 * time.Minute)
	assert.InDelta(t, 1, h.Pace(now), 0)
	for of := range 4 {
		h.Add(good(fmt.Sprint(of), 10, 20))
	}
	assert.InDelta(t, 1, h.Pace(now), 0, "of too few")
	h.Add(good("4", 10, 15))
	assert.InDelta(t, 2, h.Pace(now), 0.001, "by the median")
	assert.InDelta(t, 1, h.Pace(now.Add(2*time.Hour)), 0, "and ends by itself")
	e := Estimate{Low: 8 * time.Minute, Mid: 10 * time.Minute, High: 20 * time.Minute}
	assert.Equal(t, Estimate{Low: 16 * time.Minute, Mid: 20 * time.Minute, High: 40 * time.Minute}, e.Scaled(2))
	assert.Equal(t, Estimate{Why: "new"}, Estimate{Why: "new"}.Scaled(2))
}

func TestKindOf(t *testing.T) {
	assert.Equal(t, []Kind{Unknown, Unknown, Full, Full, Incremental, Incremental},
		[]Kind{KindOf(0, 0), KindOf(10, -1), KindOf(10, 10), KindOf(10, 9), KindOf(10, 8), KindOf(10, 0)})
}

// A median of runs whose durations grow, with outliers and failures, of Schedules that differ.
func TestEstimateCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var h History
	known, in := 0, 0
	for n := range 200 {
		for of := range 20 {
			minutes := float64(5+of) * math.Pow(1.003, float64(n)) * math.Exp(random.NormFloat64()*0.05*float64(1+of%5))
			if random.IntN(50) == 0 {
				minutes *= 5
			}
			r := good(fmt.Sprint(of), n, minutes)
			if e := h.Next(r.Schedule, Incremental, 0, time.Time{}); e.Known() {
				known++
				if took := r.Completed.Sub(r.Started); took >= e.Low && took <= e.High {
					in++
				}
			}
			r.Good = random.IntN(20) > 0
			h.Add(r)
		}
	}
	require.Greater(t, known, 3000)
	share := float64(in) / float64(known)
	t.Logf("%.1f %% of %d in intervals of 90 %%", 100*share, known)
	assert.InDelta(t, 0.9, share, 0.05)
}

// largest is a History of as many Schedules with as long names and numbers as it keeps,
// and more.
func largest() *History {
	var h History
	for of := range maxSchedules + 20 {
		name := fmt.Sprintf("%0*d", maxName, maxSchedules+20-of) // of equal ones the first by name is forgotten
		for n := range maxRuns + 5 {
			r := good(name, n, 60*24*29)
			r.Bytes = 1 << 59
			h.Add(r)
			r = good(name, n, 60*24*28)
			r.Good = false
			h.Add(r)
		}
	}
	return &h
}

func TestHistory(t *testing.T) {
	t.Run("has a bound", func(t *testing.T) {
		h := largest()
		require.Len(t, h.schedules, maxSchedules)
		for name, s := range h.schedules {
			require.Len(t, s.Runs, maxRuns, name)
			require.Len(t, s.Failed, maxRuns, name)
		}
	})
	t.Run("a run older than those that are kept changes nothing", func(t *testing.T) {
		var h History
		for i := range maxRuns + 1 {
			h.Add(good("a", i, 10))
		}
		before := h.Next("a", Unknown, 0, time.Time{})
		h.Add(good("a", 0, 10))
		assert.NotNil(t, h.schedules["a"].errors, "not to be derived again")
		assert.Equal(t, before, h.Next("a", Unknown, 0, time.Time{}))
	})
	t.Run("the Schedule that ended nothing for longest is forgotten", func(t *testing.T) {
		var h History
		for of := range maxSchedules + 1 {
			h.Add(good(fmt.Sprint(of), 1000-of, 10))
		}
		assert.Len(t, h.schedules, maxSchedules)
		_, there := h.schedules[fmt.Sprint(maxSchedules)]
		assert.False(t, there, "it is the one that was added last")
		h.Add(good("new", 1001, 10))
		_, there = h.schedules[fmt.Sprint(maxSchedules-1)]
		assert.False(t, there)
	})
}

// Of too many Schedules the newest are known whole, in whatever order they are added.
func TestHistoryOfTooManySchedules(t *testing.T) {
	const runs = 4
	var all []Run
	var names []string // by their newest ends, some of which are the same
	for of := range maxSchedules + 100 {
		names = append(names, fmt.Sprintf("%04d", of))
		for n := range runs {
			all = append(all, good(names[of], of/3-200*n, 10))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var h History
	for round := range 4 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, r := range all {
			h.Add(r)
		}
		if round == 0 {
			continue // what came before a newest run was forgotten
		}
		for of, name := range names {
			want := Estimate{Why: "only the runs of 5000 schedules are kept, and none of its schedule"}
			if of >= 100 {
				want = h.Next(name, Unknown, 0, time.Time{})
				require.Equal(t, runs, want.Runs, "%s in round %d", name, round)
			}
			require.Equal(t, want.Why, h.Next(name, Unknown, 0, time.Time{}).Why, "%s in round %d", name, round)
		}
	}
}

// BenchmarkNext asks for all Schedules after one run of each was added.
func BenchmarkNext(b *testing.B) {
	h := largest()
	n := maxRuns + 5
	for b.Loop() {
		for name := range h.schedules {
			h.Add(good(name, n, 10))
		}
		for name := range h.schedules {
			h.Next(name, Incremental, 0, time.Time{})
		}
		n++
	}
}
