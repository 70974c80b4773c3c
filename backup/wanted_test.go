package backup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup/durations"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// schedule as the API server has it.
func schedule(name, cron string, annotations ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"schedule": cron, "template": map[string]any{"includedNamespaces": []any{"of-" + name}},
	}}}
	u.SetName(name)
	u.SetNamespace("velero")
	u.SetCreationTimestamp(metav1.NewTime(noon.AddDate(0, -2, 0)))
	texts := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		texts[annotations[i]] = annotations[i+1]
	}
	u.SetAnnotations(texts)
	return u
}

// ran is a Backup of a schedule that has ended.
func ran(of string, started time.Time, took time.Duration, phase Phase) *Object {
	name := fmt.Sprintf("%s-%d", of, started.Unix())
	return &Object{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "velero", UID: types.UID(name), CreationTimestamp: metav1.NewTime(started)},
		Backup:     Backup{UID: name, Name: name, Namespace: "velero", Phase: phase, Created: started, Began: started, Schedule: of, Include: []string{"of-" + of}},
		Completed:  started.Add(took),
	}
}

// goodMonth of nightly Backups that take about d.
func goodMonth(of string, at time.Time, d time.Duration) (list []*Object) {
	for day := 30; day > 0; day-- {
		list = append(list, ran(of, at.AddDate(0, 0, -day), d+time.Duration(day%5)*time.Minute, Completed))
	}
	return list
}

// waiting Backup of a schedule.
func waitingOf(of string, created time.Time) *Object {
	o := ran(of, created, 0, Queued)
	o.Backup.Began, o.Completed = time.Time{}, time.Time{}
	o.Backup.Version = 7
	return o
}

func wantedOf(d DeadlineSettings, now time.Time, objects []*Object, schedules ...*unstructured.Unstructured) *wanted {
	d.Enabled = true
	var l learned
	l.see(now, nil, objects, nil)
	var list []*Schedule
	for _, u := range schedules {
		list = append(list, ReadSchedule(u))
	}
	return newWanted(now, d, list, map[string]map[string]string{"tenant": {names.RPO: "1m", names.Priority: "9"}}, &l, nil)
}

// The newest good Backup is the one that was started last of those that exist.
func TestNewestGood(t *testing.T) {
	day := func(n int) time.Time { return noon.AddDate(0, 0, n) }
	deleted := ran("db", day(-1), time.Hour, Completed)
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, tt := range map[string]struct {
		exist []*Object
		want  time.Time
	}{
		"none":                         {nil, time.Time{}},
		"started last, ended first":    {[]*Object{ran("db", day(-2), time.Hour, Completed), ran("db", day(-3), 40*time.Hour, Completed)}, day(-2)},
		"failed":                       {[]*Object{ran("db", day(-2), time.Hour, Completed), ran("db", day(-1), time.Hour, "PartiallyFailed")}, day(-2)},
		"is being deleted by Velero":   {[]*Object{ran("db", day(-2), time.Hour, Completed), ran("db", day(-1), time.Hour, Deleting)}, day(-2)},
		"is being deleted":             {[]*Object{ran("db", day(-2), time.Hour, Completed), deleted}, day(-2)},
		"from the future":              {[]*Object{ran("db", day(-2), time.Hour, Completed), ran("db", noon.Add(61*time.Second), time.Hour, Completed)}, day(-2)},
		"of clocks that differ little": {[]*Object{ran("db", noon.Add(time.Minute), 0, Completed)}, noon.Add(time.Minute)},
		"of another schedule":          {[]*Object{ran("web", day(-1), time.Hour, Completed)}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := learned{}
			l.see(noon, nil, slices.Concat(tt.exist, goodMonth("db", day(-3), time.Hour)), nil)
			l.see(noon, nil, tt.exist, nil)
			assert.True(t, tt.want.Equal(l.newest["db"]), "%s: those that are gone do not count", l.newest["db"])
		})
	}
}

// What a wrong clock, or a deletion, says of an end teaches no duration.
func TestLearnsFromEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		of          *Object
		runs, slots int
	}{
		"good":              {ran("db", noon.Add(-time.Hour), time.Hour, Completed), 1, 1},
		"failed":            {ran("db", noon.Add(-time.Hour), time.Hour, "Failed"), 1, 1},
		"in the future":     {ran("db", noon.Add(-time.Hour), time.Hour+61*time.Second, Completed), 0, 1},
		"a minute ahead":    {ran("db", noon.Add(-time.Hour), time.Hour+time.Minute, Completed), 1, 1},
		"is deleted now":    {ran("db", noon.Add(-time.Hour), time.Hour, Deleting), 0, 0},
		"has not ended":     {&Object{Backup: Backup{Schedule: "db", Began: noon.Add(-time.Hour), Phase: Finalizing}}, 0, 1},
		"failed validation": {&Object{Backup: Backup{Schedule: "db", Phase: FailedValidation}}, 0, 0},
	} {
		l := learned{inProgress: map[types.UID]bool{tt.of.UID: true}}
		l.see(noon, nil, []*Object{tt.of}, nil)
		assert.Equal(t, tt.runs, l.runs.Next("db", durations.Unknown, 0, time.Time{}).Runs, name)
		assert.Equal(t, tt.slots, l.slots.Next("db", durations.Unknown, 0, time.Time{}).Runs, name)
	}
}

