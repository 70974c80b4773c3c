package backup

import (
	"cmp"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/names"
)

func TestScheduleForesee(t *testing.T) {
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	const unknown = -1
	failed := ran("db", at(-1), time.Minute, "Failed")
	both := []*Object{failed, ran("db", at(-2), time.Minute, "Failed")}
	old := ran("db", at(-30), time.Minute, "Failed")
	notValid := ran("db", at(-1), 0, FailedValidation) // to which Velero gives neither start nor end
	notValid.Backup.Began, notValid.Completed = time.Time{}, time.Time{}
	synced := ran("db", at(-40), time.Minute, PartiallyFailed)
	synced.Backup.Created = at(-1)
	// A Backup that begins and ends then; 0: not in the forecast.
	one := func(name string, created, begins, ends float64) Foreseen {
		f := Foreseen{Name: name, Schedule: "db", Created: at(created)}
		if ends != 0 {
			f.Begins, f.Ends = at(begins), at(ends)
		}
		return f
	}
	with := func(f Foreseen, change func(*Foreseen)) Foreseen {
		change(&f)
		return f
	}
	late := func(f Foreseen) Foreseen {
		return with(f, func(f *Foreseen) { f.Because, f.Helps = "it waits 3h", []string{"a limit of 2 instead of 1"} })
	}
	notKnown := func(f Foreseen) Foreseen { return with(f, func(f *Foreseen) { f.Why = "new" }) }
	failing := func(f Foreseen) Foreseen { return with(f, func(f *Foreseen) { f.Phase = FinalizingPartial }) }
	opens := func(hours float64, f Foreseen) Foreseen { return with(f, func(f *Foreseen) { f.Opens = at(hours) }) }
	for name, tt := range map[string]struct {
		of      []Foreseen
		failed  []*Object
		onMiss  OnMiss
		until   float64 // else 24
		late    float64 // hours after the deadline, which is at 4
		ends    float64 // of the next good one; 0: not known
		because string
		helps   bool
	}{
		"in time":                  {of: []Foreseen{one("a", 0, 0, 4)}, late: 0, ends: 4},
		"the second one is":        {of: []Foreseen{late(one("a", 0, 1, 5)), one("", 2, 2, 3)}, late: 0, ends: 3},
		"late":                     {of: []Foreseen{late(one("a", 0, 3, 5))}, late: 1, ends: 5, because: "it waits 3h", helps: true},
		"none ends":                {of: []Foreseen{late(one("a", 0, 0, 0))}, late: 20, because: "it waits 3h", helps: true},
		"tomorrow's ends, not it":  {of: []Foreseen{late(one("a", 0, 0, 0)), one("", 10, 10, 11)}, late: 7, ends: 11, because: "it waits 3h", helps: true},
		"none ends in a short one": {of: []Foreseen{one("a", 0, 0, 0)}, until: 4, late: unknown},
		"none comes":               {late: 20, because: "no Backup comes before it"},
		"it comes later":           {of: []Foreseen{one("", 10, 10, 11)}, late: 7, ends: 11, because: "no Backup comes before it"},
		"of an unknown duration":   {of: []Foreseen{notKnown(one("a", 0, 0, 0)), one("", 10, 10, 11)}, late: unknown, ends: 11},
		"and another is in time":   {of: []Foreseen{notKnown(one("a", 0, 0, 0)), one("", 1, 1, 2)}, late: 0, ends: 2},
		"unknown, and too late":    {of: []Foreseen{notKnown(one("a", 4, 0, 0))}, late: 20, because: "no Backup comes before it"},
		"unknown, and postponed":   {of: []Foreseen{opens(10, notKnown(one("a", 0, 0, 0)))}, onMiss: OnMissPostpone, late: 20, because: "Backup a is postponed until 2026-03-01T22:00:00Z"},
		"is due later itself":      {of: []Foreseen{one("a", 0, 0, 5)}, late: 1, ends: 5, because: "no Backup is complete before it"},
		"the one that runs fails":  {of: []Foreseen{failing(one("a", 0, 0, 1)), one("", 10, 10, 11)}, late: 7, ends: 11, because: "no Backup comes before it"},
		"one failed":               {of: []Foreseen{one("", 10, 10, 11)}, failed: both, late: 7, ends: 11, because: "Backup " + failed.Name + " failed, and the next one comes at 2026-03-01T22:00:00Z"},
		"one failed validation":    {of: []Foreseen{one("", 10, 10, 11)}, failed: []*Object{notValid}, late: 7, ends: 11, because: "Backup " + notValid.Name + " failed, and the next one comes at 2026-03-01T22:00:00Z"},
		"one failed long ago":      {of: []Foreseen{one("", 10, 10, 11)}, failed: []*Object{synced}, late: 7, ends: 11, because: "no Backup comes before it"},
		"one began too early":      {of: []Foreseen{with(one("a", -31, -30, 3), func(f *Foreseen) { f.Phase = InProgress }), one("", 10, 10, 11)}, late: 7, ends: 11, because: "no Backup comes before it"},
		"one failed, none comes":   {failed: both, late: 20, because: "Backup " + failed.Name + " failed, and none comes before it"},
		"one failed, one is there": {of: []Foreseen{late(one("a", 3, 3, 5))}, failed: both, late: 1, ends: 5, because: "Backup " + failed.Name + " failed, and the next one came at 2026-03-01T15:00:00Z"},
		"one failed, one waits":    {of: []Foreseen{late(one("a", 0, 4, 5))}, failed: both, late: 1, ends: 5, because: "it waits 3h", helps: true},
		"one failed, one in time":  {of: []Foreseen{one("", 1, 1, 2)}, failed: both, late: 0, ends: 2},
		"two are late":             {of: []Foreseen{with(one("a", 0, 3, 6), func(f *Foreseen) { f.Because = "it takes 3h by itself" }), late(one("b", 0, 4, 5))}, late: 1, ends: 5, because: "it waits 3h", helps: true},
		"one is being deleted":     {of: []Foreseen{one("", 10, 10, 11)}, failed: []*Object{ran("db", at(-1), time.Minute, Deleting)}, late: 7, ends: 11, because: "no Backup comes before it"},
		"before the newest good":   {of: []Foreseen{one("", 10, 10, 11)}, failed: []*Object{old}, late: 7, ends: 11, because: "no Backup comes before it"},
		"postponed":                {of: []Foreseen{opens(10, one("a", 0, 10, 11))}, onMiss: OnMissPostpone, late: 7, ends: 11, because: "Backup a is postponed until 2026-03-01T22:00:00Z"},
		"to come, and postponed":   {of: []Foreseen{opens(10, one("", 1, 10, 11))}, onMiss: OnMissPostpone, late: 7, ends: 11, because: "the Backup that comes at 2026-03-01T13:00:00Z is postponed until 2026-03-01T22:00:00Z"},
		"its window opens later":   {of: []Foreseen{opens(10, one("a", 0, 10, 11))}, late: 7, ends: 11, because: "Backup a waits for its backup window until 2026-03-01T22:00:00Z"},
		"a first one": {
			of: []Foreseen{with(opens(10, one("a", 0, 10, 11)), func(f *Foreseen) { f.First = true })}, onMiss: OnMissPostpone, late: 7, ends: 11,
			because: "Backup a waits for the window of first Backups until 2026-03-01T22:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*Foreseen
			for i := range tt.of {
				all = append(all, &tt.of[i])
			}
			objects := []*Object{ran("db", at(-31), time.Minute, "Failed"), ran("db", at(-29), time.Minute, Completed)}
			objects = append(objects, tt.failed...)
			s := ScheduleState{Name: "db", Newest: at(-29), Deadline: at(4)}
			s.foresee(all, objects, at(cmp.Or(tt.until, 24)), tt.onMiss)
			late := float64(unknown)
			if s.LateSeconds != nil {
				late = *s.LateSeconds / 3600
			}
			assert.InDelta(t, tt.late, late, 0)
			assert.Equal(t, tt.late > 0, s.WillMiss())
			assert.Equal(t, tt.because, s.Because)
			assert.Equal(t, tt.helps, len(s.Helps) > 0)
			assert.True(t, tt.ends == 0 && s.Ends.IsZero() || at(tt.ends).Equal(s.Ends), "%s", s.Ends)
		})
	}
}

