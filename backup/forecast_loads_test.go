package backup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// pressed are loads of a Backup: one runs on the pressed node n7, and so many wait for it. Each
// takes half an hour, prepared at once.
func pressed(backup string, kind names.MoverKind, waiting int) *uploads.State {
	s := &uploads.State{Time: noon, Nodes: map[string]uploads.Node{"n7": {Places: 4, Pressed: true, Allowed: 1}}}
	volume := uploads.Volume{Kind: kind, Name: "data"}
	for i := range 20 {
		began := noon.Add(-time.Duration(i+2) * time.Hour)
		s.Ended = append(s.Ended, uploads.Ended{Volume: volume, Started: began, Completed: began.Add(30 * time.Minute)})
	}
	on := []string{"n7"}
	s.Loads = append(s.Loads, uploads.Load{Volume: volume, Backup: backup, Stage: uploads.Runs, Since: noon.Add(-10 * time.Minute), Nodes: on, Cancelled: noon.Add(20 * time.Hour)})
	for range waiting {
		s.Loads = append(s.Loads, uploads.Load{Volume: volume, Backup: backup, Nodes: on, Code: vgdp.CodePressure, HeldUntil: noon.Add(20 * time.Hour), Cancelled: noon.Add(20 * time.Hour)})
	}
	return s
}

func TestForecastOfLoads(t *testing.T) {
	about := func(mid time.Duration) durations.Estimate {
		return durations.Estimate{Low: mid * 4 / 5, Mid: mid, High: mid * 5 / 4}
	}
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	in := Input{Time: noon, Config: Config{Limit: 2, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"a", "b"}), Backups: []Backup{
		{UID: "1", Name: "runs", Phase: InProgress, Began: after(-time.Hour), Include: []string{"a"}, Takes: about(2 * time.Hour), Due: objective.Due{Deadline: after(4 * time.Hour)}},
		{UID: "2", Name: "waits", Phase: Queued, Created: noon, Version: 1, Turn: Turn{Version: 1}, Include: []string{"a"}, Takes: about(time.Hour), Due: objective.Due{Deadline: after(5 * time.Hour)}},
	}}
	forecast := func(loads *uploads.State) (runs, waits Outlook) {
		list := Forecast(in, nil, loads, nil, after(24*time.Hour))
		require.Len(t, list, 2)
		return list[0], list[1]
	}
	t.Run("of a PodVolumeBackup it stays InProgress", func(t *testing.T) {
		runs, waits := forecast(pressed("runs", names.PodVolumeBackup, 13))
		assert.Equal(t, after(20*time.Minute+13*30*time.Minute), runs.Ends)
		assert.Equal(t, "will miss its deadline by 2h50m, because node n7 is pressed and 12 uploads wait before it", runs.String())
		assert.Equal(t, runs.Ends, waits.Begins)
		assert.Equal(t, "will miss its deadline by 2h50m, because it shares namespaces with Backup runs, for which it waits 6h50m, because node n7 is pressed and 12 uploads wait before it", waits.String())
	})
	t.Run("for a DataUpload it does not", func(t *testing.T) {
		runs, waits := forecast(pressed("runs", names.DataUpload, 13))
		assert.Equal(t, after(20*time.Minute+13*30*time.Minute), runs.Ends)
		assert.Equal(t, after(time.Hour), waits.Begins)
		assert.Zero(t, waits.Late)
	})
	t.Run("that end before it change nothing", func(t *testing.T) {
		a, b := forecast(pressed("runs", names.PodVolumeBackup, 0))
		c, d := forecast(nil)
		assert.Equal(t, []Outlook{c, d}, []Outlook{a, b})
	})
	t.Run("whose durations vary", func(t *testing.T) {
		loads := pressed("runs", names.DataUpload, 13)
		for i := range loads.Ended {
			e := &loads.Ended[i]
			e.Completed = e.Started.Add(time.Duration(20+7*i%20) * time.Minute)
		}
		runs, _ := forecast(loads)
		assert.True(t, runs.Earliest.Before(runs.Ends) && runs.Latest.After(runs.Ends), "%v", runs)
		assert.Greater(t, runs.Latest.Sub(runs.Earliest), 20*time.Minute)
	})
}