func TestReadSchedule(t *testing.T) {
	s := ReadSchedule(schedule("db", "0 22 * * *", names.RPO, "30h", "other", "x"))
	assert.Equal(t, 24*time.Hour, s.Period)
	assert.Equal(t, map[string]string{names.RPO: "30h"}, s.Annotations)
	assert.Equal(t, []string{"of-db"}, s.Include)
	b := s.backupAt(noon)
	assert.Equal(t, "db-"+noon.UTC().Format("20060102150405"), b.Name)
	assert.Equal(t, "db", b.Schedule)
	t.Run("a name that is too long for Velero", func(t *testing.T) {
		assert.Empty(t, ReadSchedule(schedule(strings.Repeat("a", 63), "@daily")).problems(Aim{}))
		problems := ReadSchedule(schedule(strings.Repeat("a", 64), "@daily")).problems(Aim{})
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0].text, "longer than 63 characters")
	})
	t.Run("a bad expression", func(t *testing.T) {
		s := ReadSchedule(schedule("db", "at ten"))
		require.Error(t, s.CronErr)
		assert.True(t, s.Cron.Next(noon).IsZero())
	})
	t.Run("fields of a wrong type", func(t *testing.T) {
		u := schedule("db", "@daily")
		u.Object["spec"] = "odd"
		assert.Error(t, ReadSchedule(u).CronErr)
	})
}

func TestWantedDue(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := goodMonth("db", ten, 30*time.Minute)
	window := schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC", names.RPO, "30h")
	t.Run("of the schedule, with the newest good one and durations", func(t *testing.T) {
		w := wantedOf(DeadlineSettings{}, ten.Add(time.Hour), past, window)
		b := waitingOf("db", ten).Backup
		aim := w.set(&b, nil)
		assert.Empty(t, aim.Problems)
		assert.Equal(t, ten.AddDate(0, 0, -1).Add(30*time.Hour), b.Due.Deadline.UTC(), "30 h after the start of last night's")
		assert.Equal(t, 32*time.Minute, b.Takes.Mid)
		assert.False(t, b.Holds.Known(), "when it leaves its slot was not seen")
	})
	t.Run("with durations of its time of the day", func(t *testing.T) {
		both := slices.Concat(past, goodMonth("db", ten.Add(12*time.Hour), 90*time.Minute))
		opens := schedule("db", "0 22,10 * * *", names.Window, "09:00-22:00 UTC")
		for now, want := range map[time.Time]time.Duration{ten: 32 * time.Minute, ten.Add(12 * time.Hour): 92 * time.Minute} {
			w := wantedOf(DeadlineSettings{}, now, both)
			b := waitingOf("db", ten).Backup
			w.set(&b, nil)
			assert.Equal(t, want, b.Takes.Mid, now)
			w = wantedOf(DeadlineSettings{}, now, both, opens)
			w.set(&b, nil)
			assert.Equal(t, 92*time.Minute, b.Takes.Mid, "it waits for its window")
			b.Began = ten
			w.set(&b, nil)
			assert.Equal(t, 32*time.Minute, b.Takes.Mid, "it has begun")
		}
	})
	t.Run("by default of the configuration", func(t *testing.T) {
		w := wantedOf(DeadlineSettings{RPO: 50 * time.Hour, Window: "01:00-05:00 UTC"}, ten, nil)
		b := waitingOf("", ten).Backup
		w.set(&b, nil)
		assert.Equal(t, ten.Add(3*time.Hour), b.Due.Opens.UTC())
		assert.Equal(t, ten.Add(7*time.Hour), b.Due.Deadline.UTC())
		assert.Equal(t, "no schedule created it, so no other Backup tells how long it takes", b.Takes.Why)
	})
	t.Run("a tenant's is bounded", func(t *testing.T) {
		w := wantedOf(DeadlineSettings{}, ten, nil)
		b := waitingOf("", ten).Backup
		b.Include = []string{"tenant"}
		aim := w.set(&b, nil)
		assert.Equal(t, ten.Add(4*time.Hour), b.Due.Deadline.UTC())
		assert.Zero(t, b.Priority)
		require.Len(t, aim.Problems, 1)
		b.Include = []string{"tenant", "other"}
		w.set(&b, nil)
		assert.Zero(t, b.Due, "it is not the tenant's alone")
		b.Include = []string{"tenan?"}
		w.set(&b, nil)
		assert.Zero(t, b.Due)
	})
	t.Run("postponed to the next window", func(t *testing.T) {
		noonAfter := ten.Add(14 * time.Hour)
		for onMiss, want := range map[OnMiss]time.Time{OnMissRun: {}, OnMissPostpone: ten.AddDate(0, 0, 1)} {
			w := wantedOf(DeadlineSettings{OnMiss: onMiss}, noonAfter, past, window)
			b := waitingOf("db", ten).Backup
			w.set(&b, nil)
			assert.True(t, want.Equal(b.Due.Opens), "%s: %s", onMiss, b.Due.Opens)
		}
		w := wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten.AddDate(0, 0, 1).Add(time.Hour), past, window)
		b := waitingOf("db", ten).Backup
		w.set(&b, nil)
		assert.True(t, ten.AddDate(0, 0, 1).Equal(b.Due.Opens), "it is open now")
		in := Input{Time: w.now, Backups: []Backup{b}, Namespaces: NewNamespaces(nil)}
		waits := NewReport("velero", in, Decide(in)).Waiting[0]
		assert.InDelta(t, 3600, waits.CouldStartSeconds(), 0, "of %v that it waits", waits.WaitSeconds)
	})
}