// Without a deadline, and after it, nothing is late.
func TestScheduleForeseeWithoutDeadline(t *testing.T) {
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	f := Foreseen{Name: "a", Schedule: "db", Created: noon, Begins: at(3), Ends: at(5), Earliest: at(4.5), Latest: at(6), Because: "it waits 3h"}
	for _, s := range []ScheduleState{{}, {Deadline: at(-1), Missed: true}} {
		s.foresee([]*Foreseen{&f}, nil, at(24), OnMissRun)
		assert.Nil(t, s.LateSeconds)
		assert.Empty(t, s.Because)
		assert.Equal(t, []time.Time{at(4.5), at(5), at(6)}, []time.Time{s.Earliest, s.Ends, s.Latest})
	}
}

// A window that will be missed is said before it is over, also where its Backup is then
// postponed to the next one, or has failed.
func TestNightForeseesMisses(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := slices.Concat(goodMonth("db", ten, 4*time.Hour), goodMonth("web", ten, 9*time.Hour))
	busy := ran("web", ten.Add(-time.Minute), 0, InProgress)
	busy.Backup.Include, busy.Completed = []string{"of-db"}, time.Time{}
	waits, failed := waitingOf("db", ten), ran("db", ten, time.Hour, "Failed")
	for name, tt := range map[string]struct {
		onMiss  OnMiss
		now     time.Time
		objects []*Object
		late    time.Duration
		because string
	}{
		"it runs at once":          {OnMissRun, ten.Add(time.Minute), []*Object{waits}, 0, ""},
		"it runs after its window": {OnMissRun, ten.Add(time.Minute), []*Object{busy, waits}, 5*time.Hour + 3*time.Minute, "it shares namespaces with Backup " + busy.Name + ", for which it waits 8h59m"},
		"it is postponed":          {OnMissPostpone, ten.Add(time.Minute), []*Object{busy, waits}, 20*time.Hour + 2*time.Minute, "Backup " + waits.Name + " is postponed until 2026-03-11T22:00:00Z"},
		"the one to come will be":  {OnMissPostpone, ten.Add(-time.Minute), []*Object{busy}, 15*time.Hour + 59*time.Minute, "the Backup that comes at 2026-03-10T22:00:00Z is postponed until 2026-03-11T22:00:00Z"},
		"it failed":                {OnMissRun, ten.Add(2 * time.Hour), []*Object{failed}, 20*time.Hour + 2*time.Minute, "Backup " + failed.Name + " failed, and the next one comes at 2026-03-11T22:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			left := slices.Clone(past)
			for _, o := range tt.objects {
				if !o.active() {
					left = append(left, o)
				}
			}
			w := wantedOf(DeadlineSettings{OnMiss: tt.onMiss}, tt.now, left, schedule("db", "0 22 * * *", names.Window, "22:00-06:00 UTC"))
			in := Input{Time: tt.now, Config: Config{Limit: 2, Aging: 24 * time.Hour}, Namespaces: NewNamespaces([]string{"of-db"}), Backups: Backups(tt.objects)}
			w.setAll(in.Backups, byUID(tt.objects))
			state := w.night("velero", in, tt.objects, left).Schedules[0]
			require.NotNil(t, state.LateSeconds)
			assert.InDelta(t, tt.late.Seconds(), *state.LateSeconds, 150)
			assert.Equal(t, tt.because, state.Because)
			assert.True(t, ten.Add(8*time.Hour).Equal(state.Deadline))
		})
	}
}

