package backup

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// One round foresees the night of each Velero, and again a minute later.
func TestForeseesEachVelero(t *testing.T) {
	r := &Reconciler{velero: map[string]*velero{"velero": {}, "velero-dr": {}, "velero-test": {}}}
	r.foreseen.begin()
	round := func(now time.Time) {
		for namespace, v := range r.velero {
			r.foresee(newWanted(now, DeadlineSettings{Enabled: true}, nil, nil, &v.learned, nil), namespace, Input{Time: now, Namespaces: &Namespaces{}}, nil, nil)
		}
		r.foreseen.running.Wait()
	}
	from := func() (list map[string]time.Time) {
		list = map[string]time.Time{}
		for _, n := range r.Nights() {
			list[n.Namespace] = n.From
		}
		return list
	}
	for _, row := range []struct{ now, from time.Duration }{{0, 0}, {foreseeEvery - time.Second, 0}, {foreseeEvery, foreseeEvery}} {
		round(noon.Add(row.now))
		at := noon.Add(row.from)
		assert.Equal(t, map[string]time.Time{"velero": at, "velero-dr": at, "velero-test": at}, from(), "%s", row.now)
	}
}

// A leader that is none any more does not play the nights that wait for their turn.
func TestForeseesNothingAfterTerm(t *testing.T) {
	r := &Reconciler{velero: map[string]*velero{"velero": {}}}
	r.foreseen.begin()
	r.foreseen.turn.Lock() // another one is played
	r.foresee(newWanted(noon, DeadlineSettings{Enabled: true}, nil, nil, &r.velero["velero"].learned, nil), "velero", Input{Time: noon, Namespaces: &Namespaces{}}, nil, nil)
	ended := make(chan struct{})
	go func() {
		r.foreseen.end()
		close(ended)
	}()
	require.Eventually(t, func() bool { return !r.foreseen.following() }, 10*time.Second, time.Millisecond)
	r.foreseen.turn.Unlock()
	<-ended
	assert.Empty(t, r.Nights())
	assert.False(t, r.velero["velero"].playing.Load())
}

// A night of which much is left to play holds up no end of a term.
func TestTermEndsWhileNightIsPlayed(t *testing.T) {
	r := &Reconciler{velero: map[string]*velero{"velero": {}}}
	r.foreseen.begin()
	in, list := busyNight(3000)
	for i := range list {
		list[i].Phase = Queued
	}
	in.Backups = list
	w := newWanted(noon, DeadlineSettings{Enabled: true}, nil, nil, &r.velero["velero"].learned, nil)
	w.patience.work = math.MaxInt // minutes
	r.foresee(w, "velero", in, nil, nil)
	require.Eventually(t, func() bool {
		waits := r.foreseen.turn.TryLock()
		if waits {
			r.foreseen.turn.Unlock()
		}
		return !waits
	}, 10*time.Second, time.Millisecond, "it is played")
	ended := make(chan struct{})
	go func() {
		r.foreseen.end()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		require.Fail(t, "the end waits for the night")
	}
	assert.Empty(t, r.Nights())
}

// What is wanted is known of a Velero when its Backups were read, and of those that have none
// after the first round.
func TestWantedKnownByVelero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.r.Settings = func() Settings {
			settings := leading(1, Config{})
			settings.Deadlines.Enabled = true
			return settings
		}
		for _, name := range []string{"velero", "velero-dr"} {
			s.backup(name, 0, "a")
			s.now[name].SetNamespace(name)
		}
		unknown := func() (n int) {
			for _, of := range []string{"velero", "velero-dr", "velero-test"} {
				if s.r.Wanted(of, "b").Unknown {
					n++
				}
			}
			return n
		}
		assert.Equal(t, 3, unknown())
		s.learn(len(s.history))
		s.r.cache.backups[""] = s.r.cache.backups["velero"] // the cache of all namespaces
		delete(s.r.cache.backups, "velero")
		s.resume()
		require.NotNil(t, s.sent, "of the first")
		assert.Equal(t, 2, unknown())
		for s.sent != nil {
			s.resume()
		}
		assert.Zero(t, unknown())
		s.r.foreseen.running.Wait()
	})
}