// A Backup of a Schedule without a good one waits for the window of first Backups, unless
// its Schedule comes again before that or has a window of its own.
func TestFirstBackups(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	first := DeadlineSettings{First: "10:00-16:00 UTC", Window: "21:00-06:00 UTC", RPO: 30 * time.Hour, OnMiss: OnMissPostpone}
	failed := []*Object{ran("db", ten.AddDate(0, 0, -1), time.Hour, "Failed")}
	for name, tt := range map[string]struct {
		cron        string
		annotations []string
		tenant      string // the window of its namespace
		exist       []*Object
		created     time.Time
		opens       time.Time // zero: at once
		ends        time.Time // its deadline
	}{
		"by night":                {cron: "0 22 * * *", created: ten, opens: ten.Add(12 * time.Hour), ends: ten.Add(30 * time.Hour)},
		"only failed ones":        {cron: "0 22 * * *", exist: failed, created: ten, opens: ten.Add(12 * time.Hour), ends: ten.Add(30 * time.Hour)},
		"by day":                  {cron: "0 11 * * *", created: ten.Add(13 * time.Hour), ends: ten.Add(43 * time.Hour)},
		"there is a good one":     {cron: "0 22 * * *", exist: goodMonth("db", ten, time.Hour), created: ten, ends: ten.Add(6 * time.Hour)},
		"but not for longest":     {cron: "*/30 8-17 * * 1-5", created: ten.Add(10*time.Hour + 30*time.Minute), opens: ten.Add(23 * time.Hour), ends: ten.Add(32 * time.Hour)},
		"a tenant wants it now":   {cron: "0 22 * * *", tenant: "none", created: ten, opens: ten.Add(12 * time.Hour), ends: ten.Add(30 * time.Hour)},
		"it comes again before":   {cron: "0 * * * *", created: ten, ends: ten.Add(8 * time.Hour)},
		"a window of its own":     {cron: "0 22 * * *", annotations: []string{names.Window, "23:00-05:00 UTC"}, created: ten, opens: ten.Add(time.Hour), ends: ten.Add(7 * time.Hour)},
		"no window is wanted":     {cron: "0 22 * * *", annotations: []string{names.Window, "none"}, created: ten, ends: ten.Add(30 * time.Hour)},
		"its window is not valid": {cron: "0 22 * * *", annotations: []string{names.Window, "bad"}, created: ten, opens: ten.Add(12 * time.Hour), ends: ten.Add(30 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			w := wantedOf(first, tt.created, tt.exist, schedule("db", tt.cron, tt.annotations...))
			if tt.tenant != "" {
				w.annotations["of-db"] = map[string]string{names.Window: tt.tenant}
			}
			b := waitingOf("db", tt.created).Backup
			w.set(&b, nil)
			assert.True(t, tt.opens.Equal(b.Due.Opens), "%s", b.Due.Opens)
			assert.True(t, tt.ends.Equal(b.Due.Deadline), "%s", b.Due.Deadline)
			assert.Equal(t, b.Due.Opens.Equal(ten.Add(12*time.Hour)), b.Due.First)
		})
	}
	t.Run("by hand", func(t *testing.T) {
		b := waitingOf("", ten.Add(14*time.Hour)).Backup
		wantedOf(first, ten.Add(14*time.Hour), nil, schedule("db", "0 22 * * *")).set(&b, nil)
		assert.True(t, ten.Add(23*time.Hour).Equal(b.Due.Opens), "the default window, %s", b.Due.Opens)
	})
	t.Run("a tenant's RPO leaves it four hours", func(t *testing.T) {
		w := wantedOf(DeadlineSettings{First: "21:00-22:00 UTC"}, ten, nil, schedule("db", "0 22 * * *"))
		w.annotations["of-db"] = map[string]string{names.RPO: "24h1m"}
		b := waitingOf("db", ten).Backup
		w.set(&b, nil)
		assert.True(t, ten.Add(27*time.Hour).Equal(b.Due.Deadline), "%s", b.Due.Deadline)
	})
	t.Run("its uploads go on by day", func(t *testing.T) {
		runs := ran("db", ten, 0, WaitingForOperations)
		runs.Completed = time.Time{}
		for exist, want := range map[*Object]time.Time{failed[0]: {}, ran("db", ten.AddDate(0, 0, -1), time.Hour, Completed): ten.Add(23 * time.Hour)} {
			got := wantedOf(first, ten.Add(13*time.Hour), []*Object{exist}, schedule("db", "0 22 * * *")).of(runs)
			assert.True(t, want.Equal(got.PostponedUntil), "%s: %s", exist.Backup.Phase, got.PostponedUntil)
		}
	})
	t.Run("the Schedule is not late for it", func(t *testing.T) {
		w := wantedOf(first, ten.Add(9*time.Hour), nil)
		u := schedule("db", "0 22 * * *")
		u.SetCreationTimestamp(metav1.NewTime(ten.Add(-time.Hour)))
		s := ReadSchedule(u)
		w.schedules["db"] = s
		state := w.stateOf(s, []*Object{waitingOf("db", ten)})
		assert.False(t, state.Missed, "%s: the default window has ended", state.Deadline)
	})
}