// What is played without loads of what runs is the same to the bit, whatever else loads do.
func TestForecastWithoutLoads(t *testing.T) {
	for seed := range uint64(live.Times(60, 300)) {
		r := rand.New(rand.NewPCG(seed, 9))
		in := dated(r, world(r, r.IntN(14)))
		want := Forecast(in, nil, nil, nil, noon.Add(12*time.Hour))
		require.Equal(t, want, Forecast(in, nil, &uploads.State{Time: in.Time}, nil, noon.Add(12*time.Hour)))
		require.Equal(t, want, Forecast(in, nil, pressed("of another Velero", names.PodVolumeBackup, 9), nil, noon.Add(12*time.Hour)), "seed %d", seed)
	}
}

// A Backup that waits beyond its window is postponed to the next one also where that is in
// the future.
func TestForecastPlaysPostponements(t *testing.T) {
	window, err := objective.ParseWindow("10:00-13:00 UTC")
	require.NoError(t, err)
	want := objective.Objective{Window: window}
	forecast := func(onMiss OnMiss) Outlook {
		w := newWanted(noon, DeadlineSettings{Enabled: true, OnMiss: onMiss}, nil, nil, &learned{}, nil)
		dues := func(b *Backup, now, newest time.Time) (objective.Due, time.Time) { return w.due(want, b, now, newest) }
		runs := Backup{UID: "1", Name: "runs", Phase: InProgress, Began: noon, Include: []string{"a"}, Takes: durations.Estimate{Low: 2 * time.Hour, Mid: 2 * time.Hour, High: 2 * time.Hour}}
		waits := Backup{UID: "2", Name: "waits", Phase: Queued, Created: noon, Version: 1, Turn: Turn{Version: 1}, Include: []string{"a"}, Takes: durations.Estimate{Low: time.Hour, Mid: time.Hour, High: time.Hour}}
		waits.Due, _ = dues(&waits, noon, time.Time{})
		in := Input{Time: noon, Config: Config{Limit: 2}, Namespaces: NewNamespaces([]string{"a"}), Backups: []Backup{runs, waits}}
		return Forecast(in, nil, nil, dues, noon.Add(48*time.Hour))[1]
	}
	run, postpone := forecast(OnMissRun), forecast(OnMissPostpone)
	assert.Equal(t, noon.Add(2*time.Hour), run.Begins)
	assert.Equal(t, 2*time.Hour, run.Late)
	assert.Equal(t, noon.Add(22*time.Hour), postpone.Begins)
	assert.Equal(t, noon.Add(25*time.Hour), postpone.Due.Deadline)
	assert.Zero(t, postpone.Late, "it is due in the next window")
}

// BenchmarkForecastOfLoads is one night of 500 Schedules, a hundred of whose Backups run with
// 5,000 loads on 500 nodes.
func BenchmarkForecastOfLoads(b *testing.B) {
	in, coming := busyNight(500)
	loads := &uploads.State{Time: in.Time, Slots: 100, Nodes: map[string]uploads.Node{}}
	on := make([][]string, 500)
	for i := range on {
		on[i] = []string{fmt.Sprint("n", i)}
		loads.Nodes[on[i][0]] = uploads.Node{Places: 2, Pressed: i%10 == 0, Allowed: 1}
	}
	for i := range 100 {
		running := coming[i]
		running.UID, running.Name, running.Phase, running.Began = "runs "+running.UID, "runs "+running.Name, WaitingForOperations, in.Time.Add(-time.Hour)
		in.Backups = append(in.Backups, running)
		for j := range 50 {
			n := 50*i + j
			volume := uploads.Volume{Kind: names.DataUpload, Name: fmt.Sprint(n)}
			loads.Loads = append(loads.Loads, uploads.Load{Volume: volume, Backup: running.Name, Nodes: on[n%500], Code: vgdp.CodeLimit, HeldUntil: noon.Add(30 * time.Minute), Cancelled: noon.Add(20 * time.Hour)})
			for k := range 7 {
				began := noon.Add(-time.Duration(k+1) * 24 * time.Hour)
				loads.Ended = append(loads.Ended, uploads.Ended{Volume: volume, Started: began, Completed: began.Add(time.Duration(5+(n+k)%20) * time.Minute)})
			}
		}
	}
	coming = coming[100:]
	b.ReportAllocs()
	for b.Loop() {
		Forecast(in, coming, loads, nil, in.Time.Add(12*time.Hour))
	}
}
