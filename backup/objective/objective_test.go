package objective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/names"
)

const day = 24 * time.Hour

func source(kind Kind, annotations ...string) Source {
	s := Source{Kind: kind, Name: "of-" + string(kind), Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations[annotations[i]] = annotations[i+1]
	}
	return s
}

func TestResolve(t *testing.T) {
	night := parse(t, "22:00-06:00 Europe/Berlin")
	defaults := Objective{RPO: 3 * day, Window: night}
	for name, tt := range map[string]struct {
		sources []Source
		period  time.Duration
		want    Objective
		problem string
	}{
		"none is the default": {[]Source{source(Schedule), source(Backup)}, day, defaults, ""},
		"the Schedule first, as it is now": {
			[]Source{source(Schedule, names.RPO, "30h"), source(Backup, names.RPO, "50h", names.Priority, "3")},
			day,
			Objective{RPO: 30 * time.Hour, Window: night, Priority: 3},
			"",
		},
		"the namespace last": {
			[]Source{source(Backup, names.Window, "20:00-23:00 UTC"), source(Namespace, names.Window, "01:00-02:00 UTC", names.RPO, "5h")},
			0,
			Objective{RPO: 5 * time.Hour, Window: parse(t, "20:00-23:00 UTC"), WindowSaid: true, Bounded: Bounded{RPO: true}},
			"",
		},
		"none on the Schedule": {[]Source{source(Schedule, names.RPO, "none", names.Window, "none"), source(Backup, names.RPO, "30h", names.Window, "20:00-23:00 UTC")}, day, Objective{WindowSaid: true}, ""},
		"none on the Backup, before its Schedule": {
			[]Source{source(Schedule, names.RPO, "30h", names.Window, "20:00-23:00 UTC", names.Priority, "3"), source(Backup, names.RPO, "none", names.Window, "none")},
			day,
			Objective{Priority: 3, WindowSaid: true},
			"",
		},
		"none on the Backup, of one alone": {
			[]Source{source(Schedule, names.RPO, "30h"), source(Backup, names.Window, "none")},
			day,
			Objective{RPO: 30 * time.Hour, WindowSaid: true},
			"",
		},
		"none on the namespace is the last": {
			[]Source{source(Backup, names.RPO, "30h"), source(Namespace, names.RPO, "none", names.Window, "none")},
			0,
			Objective{RPO: 30 * time.Hour, WindowSaid: true, Bounded: Bounded{Window: true}},
			"",
		},
		"none instead of a default that cannot be kept": {[]Source{source(Schedule, names.RPO, "none")}, 7 * day, Objective{Window: night}, ""},
		"none is no priority": {
			[]Source{source(Schedule, names.Priority, "3"), source(Backup, names.Priority, "none")},
			day,
			Objective{RPO: 3 * day, Window: night, Priority: 3},
			"",
		},
		"a namespace's priority has a bound": {
			[]Source{source(Namespace, names.Priority, "2147483647")},
			0, defaults,
			`annotation plimsoll.dev/priority: want at most 0 in a namespace, got "2147483647"; using 0`,
		},
		"a namespace may come later": {[]Source{source(Namespace, names.Priority, "-5")}, 0, Objective{RPO: 3 * day, Window: night, Priority: -5}, ""},
		"no duration": {
			[]Source{source(Schedule, names.RPO, "1d"), source(Backup, names.RPO, "30h")},
			day, defaults,
			`annotation plimsoll.dev/rpo: want a duration from 1m to 8784h such as 36h, got "1d"; using the default, 72h`,
		},
		"a negative duration": {
			[]Source{source(Backup, names.RPO, "-30h")},
			0, defaults,
			`annotation plimsoll.dev/rpo: want a duration from 1m to 8784h such as 36h, got "-30h"; using the default, 72h`,
		},
		"not above the schedule's period": {
			[]Source{source(Schedule, names.RPO, "24h")},
			day, defaults,
			`annotation plimsoll.dev/rpo: want more than 24h, the longest time between two Backups of its schedule, got "24h"; using the default, 72h`,
		},
		"a default not above the schedule's period": {
			[]Source{source(Schedule)},
			7 * day,
			Objective{Window: night},
			"the default RPO of 72h is not more than 168h, the longest time between two Backups of its schedule; using none",
		},
		"an unknown zone": {
			[]Source{source(Schedule, names.Window, "22:00-06:00 Berlin")},
			day, defaults,
			`annotation plimsoll.dev/window: want a window such as "22:00-06:00 Europe/Berlin", with a zone of the IANA database, got "22:00-06:00 Berlin"; using the default, 22:00-06:00 Europe/Berlin`,
		},
		"no number": {
			[]Source{source(Backup, names.Priority, "high")},
			day, defaults,
			`annotation plimsoll.dev/priority: want a 32-bit integer, got "high"; using 0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, problems := Resolve(defaults, DefaultBounds(), tt.period, tt.sources...)
			assert.Equal(t, tt.want, o)
			if tt.problem == "" {
				assert.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			assert.Equal(t, tt.problem, problems[0].Text)
			assert.Equal(t, "of-"+string(problems[0].Kind), problems[0].Name)
		})
	}
	t.Run("without a default none holds", func(t *testing.T) {
		o, problems := Resolve(Objective{}, DefaultBounds(), 0, source(Backup, names.RPO, "x", names.Window, "y"))
		assert.Equal(t, Objective{}, o)
		require.Len(t, problems, 2)
		for _, p := range problems {
			assert.Contains(t, p.Text, "; using the default, none")
		}
	})
}

func TestDue(t *testing.T) {
	night := parse(t, "22:00-06:00 UTC")
	noon := instant(t, "2026-01-10T12:00:00Z")
	bounds := Bounds{Least: 4 * time.Hour}
	at := func(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }
	for name, tt := range map[string]struct {
		o      Objective
		newest time.Time
		want   Due
	}{
		"nothing is wanted":                  {Objective{Priority: 3}, at(-24), Due{}},
		"a window":                           {Objective{Window: night}, time.Time{}, Due{at(10), at(18), at(18), false, false, false}},
		"an open window":                     {Objective{Window: parse(t, "11:00-13:00 UTC")}, time.Time{}, Due{time.Time{}, at(1), at(1), false, false, false}},
		"an RPO from the newest good one":    {Objective{RPO: 26 * time.Hour}, at(-24), Due{Deadline: at(2)}},
		"an RPO of the first":                {Objective{RPO: 26 * time.Hour}, time.Time{}, Due{Deadline: at(26)}},
		"an RPO that is missed":              {Objective{RPO: 26 * time.Hour}, at(-26), Due{Deadline: at(26)}},
		"the earlier of both, the window":    {Objective{RPO: 72 * time.Hour, Window: night}, at(-24), Due{at(10), at(18), at(18), false, false, false}},
		"the earlier of both, the RPO":       {Objective{RPO: 36 * time.Hour, Window: night}, at(-24), Due{at(10), at(12), at(18), false, false, false}},
		"a namespace's RPO is bounded":       {Objective{RPO: time.Hour, Bounded: Bounded{RPO: true}}, time.Time{}, Due{Deadline: at(4), DeadlineBounded: true}},
		"a namespace's window is bounded":    {Objective{Window: parse(t, "12:00-12:01 UTC"), Bounded: Bounded{Window: true}}, time.Time{}, Due{time.Time{}, at(4), at(4), true, true, false}},
		"a namespace's window that opens":    {Objective{Window: parse(t, "13:00-13:01 UTC"), Bounded: Bounded{Window: true}}, time.Time{}, Due{at(1), at(5), at(5), true, true, false}},
		"a Schedule's window beside it":      {Objective{Window: parse(t, "12:00-12:01 UTC"), RPO: time.Hour, Bounded: Bounded{RPO: true}}, time.Time{}, Due{time.Time{}, at(0.0 + 1.0/60), at(0.0 + 1.0/60), false, false, false}},
		"a namespace's RPO before a start":   {Objective{Window: night, RPO: time.Hour, Bounded: Bounded{RPO: true}}, time.Time{}, Due{at(10), at(14), at(18), true, false, false}},
		"a Schedule's RPO beside its window": {Objective{Window: night, RPO: 13 * time.Hour, Bounded: Bounded{Window: true}}, time.Time{}, Due{at(10), at(13), at(18), false, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			d := tt.o.Due(bounds, noon, tt.newest)
			assert.True(t, tt.want.Opens.Equal(d.Opens) && tt.want.Deadline.Equal(d.Deadline) && tt.want.Closes.Equal(d.Closes), "want %v, got %v", tt.want, d)
			assert.Equal(t, [2]bool{tt.want.DeadlineBounded, tt.want.ClosesBounded}, [2]bool{d.DeadlineBounded, d.ClosesBounded})
		})
	}
}

func TestDueStill(t *testing.T) {
	noon := instant(t, "2026-01-10T12:00:00Z")
	both := Due{Deadline: noon, Closes: noon.Add(time.Hour)}
	for name, tt := range map[string]struct {
		due  Due
		ends time.Duration // after noon
		want time.Time
	}{
		"nothing is due":      {Due{}, 0, time.Time{}},
		"the deadline":        {both, 0, noon},
		"it is over":          {both, 1, noon.Add(time.Hour)},
		"both are over":       {both, time.Hour + 1, time.Time{}},
		"only a deadline":     {Due{Deadline: noon}, 0, noon},
		"and that is over":    {Due{Deadline: noon}, 1, time.Time{}},
		"the end of a window": {Due{Deadline: noon, Closes: noon}, 0, noon},
	} {
		assert.Equal(t, tt.want, tt.due.Still(noon.Add(tt.ends)), name)
	}
}

func TestPeriod(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	from := instant(t, "2026-01-05T12:00:00Z")
	for expression, want := range map[string]time.Duration{
		"0 22 * * *": day, "@daily": day, "@every 90m": 90 * time.Minute, "0 * * * *": time.Hour,
		"0 1 * * 1-5": 3 * day, "* 8-17 * * 1-5": 62*time.Hour + time.Minute, "0 0 1 * *": 31 * day,
		"CRON_TZ=Europe/Berlin 0 22 * * *": day + time.Hour, // in the night when clocks are put back
	} {
		c, err := ParseCron(expression)
		require.NoError(t, err, expression)
		for _, zone := range []*time.Location{time.UTC, berlin} {
			assert.Equal(t, want, c.Period(from.In(zone)), expression)
		}
	}
	for _, tt := range []struct {
		expression, created string
		want                time.Duration
	}{
		{"0 0 1 1 *", "2026-01-02T12:00:00Z", 365 * day}, // the first is a year away
		{"0 0 1 1 *", "2026-12-31T12:00:00Z", 365 * day},
		{"0 0 1 3 *", "2027-02-28T12:00:00Z", 366 * day},
		{"0 0 1 1,6 *", "2026-06-02T12:00:00Z", 214 * day}, // the second time is more than 400 days away
		{"0 0 29 2 *", "2026-01-02T12:00:00Z", 1461 * day},
		{"0 0 30 2 *", "2026-01-02T12:00:00Z", 0},
	} {
		c, err := ParseCron(tt.expression)
		require.NoError(t, err, tt.expression)
		assert.Equal(t, tt.want, c.Period(instant(t, tt.created)), "%s from %s", tt.expression, tt.created)
	}
	for _, expression := range []string{"", " ", "x", "* * *", "TZ=UTC", "CRON_TZ=", "TZ=Nowhere * * * * *"} {
		_, err := ParseCron(expression)
		require.ErrorContains(t, err, "cron expression: ", expression)
	}
}

func FuzzPeriod(f *testing.F) {
	for _, e := range []string{"0 22 * * *", "@every 1ns", "TZ=UTC", "CRON_TZ=UTC 0 0 30 2 *", "@every 9999999h"} {
		f.Add(e)
	}
	from := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expression string) {
		c, err := ParseCron(expression)
		period := c.Period(from)
		assert.True(t, period >= 0 && (err == nil || period == 0))
		assert.True(t, err == nil || c.Next(from).IsZero())
	})
}