func TestWantedOfRunning(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := goodMonth("db", ten, 30*time.Minute)
	window := schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC")
	runs := ran("db", ten.Add(7*time.Hour), 0, WaitingForOperations)
	runs.Completed = time.Time{}
	w := wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten.Add(7*time.Hour+10*time.Minute), past, window)
	got := w.of(runs)
	assert.InDelta(t, ten.Add(8*time.Hour-22*time.Minute).Unix(), got.LatestStart.Unix(), 180, "what is left takes about 22 of 32 minutes")
	assert.Zero(t, got.PostponedUntil)
	w = wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten.Add(9*time.Hour), past, window)
	assert.True(t, ten.AddDate(0, 0, 1).Equal(w.of(runs).PostponedUntil))
	assert.Zero(t, w.of(runs).LatestStart, "a deadline that cannot be met any more lets no load come first")
	both := schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC", names.RPO, "30h") // which is over at 04:00
	w = wantedOf(DeadlineSettings{}, ten.Add(7*time.Hour+10*time.Minute), past, both)
	waited := *runs
	waited.Backup.Created = ten
	assert.InDelta(t, ten.Add(8*time.Hour-22*time.Minute).Unix(), w.of(&waited).LatestStart.Unix(), 180, "its window can be kept still")
	w = wantedOf(DeadlineSettings{OnMiss: OnMissRun}, ten.Add(9*time.Hour), past, window)
	assert.Zero(t, w.of(runs).PostponedUntil)
	w = wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten.AddDate(0, 0, 1).Add(time.Hour), past, window)
	assert.Zero(t, w.of(runs).PostponedUntil, "the next window is open")
	assert.Zero(t, wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten, nil).of(runs), "nothing is wanted")
	w = wantedOf(DeadlineSettings{OnMiss: OnMissPostpone}, ten.Add(9*time.Hour), nil)
	w.annotations["of-db"] = map[string]string{names.Window: "22:00-06:00 UTC"}
	assert.Zero(t, w.of(runs).PostponedUntil, "a namespace's window keeps no slot from others")
}

// A namespace's annotation reaches neither above the default priority nor above 0.
func TestPriorityDefault(t *testing.T) {
	for of, want := range map[int][3]int32{0: {0, 0, 3}, 5: {5, 0, 3}, -5: {-5, -5, 3}} {
		w := wantedOf(DeadlineSettings{Priority: of}, noon, nil, schedule("db", "0 22 * * *", names.Priority, "3"))
		var got [3]int32
		for i, b := range []Backup{{Include: []string{"a"}}, {Include: []string{"tenant"}}, {Include: []string{"a"}, Schedule: "db"}} {
			w.set(&b, nil)
			got[i] = b.Priority
		}
		assert.Equal(t, want, got, "by hand, of a tenant, of a Schedule, with a default of %d", of)
	}
}

