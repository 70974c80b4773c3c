package backup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
)

func TestForecast(t *testing.T) {
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	about := func(mid time.Duration) durations.Estimate {
		return durations.Estimate{Low: mid * 4 / 5, Mid: mid, High: mid * 5 / 4}
	}
	waits := func(uid, namespace string, takes time.Duration, deadline time.Time) Backup {
		return Backup{UID: uid, Name: uid, Phase: Queued, Created: noon, Version: 1, Turn: Turn{Version: 1}, Include: []string{namespace}, Takes: about(takes), Due: objective.Due{Deadline: deadline}}
	}
	forecast := func(limit int, coming []Backup, backups ...Backup) map[string]Outlook {
		all := map[string]Outlook{}
		for _, o := range Forecast(Input{Time: noon, Config: Config{Limit: limit, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"a", "b", "c"}), Backups: backups}, coming, nil, nil, at(24)) {
			all[o.Name] = o
		}
		return all
	}
	running := Backup{UID: "runs", Name: "runs", Phase: InProgress, Began: at(-1), Include: []string{"a"}, Takes: about(2 * time.Hour)}
	t.Run("one after the other", func(t *testing.T) {
		all := forecast(1, nil, running, waits("first", "b", time.Hour, at(3)), waits("second", "c", time.Hour, at(4)))
		assert.Equal(t, at(1), all["runs"].Ends)
		assert.Equal(t, at(1), all["first"].Begins)
		assert.Equal(t, at(3), all["second"].Ends)
		for name, o := range all {
			assert.Zero(t, o.Late, name)
			assert.True(t, o.Earliest.Before(o.Ends) && o.Latest.After(o.Ends), name)
			assert.Less(t, o.Latest.Sub(o.Earliest), 3*time.Hour, name)
		}
		assert.Greater(t, all["second"].Latest.Sub(all["second"].Earliest), all["runs"].Latest.Sub(all["runs"].Earliest), "what comes later is less sure")
	})
	t.Run("what makes one take longer makes others", func(t *testing.T) {
		var list []Backup
		for i := range 10 {
			list = append(list, waits(fmt.Sprint(i), "b", time.Hour, time.Time{}))
		}
		last := forecast(1, nil, list...)["9"]
		assert.Greater(t, last.Latest.Sub(last.Earliest), 3*time.Hour, "of each by itself it would be about 2 h")
	})
	t.Run("late for the limit", func(t *testing.T) {
		o := forecast(1, nil, running, waits("late", "b", time.Hour, at(1.5)))["late"]
		assert.Equal(t, "will miss its deadline by 30m, because it waits 1h while as many other Backups run as the limit allows, 1", o.String())
		assert.Equal(t, []string{"a limit of 2 instead of 1"}, o.Helps)
	})
	t.Run("late for a Backup of the same namespace", func(t *testing.T) {
		o := forecast(2, nil, running, waits("late", "a", time.Hour, at(1.5)))["late"]
		assert.Equal(t, "will miss its deadline by 30m, because it shares namespaces with Backup runs, for which it waits 1h", o.String())
		assert.Empty(t, o.Helps)
	})
	t.Run("late by itself", func(t *testing.T) {
		b := waits("late", "b", 2*time.Hour, at(2.5))
		b.Due.Opens = at(1)
		o := forecast(2, nil, running, b)["late"]
		assert.Equal(t, "will miss its deadline by 30m, because it takes 2h by itself", o.String())
		assert.Equal(t, []string{"all backup windows opening an hour earlier"}, o.Helps)
		b.Due.First = true
		assert.Empty(t, forecast(2, nil, running, b)["late"].Helps, "no backup window keeps a first Backup waiting")
	})
	t.Run("one that is ready becomes stuck no more, and one that is stuck stays so", func(t *testing.T) {
		for ready, begins := range map[time.Duration]time.Time{9 * time.Minute: at(1), 10 * time.Minute: noon} {
			first := running
			first.Phase, first.Began, first.ReadySince = Ready, time.Time{}, noon.Add(-ready)
			first.Takes = about(time.Hour)
			comes := waits("comes", "c", time.Minute, at(12))
			comes.Created = at(0.5) // by then it would be
			in := Input{Time: noon, Config: Config{Limit: 1, Aging: 24 * time.Hour, StuckAfter: 10 * time.Minute}, Namespaces: NewNamespaces([]string{"a", "b", "c"}), Backups: []Backup{first, waits("next", "b", time.Hour, at(9))}}
			list := Forecast(in, []Backup{comes}, nil, nil, at(24))
			assert.Equal(t, begins, list[1].Begins, "ready for %s", ready)
			assert.Equal(t, ready < in.Config.StuckAfter, list[0].Begins.Equal(noon), "ready for %s", ready)
		}
	})
	t.Run("late for one that is stuck", func(t *testing.T) {
		stuck := waits("stuck", "a", time.Hour, at(2))
		stuck.Phase, stuck.ReadySince = Ready, at(-1)
		in := Input{Time: noon, Config: Config{Limit: 1, StuckAfter: time.Minute}, Namespaces: NewNamespaces([]string{"a", "b"}), Backups: []Backup{stuck, waits("same", "a", time.Hour, at(2)), waits("other", "b", time.Hour, at(2))}}
		list := Forecast(in, nil, nil, nil, at(24))
		assert.Equal(t, "Velero does not take it up", list[0].Because)
		assert.Contains(t, list[1].Because, "it shares namespaces with Backup stuck, for which it waits ")
		assert.Contains(t, list[1].Because, ", because Velero does not take that up")
		assert.Equal(t, at(1), list[2].Ends)
	})
	t.Run("those to come", func(t *testing.T) {
		coming := waits("comes", "b", time.Hour, at(3))
		coming.Created = at(1.5)
		all := forecast(1, []Backup{coming}, running, waits("long", "c", 4*time.Hour, at(12)))
		assert.Equal(t, at(5), all["comes"].Begins)
		assert.Equal(t, 3*time.Hour, all["comes"].Late)
	})
	t.Run("an RPO counts from the one before", func(t *testing.T) {
		hourly := running
		hourly.Schedule = "hourly"
		next := waits("next", "a", time.Hour, at(2))
		next.Schedule = "hourly"
		last := next
		last.UID, last.Name, last.Created = "last", "last", at(1.5)
		want := objective.Objective{RPO: 150 * time.Minute}
		dues := func(b *Backup, _, newest time.Time) (objective.Due, time.Time) {
			return want.Due(objective.DefaultBounds(), b.Created, newest), time.Time{}
		}
		in := Input{Time: noon, Config: Config{Limit: 2, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"a"}), Backups: []Backup{hourly, next}}
		list := Forecast(in, []Backup{last}, nil, dues, at(24))
		require.Len(t, list, 3)
		assert.Equal(t, at(1.5), list[1].Due.Deadline, "after the one that began an hour ago")
		assert.Equal(t, 30*time.Minute, list[1].Late)
		assert.Equal(t, at(1), list[1].Begins)
		assert.Equal(t, at(3.5), list[2].Due.Deadline, "after the one that begins in an hour")
		assert.Zero(t, list[2].Late)
	})
	t.Run("an RPO counts from the one that was started last and is good", func(t *testing.T) {
		for name, tt := range map[string]struct {
			began time.Time // of one that ends after the one that began an hour ago
			phase Phase
			want  time.Time
		}{
			"started before it": {at(-2), Finalizing, at(1.5)},
			"started after it":  {at(-0.5), Finalizing, at(2)},
			"but is failing":    {at(-0.5), FinalizingPartial, at(1.5)},
			"or was failing":    {at(-0.5), WaitingForOperationsPartial, at(1.5)},
		} {
			hourly, other, next := running, running, waits("next", "a", time.Hour, at(2))
			hourly.Schedule, other.Schedule, next.Schedule = "hourly", "hourly", "hourly"
			other.UID, other.Name, other.Phase, other.Began, other.Takes = "other", "other", tt.phase, tt.began, about(90*time.Minute+noon.Sub(tt.began))
			next.Created = at(1.25)
			dues := func(b *Backup, _, newest time.Time) (objective.Due, time.Time) {
				return objective.Due{Deadline: newest.Add(150 * time.Minute)}, time.Time{}
			}
			in := Input{Time: noon, Config: Config{Limit: 1, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"a"}), Backups: []Backup{hourly, other, waits("busy", "a", time.Hour, at(9))}}
			list := Forecast(in, []Backup{next}, nil, dues, at(24))
			assert.Equal(t, tt.want, list[3].Due.Deadline, name)
		}
	})
	t.Run("where the order knows no deadlines", func(t *testing.T) {
		first, second := waits("first", "a", time.Hour, time.Time{}), waits("second", "b", time.Hour, time.Time{})
		first.Schedule, second.Schedule, second.Turn = "daily", "hourly", Turn{Version: 2}
		hourly := running
		hourly.Schedule, hourly.Include = "hourly", []string{"c"}
		dues := func(*Backup, time.Time, time.Time) (objective.Due, time.Time) {
			return objective.Due{Deadline: at(2.5)}, time.Time{}
		}
		list := Forecast(Input{Time: noon, Config: Config{Limit: 1}, Namespaces: NewNamespaces([]string{"a", "b", "c"}), Backups: []Backup{hourly, first, second}}, nil, nil, dues, at(24))
		assert.Equal(t, at(1), list[1].Begins, "they change nothing")
		assert.Equal(t, 30*time.Minute, list[2].Late)
	})
	t.Run("what Velero rejects ends at once", func(t *testing.T) {
		all := forecast(1, nil, running, waits("odd", "x**", 5*time.Hour, time.Time{}), waits("next", "b", time.Hour, at(9)))
		assert.Equal(t, at(2).Add(time.Second), all["odd"].Ends)
		assert.Equal(t, at(1), all["next"].Begins)
	})
	t.Run("not known yet", func(t *testing.T) {
		b := waits("new", "b", time.Hour, at(3))
		b.Takes = durations.Estimate{Why: "no Backup of its schedule has ended yet"}
		all := forecast(1, nil, running, b, waits("next", "c", time.Hour, at(9)))
		o := all["new"]
		assert.Equal(t, "not known: no Backup of its schedule has ended yet", o.String())
		assert.Equal(t, at(4), all["next"].Ends, "and takes as long as others")
	})
	t.Run("changes nothing and is the same again", func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 5))
		for range 50 {
			in := dated(r, world(r, 12))
			before := slices.Clone(in.Backups)
			a, b := Forecast(in, nil, nil, nil, noon.Add(12*time.Hour)), Forecast(in, nil, nil, nil, noon.Add(12*time.Hour))
			require.Equal(t, a, b)
			require.Equal(t, before, in.Backups)
		}
	})
}