// A Backup by hand whose uploads work is followed although no other one waits and there is no
// Schedule.
func TestForeseesBackupThatLeftItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.r.Settings = func() Settings {
			settings := leading(1, Config{})
			settings.Deadlines = DeadlineSettings{Enabled: true, Window: "00:00-06:00 UTC", OnMiss: OnMissPostpone}
			return settings
		}
		s.r.veleroOf("velero").playing.Store(false)
		s.backup("by-hand", 0, "a")
		u := s.now["by-hand"].DeepCopy()
		u.Object["status"] = map[string]any{"phase": string(WaitingForOperations), "startTimestamp": time.Now().UTC().Format(time.RFC3339)}
		s.put(u)
		midnight := time.Now()
		time.Sleep(7 * time.Hour)
		s.pass(0)
		s.r.foreseen.running.Wait()
		assert.True(t, midnight.AddDate(0, 0, 1).Equal(s.r.Wanted("velero", "by-hand").PostponedUntil))
		assert.Len(t, s.r.Nights(), 1)
		require.True(t, s.become(WaitingForOperations, Completed))
		s.pass(0)
		assert.Empty(t, s.r.Nights())
	})
}

// A tenant that changes the annotations of its namespace all the time costs no more than rounds
// that rest: patterns are not resolved anew, and what is wrong is said every few minutes.
func TestAnnotationChangedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.r.Settings = func() Settings {
			time.Sleep(time.Second) // a long round
			settings := leading(1, Config{})
			settings.Deadlines.Enabled = true
			return settings
		}
		require.NoError(t, s.r.cache.schedules["velero"].Replace([]any{schedule("db", "0 22 * * *")}, ""))
		of := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "of-db"}}
		flip := func(times int) int {
			for i := range times {
				of = of.DeepCopy()
				of.Annotations = map[string]string{names.RPO: []string{"x", "y"}[i%2]}
				require.NoError(t, s.r.cache.namespaces.Add(of))
				s.resume()
			}
			return strings.Count(s.log.String(), "a schedule is not followed")
		}
		assert.Equal(t, 1, flip(2))
		known := s.r.names
		assert.Equal(t, 1, flip(20))
		assert.Same(t, known, s.r.names)
		time.Sleep(problemEvery)
		assert.Equal(t, 2, flip(20))
		time.Sleep(problemEvery)
		require.NoError(t, s.r.cache.namespaces.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
		assert.Equal(t, reconcile.Pause{Shortest: time.Second, Longest: s.r.Settings().Resync}, s.r.round(t.Context()))
		assert.NotSame(t, known, s.r.names)
		assert.Equal(t, 2, strings.Count(s.log.String(), "a schedule is not followed"), "it is as it was said last")
		s.r.Settings = func() Settings { return leading(1, Config{}) }
		assert.Equal(t, roundDebounce, s.r.round(t.Context()).Shortest)
	})
}

// Rounds see when a Schedule was unpaused, which Backups exist, and say a miss that two
// forecasts have.
func TestRoundsForesee(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	var events keptEvents
	r := &Reconciler{Of: []string{"velero"}, Events: &events, Log: slog.New(slog.DiscardHandler)}
	r.reset()
	v := r.veleroOf("velero")
	round := func(now time.Time, paused bool, left ...*Object) ScheduleState {
		u := schedule("db", "0 22 * * *", names.RPO, "30h")
		u.SetUID("db")
		require.NoError(t, unstructured.SetNestedField(u.Object, paused, "spec", "paused"))
		require.NoError(t, r.cache.schedules["velero"].Add(u))
		in := Input{Time: now, Namespaces: NewNamespaces(nil)}
		r.deadlines(Settings{Deadlines: DeadlineSettings{Enabled: true}}, "velero", v, &in, nil, left)
		r.foreseen.running.Wait()
		return r.Nights()[0].Schedules[0]
	}
	past := goodMonth("db", ten, time.Hour)
	assert.Zero(t, round(ten.AddDate(0, 0, 5), true, past...).Deadline)
	now := ten.AddDate(0, 0, 5).Add(time.Hour)
	assert.True(t, now.Add(30*time.Hour).Equal(round(now, false, past...).Deadline), "from when it was unpaused")
	good := ran("db", now.Add(time.Hour), time.Hour, Completed)
	now = now.Add(3 * time.Hour)
	state := round(now, false, append(past, good)...)
	assert.True(t, good.Backup.Began.Equal(state.Newest))
	assert.Empty(t, events.lines)
	now = good.Backup.Began.Add(29 * time.Hour)
	failed := ran("db", now.Add(-time.Hour), time.Minute, "Failed")
	for i := range 4 {
		state = round(now.Add(time.Duration(i)*time.Minute), false, append(past, good, failed)...)
		require.True(t, state.WillMiss())
		assert.Len(t, events.lines, min(i, 1))
	}
	assert.Contains(t, events.lines[0], "DeadlineWillBeMissed: will miss its deadline 2026-03-17T06:00:00Z by ")
	assert.Contains(t, events.lines[0], ", because Backup "+failed.Name+" failed, and the next one comes at ")
	assert.True(t, past[29].Backup.Began.Equal(round(now.Add(time.Hour), false, past...).Newest), "the newest is gone")
}