func TestNight(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := slices.Concat(goodMonth("db", ten, 4*time.Hour), goodMonth("web", ten.Add(3*time.Hour), 30*time.Minute))
	db := schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC", names.RPO, "30h")
	web := schedule("web", "0 1 * * *", names.Window, "01:00-02:00 UTC", names.RPO, "24h")
	objects := []*Object{waitingOf("db", ten)}
	at := ten.Add(time.Minute)
	night := func(limit int) Night {
		w := wantedOf(DeadlineSettings{}, at, past, db, web)
		in := Input{Time: at, Config: Config{Limit: limit, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"of-db", "of-web"}), Backups: Backups(objects)}
		w.setAll(in.Backups, byUID(objects))
		return w.night("velero", in, objects, past)
	}
	n := night(1)
	require.Len(t, n.Backups, 3, "one waits, two are to come")
	first, second, third := n.Backups[0], n.Backups[1], n.Backups[2]
	assert.Equal(t, "db", first.Schedule)
	assert.True(t, at.Equal(first.Begins))
	assert.InDelta(t, (4*time.Hour + 2*time.Minute).Seconds(), first.Ends.Sub(first.Begins).Seconds(), 60)
	assert.True(t, first.Earliest.Before(first.Ends) && first.Ends.Before(first.Latest))
	assert.Equal(t, "web", second.Schedule)
	assert.Empty(t, second.Name, "it is to come")
	assert.Positive(t, second.LateSeconds)
	assert.Contains(t, second.Because, "while as many other Backups run as the limit allows, 1")
	assert.Equal(t, []string{"a limit of 2 instead of 1"}, second.Helps)
	assert.Equal(t, "db", third.Schedule, "tomorrow's")
	assert.Zero(t, night(2).Backups[1].LateSeconds)
	require.Len(t, n.Schedules, 2)
	assert.Equal(t, "db", n.Schedules[0].Name)
	assert.Equal(t, 30*3600.0, n.Schedules[0].RPOSeconds)
	assert.True(t, ten.AddDate(0, 0, -1).Equal(n.Schedules[0].Newest))
	assert.False(t, n.Schedules[0].Missed)
	assert.Equal(t, []string{`annotation plimsoll.dev/rpo: want more than 24h, the longest time between two Backups of its schedule, got "24h"; using the default, none`}, n.Schedules[1].Problems)
	t.Run("durations are of good runs", func(t *testing.T) {
		with := slices.Concat(past, []*Object{ran("db", ten.AddDate(0, 0, -1).Add(time.Hour), time.Hour, "Failed")})
		state := wantedOf(DeadlineSettings{}, at, with, db).stateOf(ReadSchedule(db), nil)
		assert.Equal(t, 30, state.Runs)
		assert.InDelta(t, (4*time.Hour + 2*time.Minute).Seconds(), state.UsualSeconds, 0)
	})
	t.Run("a paused one creates none", func(t *testing.T) {
		u := schedule("web", "0 1 * * *")
		require.NoError(t, unstructured.SetNestedField(u.Object, true, "spec", "paused"))
		coming, _ := wantedOf(DeadlineSettings{}, at, past, u).coming(at.Add(48*time.Hour), nil)
		assert.Empty(t, coming)
	})
	t.Run("those of one that creates many are bounded, and of no other", func(t *testing.T) {
		u := schedule("paused", "* * * * *")
		require.NoError(t, unstructured.SetNestedField(u.Object, true, "spec", "paused"))
		all := []*unstructured.Unstructured{schedule("minute", "* * * * *"), schedule("hour", "0 * * * *"), u}
		for i := range 18 {
			all = append(all, schedule(fmt.Sprint(i), "0 0 1 1 *"))
		}
		w := wantedOf(DeadlineSettings{}, at, nil, all...)
		coming, omitted := w.coming(at.Add(24*time.Hour), map[string][]*Object{"minute": {waitingOf("minute", at)}, "hour": {waitingOf("hour", at)}})
		assert.Equal(t, 1, omitted)
		of := map[string]int{}
		for _, b := range coming {
			of[b.Schedule]++
		}
		assert.Equal(t, map[string]int{"minute": mostToCome / 20, "hour": 24}, of)
		in := Input{Time: at, Namespaces: NewNamespaces(nil)}
		n := w.night("velero", in, nil, nil)
		assert.Equal(t, 1, n.Omitted)
		assert.False(t, n.Cut || n.Until.Before(at.Add(foreseenFor)))
		w.patience.work = 1
		n = w.night("velero", in, nil, nil)
		assert.True(t, n.Cut && n.Until.Before(at.Add(foreseenFor)), n.Until)
	})
	t.Run("each of many has one", func(t *testing.T) {
		w := wantedOf(DeadlineSettings{}, at, nil)
		nightly := ReadSchedule(db)
		for i := range mostToCome + 1 {
			s := *nightly
			s.Name, s.Last = fmt.Sprint(i), at
			w.schedules[s.Name] = &s
		}
		coming, omitted := w.coming(at.Add(48*time.Hour), nil)
		assert.Len(t, coming, mostToCome+1)
		assert.Equal(t, mostToCome+1, omitted)
	})
}