// In the play, too, a Backup that ends but was started before the newest good one does not
// count.
func TestNightCountsFromNewest(t *testing.T) {
	ten := time.Date(2026, 3, 10, 22, 0, 0, 0, time.UTC)
	past := slices.Concat(goodMonth("db", ten, 4*time.Hour), goodMonth("web", ten, 9*time.Hour))
	busy, old, waits := ran("web", ten, 0, InProgress), ran("db", ten.AddDate(0, 0, -2).Add(time.Minute), 0, Finalizing), waitingOf("db", ten)
	objects := []*Object{busy, waits}
	w := wantedOf(DeadlineSettings{}, ten, past, schedule("db", "0 22 * * *", names.RPO, "30h"))
	in := Input{Time: ten, Config: Config{Limit: 1, Aging: 24 * time.Hour}, Namespaces: NewNamespaces(nil), Backups: append(Backups(objects), old.Backup)}
	w.setAll(in.Backups, byUID(append(objects, old)))
	n := w.night("velero", in, objects, append(past, old))
	i := slices.IndexFunc(n.Backups, func(f Foreseen) bool { return f.Name == waits.Name })
	assert.Equal(t, ten.Add(6*time.Hour), n.Backups[i].Deadline.UTC())
}

// A deadline that will be missed is said once, by two forecasts one after the other.
func TestPublishNight(t *testing.T) {
	s := &Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "db"}}
	night := func(late *float64, deadline time.Time, missed bool) Night {
		return Night{Namespace: "velero", Schedules: []ScheduleState{{Name: "db", Deadline: deadline, LateSeconds: late, Missed: missed, Because: "it waits 3h", Helps: []string{"a", "b"}}}}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	will := "DeadlineWillBeMissed: will miss its deadline 2026-03-01T12:00:00Z by 1h, because it waits 3h; would be in time with a, or with b"
	for name, tt := range map[string]struct {
		nights []Night
		want   []string
	}{
		"once":                    {[]Night{night(new(3600.), noon, false)}, nil},
		"twice":                   {[]Night{night(new(1.), noon, false), night(new(3600.), noon, false)}, []string{will}},
		"as long as it lasts":     {[]Night{night(new(1.), noon.In(berlin), false), night(new(3600.), noon, false), night(new(3600.), noon.In(berlin), false)}, []string{will}},
		"not one after the other": {[]Night{night(new(1.), noon, false), night(new(0.), noon, false), night(new(3600.), noon, false)}, nil},
		"not known meanwhile":     {[]Night{night(new(1.), noon, false), night(nil, noon, false), night(new(3600.), noon, false)}, nil},
		"of another deadline":     {[]Night{night(new(1.), noon, false), night(new(3600.), noon.Add(time.Hour), false)}, nil},
		"it has missed it":        {[]Night{night(nil, noon, true), night(nil, noon, true)}, []string{"DeadlineMissed: no good Backup was complete by 2026-03-01T12:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			var events keptEvents
			r := &Reconciler{Events: &events, Log: slog.New(slog.DiscardHandler)}
			r.foreseen.begin()
			for _, n := range tt.nights {
				r.publishNight(n, map[string]*Schedule{"db": s})
			}
			assert.Equal(t, tt.want, events.lines)
		})
	}
}