// A forecast begins with what the queue decides now.
func TestForecastStartsWhatDecideStarts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		in := dated(r, world(r, r.IntN(14)))
		in.HandBack = false
		c := &cluster{in: in, came: 1000, writes: map[string]int{}, waited: map[string]time.Duration{}}
		c.in.Backups = slices.DeleteFunc(slices.Clone(in.Backups), func(b Backup) bool { return !b.running() && !b.waits() })
		c.step(t)
		var starts []string
		for _, f := range (&premises{in: in, until: in.Time.Add(time.Second)}).play(middle).runs {
			if f.Backup.waits() && f.begins.Equal(in.Time) {
				starts = append(starts, f.UID)
			}
		}
		assert.ElementsMatch(t, c.order, starts, "seed %d", seed)
	}
}

// A play ends when it has decided about so many Backups, or when the term that asked for it has ended.
func TestForecastIsBounded(t *testing.T) {
	in, coming := busyNight(200)
	p := premises{in: in, coming: coming, until: noon.Add(24 * time.Hour)}
	whole := p.play(middle)
	assert.Equal(t, p.until, whole.until)
	p.work = whole.done / 4
	cut := p.play(middle)
	assert.GreaterOrEqual(t, cut.done, p.work)
	assert.Less(t, cut.done, p.work+mostDecisions*len(coming))
	assert.True(t, cut.until.After(noon) && cut.until.Before(p.until), cut.until)
	for i, o := range p.forecast(nil) {
		if began := whole.runs[i].begins; began.Before(p.until) {
			assert.Equal(t, began, o.Begins, o.Name)
			assert.Zero(t, o.Late)
		} else {
			assert.Zero(t, o.Begins, o.Name)
		}
	}
	assert.Equal(t, cut.until, p.until)
	asked := 0
	p.work, p.over = 0, func() bool { asked++; return asked > 2 }
	p.forecast(nil)
	assert.Equal(t, 2+1+plays, asked, "two decisions, and each play ends at once")
}