// Velero counts from when it created or skipped the last one, and looks once a minute.
func TestNextBackups(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	in := func(phase Phase, hours float64) *Object { return ran("db", at(hours), 0, phase) }
	for name, tt := range map[string]struct {
		cron    string
		created float64
		status  map[string]float64
		now     float64
		exist   []*Object
		want    []time.Time
	}{
		"an interval counts from the last":     {"@every 6h", -48, map[string]float64{"lastBackup": -4}, 1.9, nil, []time.Time{at(2), at(8), at(14), at(20)}},
		"from the creation, without one":       {"@every 6h", -5, nil, 0, nil, []time.Time{at(1), at(7), at(13), at(19)}},
		"from when it was skipped":             {"@every 6h", -5, map[string]float64{"lastSkipped": -1}, 0, nil, []time.Time{at(5), at(11), at(17), at(23)}},
		"from the last, which is later":        {"@every 12h", -48, map[string]float64{"lastBackup": -1, "lastSkipped": -9}, 0, nil, []time.Time{at(11), at(23)}},
		"one is due, and Velero is down":       {"0 22 * * *", -48, map[string]float64{"lastBackup": -38}, 0, nil, []time.Time{at(0), at(10)}},
		"it is being created":                  {"0 12 * * *", -48, map[string]float64{"lastBackup": -24}, 0.01, []*Object{in(Queued, 0)}, []time.Time{at(24)}},
		"an interval that is being created":    {"@every 8h", -48, map[string]float64{"lastBackup": -8.1}, 0.01, []*Object{in(Queued, -0.05)}, []time.Time{at(7.95), at(15.95), at(23.95)}},
		"the one before waits":                 {"0 12 * * *", -48, map[string]float64{"lastBackup": -24}, 0.01, []*Object{in(Queued, -24)}, []time.Time{at(0.01), at(24)}},
		"the one before is new":                {"0 12 * * *", -48, map[string]float64{"lastBackup": -24}, 0.01, []*Object{in(New, -24)}, []time.Time{at(24)}},
		"the one before has no phase":          {"0 12 * * *", -48, map[string]float64{"lastBackup": -24}, 0.01, []*Object{in("", -24)}, []time.Time{at(24)}},
		"the one before runs":                  {"0 12 * * *", -48, map[string]float64{"lastBackup": -24}, 0.01, []*Object{in(InProgress, -24), in(Completed, -30)}, []time.Time{at(24)}},
		"it runs, and the next one comes":      {"0 20 * * *", -48, map[string]float64{"lastBackup": -16}, 0, []*Object{in(InProgress, -16)}, []time.Time{at(8)}},
		"a bad expression creates none":        {"at ten", -48, nil, 0, nil, nil},
		"nor does one that is never":           {"0 0 30 2 *", -48, nil, 0, nil, nil},
		"a zone of its own":                    {"CRON_TZ=Europe/Berlin 0 22 * * *", -48, map[string]float64{"lastBackup": -15}, 0, nil, []time.Time{at(9)}},
		"a status that is none counts as none": {"@every 12h", -5, map[string]float64{"lastBackup": 1e9}, 0, nil, []time.Time{at(7), at(19)}},
	} {
		t.Run(name, func(t *testing.T) {
			u := schedule("db", tt.cron)
			u.SetCreationTimestamp(metav1.NewTime(at(tt.created)))
			for field, hours := range tt.status {
				text := at(hours).Format(time.RFC3339)
				if hours == 1e9 {
					text = "soon"
				}
				require.NoError(t, unstructured.SetNestedField(u.Object, text, "status", field))
			}
			for _, zone := range []*time.Location{time.UTC, berlin} { // of the machine
				coming, _ := wantedOf(DeadlineSettings{}, at(tt.now).In(zone), nil, u).coming(at(tt.now+24), map[string][]*Object{"db": tt.exist})
				var got []time.Time
				for _, b := range coming {
					got = append(got, b.Created.UTC())
				}
				assert.Equal(t, tt.want, got, zone)
			}
		})
	}
}

func TestScheduleState(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := goodMonth("db", ten, 30*time.Minute)
	byHand := ran("db", ten.Add(-20*time.Hour), time.Minute, "Failed")
	byHand.Annotations = map[string]string{names.Window: "none"}
	synced := ran("db", ten.AddDate(0, 0, -21), time.Hour, PartiallyFailed) // read from the storage location now
	synced.Backup.Created = ten
	for name, tt := range map[string]struct {
		now      time.Time
		more     []*Object
		schedule *unstructured.Unstructured
		deadline time.Time
		missed   bool
		tenant   string // the RPO of its namespace
	}{
		"nothing is wanted":        {ten, nil, schedule("db", "0 22 * * *"), time.Time{}, false, ""},
		"the RPO":                  {ten, nil, schedule("db", "0 22 * * *", names.RPO, "30h"), ten.Add(6 * time.Hour), false, ""},
		"the RPO is over":          {ten.Add(7 * time.Hour), nil, schedule("db", "0 22 * * *", names.RPO, "30h"), ten.Add(6 * time.Hour), true, ""},
		"a good one in time":       {ten.Add(7 * time.Hour), []*Object{ran("db", ten, time.Hour, Completed)}, schedule("db", "0 22 * * *", names.RPO, "30h"), ten.Add(30 * time.Hour), false, ""},
		"a window without Backup":  {ten, nil, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), false, ""},
		"and Velero created none":  {ten.Add(9 * time.Hour), nil, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), true, ""},
		"one failed in the window": {ten.Add(7 * time.Hour), []*Object{ran("db", ten, time.Hour, "Failed")}, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), false, ""},
		"and the window is over":   {ten.Add(9 * time.Hour), []*Object{ran("db", ten, time.Hour, "PartiallyFailed")}, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), true, ""},
		"waits beyond it":          {ten.Add(9 * time.Hour), []*Object{waitingOf("db", ten)}, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), true, ""},
		"one by hand without it":   {ten, []*Object{byHand}, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(8 * time.Hour), false, ""},
		"good by day":              {ten.Add(12 * time.Hour), []*Object{ran("db", ten, time.Hour, "Failed"), ran("db", ten.Add(10*time.Hour), time.Hour, Completed)}, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"), ten.Add(32 * time.Hour), false, ""},
		"one of before is synced":  {ten, []*Object{synced}, schedule("db", "0 22 * * 1", names.Window, "22:00-06:00 UTC"), ten.AddDate(0, 0, 6).Add(8 * time.Hour), false, ""},
		"never ran, an old RPO":    {ten, nil, schedule("new", "0 22 * * *", names.RPO, "30h"), noon.AddDate(0, -2, 0).Add(30 * time.Hour), true, ""},
		"a tenant's RPO":           {ten.Add(time.Hour), []*Object{waitingOf("db", ten)}, schedule("db", "0 22 * * *"), ten.Add(4 * time.Hour), false, "24h1m"},
	} {
		t.Run(name, func(t *testing.T) {
			all := slices.Concat(past, tt.more)
			w := wantedOf(DeadlineSettings{}, tt.now, all, tt.schedule)
			if tt.tenant != "" {
				w.annotations["of-db"] = map[string]string{names.RPO: tt.tenant}
			}
			s := ReadSchedule(tt.schedule)
			if s.Name != "db" {
				all = nil
			}
			state := w.stateOf(s, all)
			assert.True(t, tt.deadline.Equal(state.Deadline), "%s", state.Deadline)
			assert.Equal(t, tt.missed, state.Missed)
		})
	}
}

// A Schedule misses no times at which it was not to create Backups: before it was unpaused,
// or had its expression. What happened before this leader's term is not known.
func TestScheduleStateAfterChange(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := goodMonth("db", ten, 30*time.Minute)
	now := ten.AddDate(0, 0, 3)
	type seen struct {
		days   int // after the 10th at 22:00, when a round saw it so
		paused bool
		cron   string
	}
	const nightly, early = "0 22 * * *", "0 20 * * *"
	for name, tt := range map[string]struct {
		saw      []seen
		deadline time.Time
		missed   bool
	}{
		"nothing changed":              {[]seen{{0, false, nightly}, {2, false, nightly}}, ten.Add(6 * time.Hour), true},
		"was unpaused two days ago":    {[]seen{{-1, true, nightly}, {0, true, nightly}, {1, false, nightly}, {2, false, nightly}}, now.AddDate(0, 0, -2).Add(30 * time.Hour), true},
		"was unpaused today":           {[]seen{{0, true, nightly}, {3, false, nightly}}, now.Add(30 * time.Hour), false},
		"had another expression":       {[]seen{{0, false, early}, {3, false, nightly}}, now.Add(30 * time.Hour), false},
		"is paused again":              {[]seen{{0, true, nightly}, {1, false, nightly}, {3, true, nightly}}, time.Time{}, false},
		"was unpaused before the term": {[]seen{{3, false, nightly}}, ten.Add(6 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			var l learned
			var last []*Schedule
			l.see(now, nil, past, nil)
			for _, saw := range tt.saw {
				u := schedule("db", saw.cron, names.RPO, "30h")
				u.SetUID("db")
				require.NoError(t, unstructured.SetNestedField(u.Object, saw.paused, "spec", "paused"))
				last = []*Schedule{ReadSchedule(u)}
				l.seeSchedules(ten.AddDate(0, 0, saw.days), last)
			}
			state := newWanted(now, DeadlineSettings{Enabled: true}, last, nil, &l, nil).stateOf(last[0], nil)
			assert.True(t, tt.deadline.Equal(state.Deadline), "%s", state.Deadline)
			assert.Equal(t, tt.missed, state.Missed)
		})
	}
	t.Run("one that is gone is forgotten", func(t *testing.T) {
		var l learned
		l.seeSchedules(now, []*Schedule{ReadSchedule(schedule("db", nightly))})
		l.seeSchedules(now, nil)
		assert.Empty(t, l.crons)
	})
}