// BenchmarkForecast is one night of 500 Schedules.
func BenchmarkForecast(b *testing.B) {
	in, coming := busyNight(500)
	b.ReportAllocs()
	for b.Loop() {
		Forecast(in, coming, nil, nil, in.Time.Add(12*time.Hour))
	}
}

// busyNight has so many Backups to come within an hour, each of its own namespace, all with
// the same window.
func busyNight(schedules int) (Input, []Backup) {
	r := rand.New(rand.NewPCG(1, 7))
	names := make([]string, schedules)
	for i := range names {
		names[i] = fmt.Sprintf("ns-%04d", i)
	}
	in := Input{Time: noon, Config: Config{Limit: 16, Aging: 24 * time.Hour}, Namespaces: NewNamespaces(names)}
	var coming []Backup
	for i, name := range names {
		mid := time.Duration(5+r.IntN(30)) * time.Minute
		coming = append(coming, Backup{
			UID: name, Name: name, Created: noon.Add(time.Duration(r.IntN(4)) * 15 * time.Minute), Include: []string{names[i]}, Schedule: name,
			Due:   objective.Due{Opens: noon.Add(30 * time.Minute), Deadline: noon.Add(8 * time.Hour)},
			Takes: durations.Estimate{Low: mid / 2, Mid: mid, High: 2 * mid},
		})
	}
	return in, coming
}