// Once a Backup was seen to leave its slot a few times, it is planned for that time alone.
func TestSlotsAreLearned(t *testing.T) {
	l := learned{inProgress: map[types.UID]bool{}}
	var past []*Object
	at := noon
	for range 25 {
		runs := ran("db", at, 0, InProgress)
		runs.Completed = time.Time{}
		l.see(at.Add(time.Minute), []*Object{runs}, past, nil)
		uploads := *runs
		uploads.Backup.Phase = WaitingForOperations
		l.see(at.Add(10*time.Minute), nil, slices.Concat(past, []*Object{&uploads}), nil)
		past = append(past, ran("db", at, time.Hour, Completed))
		l.see(at.Add(time.Hour), nil, past, nil)
		at = at.Add(2 * time.Hour)
	}
	w := newWanted(at, DeadlineSettings{Enabled: true}, nil, nil, &l, nil)
	b := waitingOf("db", at).Backup
	w.set(&b, nil)
	assert.Equal(t, time.Hour, b.Takes.Mid)
	assert.Equal(t, 10*time.Minute, b.holds().Mid)
	in := Input{Time: at, Config: Config{Limit: 1, Aging: time.Hour}, Namespaces: NewNamespaces([]string{"of-db", "of-web"}), Backups: []Backup{b, {UID: "web", Name: "web", Phase: Queued, Created: at, Version: 8, Include: []string{"of-web"}}}}
	list := Forecast(in, nil, nil, nil, at.Add(24*time.Hour))
	assert.True(t, at.Add(time.Hour).Equal(list[0].Ends))
	assert.False(t, list[1].Ends.IsZero() && list[1].Why == "")
}

// BenchmarkWanted sets what is wanted of 10,000 Backups of 500 Schedules, in each round.
func BenchmarkWanted(b *testing.B) {
	now := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	var schedules []*unstructured.Unstructured
	var objects, past []*Object
	for i := range 500 {
		name := fmt.Sprintf("s%03d", i)
		schedules = append(schedules, schedule(name, "0 22 * * *", names.RPO, "30h", names.Window, "22:00-06:00 Europe/Berlin"))
		past = append(past, goodMonth(name, now, 30*time.Minute)...)
		for n := range 20 {
			objects = append(objects, waitingOf(name, now.Add(-time.Duration(n)*time.Minute)))
		}
	}
	w := wantedOf(DeadlineSettings{}, now, past, schedules...)
	list := Backups(objects)
	for b.Loop() {
		w.estimates = map[estimated][2]durations.Estimate{}
		w.setAll(list, byUID(objects))
	}
}

func TestSizeOfBackup(t *testing.T) {
	for name, tt := range map[string]struct {
		of    uploads.Size
		kind  durations.Kind
		bytes int64
	}{
		"some have not ended: new bytes are not known": {uploads.Size{Total: 100, New: 10, Open: 1}, durations.Unknown, 100},
		"a Velero that does not tell new bytes":        {uploads.Size{Total: 100}, durations.Unknown, 100},
		"most is new":                                  {uploads.Size{Total: 100, New: 95}, durations.Full, 100},
		"little is new":                                {uploads.Size{Total: 100, New: 10}, durations.Incremental, 10},
		"without loads":                                {uploads.Size{}, durations.Unknown, 0},
	} {
		kind, bytes := sizeOf(tt.of)
		assert.Equal(t, tt.kind, kind, name)
		assert.Equal(t, tt.bytes, bytes, name)
	}
	w := wanted{uploads: &uploads.State{Sizes: map[string]uploads.Size{"b": {Total: 100, New: 10}, "starts": {Total: 100, Unknown: 1}}}}
	for name, tt := range map[string]struct {
		of    Backup
		bytes int64
	}{
		"its uploads are known":                       {Backup{Name: "b", Schedule: "s", Phase: WaitingForOperations}, 10},
		"it still starts uploads":                     {Backup{Name: "b", Schedule: "s", Phase: InProgress}, 0},
		"an upload that has not said how much it has": {Backup{Name: "starts", Schedule: "s", Phase: WaitingForOperations}, 0},
		"without a Schedule":                          {Backup{Name: "b", Phase: WaitingForOperations}, 0},
		"without uploads":                             {Backup{Name: "c", Schedule: "s", Phase: WaitingForOperations}, 0},
	} {
		_, bytes := w.size(&tt.of)
		assert.Equal(t, tt.bytes, bytes, name)
	}
}
