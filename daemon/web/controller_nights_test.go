package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup"
)

// madeUpNights are two nights that were not: of one Velero with a Backup that will be late,
// one that is not known and Schedules that missed their deadlines, and of one without any.
func madeUpNights() []backup.Night {
	at := func(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }
	n := backup.Night{Namespace: "velero", From: at(22, 0), Until: at(31, 0), Limit: 2}
	n.Backups = []backup.Foreseen{
		{Name: "shop-20260301213000", Schedule: "shop", Phase: backup.InProgress, Created: at(21, 30), Begins: at(21, 30), Ends: at(23, 0), Earliest: at(22, 30), Latest: at(23, 45), Deadline: at(30, 0)},
		{Name: "bank-20260301214500", Schedule: "bank", Phase: backup.Queued, Created: at(21, 45), Begins: at(23, 0), Ends: at(26, 40), Earliest: at(26, 0), Latest: at(27, 30), Deadline: at(26, 0), LateSeconds: 2400, Because: "it waits 1h15m while as many other Backups run as the limit allows, 2", Helps: []string{"a limit of 3 instead of 2"}},
		{Name: "<b>new-20260301215000", Schedule: "<b>new", Phase: backup.Queued, Created: at(21, 50), Deadline: at(30, 0), Why: "nothing is known of how long it takes"},
		{Name: "payments-production-eu-west-1-nightly-full-of-all-20260301220000", Schedule: "payments", Phase: backup.Queued, Created: at(22, 0), Opens: at(23, 0), Begins: at(23, 30), Ends: at(30, 5), Earliest: at(29, 0), Latest: at(31, 0), Deadline: at(30, 0), LateSeconds: 300, Because: "it takes 6h35m by itself"},
		{Name: "made-by-hand", Phase: backup.New, Created: at(21, 55), Begins: at(27, 0)},
		{Schedule: "bank", Created: at(29, 0), Begins: at(29, 0), Ends: at(30, 40), Earliest: at(30, 0), Latest: at(31, 30), Deadline: at(50, 0)},
	}
	n.Schedules = []backup.ScheduleState{
		{Name: "<b>new", Cron: "50 21 * * *", Missed: true, Problems: []string{`annotation plimsoll.dev/rpo: want a duration, got "<b>daily"`}},
		{Name: "bank", Cron: "45 21 * * *", RPOSeconds: 86400, Newest: at(-2, 0), Deadline: at(26, 0), LateSeconds: new(2400.0), Because: "it waits 1h15m while as many other Backups run as the limit allows, 2", Helps: []string{"a limit of 3 instead of 2"}, Ends: at(26, 40), Earliest: at(26, 0), Latest: at(27, 30)},
		{Name: "large", Cron: "30 21 * * *", RPOSeconds: 144000, Newest: at(-40, 0), Deadline: at(0, 0), Missed: true},
		{Name: "none<b>", Cron: "30 20 * * *", Deadline: at(28, 0), LateSeconds: new(10800.0), Because: "no Backup comes before it"},
		{Name: "payments", Cron: "0 22 * * *", Deadline: at(30, 0), Ends: at(30, 5)},
		{Name: "shop", Cron: "30 21 * * *", Deadline: at(30, 0), LateSeconds: new(0.0), Ends: at(23, 0)},
	}
	return []backup.Night{n, {Namespace: "other", From: at(22, 0), Until: at(31, 0), Limit: 1}}
}

// foreseeing is a leader with nights.
func foreseeing() ControllerState {
	s := leading()
	s.DeadlinesEnabled, s.Nights = true, madeUpNights()
	return s
}

func TestNightMetrics(t *testing.T) {
	text := string(appendController(new(foreseeing())))
	problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	const bank = `{velero="velero",schedule="bank"}`
	for _, line := range []string{
		`plimsoll_backup_deadline_timestamp_seconds` + bank + ` 1.7724168e+09`,
		`plimsoll_backup_forecast_late_seconds` + bank + ` 2400`,
		`plimsoll_backup_forecast_late_seconds{velero="velero",schedule="shop"} 0`,
		`plimsoll_backup_forecast_finish_timestamp_seconds{velero="velero",schedule="bank",bound="earliest"} 1.7724168e+09`,
		`plimsoll_backup_forecast_finish_timestamp_seconds{velero="velero",schedule="bank",bound="estimate"} 1.7724192e+09`,
		`plimsoll_backup_forecast_finish_timestamp_seconds{velero="velero",schedule="bank",bound="latest"} 1.7724222e+09`,
		`plimsoll_backup_newest_good_timestamp_seconds` + bank + ` 1.772316e+09`,
		`plimsoll_backup_rpo_seconds` + bank + ` 86400`,
		`plimsoll_backup_schedule_missed` + bank + ` 0`,
		`plimsoll_backup_schedule_missed{velero="velero",schedule="large"} 1`,
		`plimsoll_backup_deadline_timestamp_seconds{velero="velero",schedule="large"} 1.7723232e+09`,
		`plimsoll_backup_schedules_omitted 0`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	for _, absent := range []string{
		`plimsoll_backup_forecast_late_seconds{velero="velero",schedule="<b>new"}`, `plimsoll_backup_forecast_late_seconds{velero="velero",schedule="payments"}`,
		`plimsoll_backup_deadline_timestamp_seconds{velero="velero",schedule="<b>new"}`, `plimsoll_backup_forecast_late_seconds{velero="velero",schedule="large"}`, `plimsoll_backup_forecast_finish_timestamp_seconds{velero="velero",schedule="large"`,
		`plimsoll_backup_rpo_seconds{velero="velero",schedule="shop"}`, `plimsoll_backup_newest_good_timestamp_seconds{velero="velero",schedule="shop"}`,
	} {
		assert.NotContains(t, text, absent, "what is not known has no series")
	}
	assert.NotContains(t, string(appendController(new(leading()))), "plimsoll_backup_schedule", "without deadlines there is none")
}

// A cluster has as many Schedules as its users make, and its metrics are bounded.
func TestNightMetricsBounded(t *testing.T) {
	var nights []backup.Night
	for v := range 2 {
		n := backup.Night{Namespace: fmt.Sprintf("velero-%d", v)}
		for i := range 400 {
			n.Schedules = append(n.Schedules, backup.ScheduleState{Name: fmt.Sprintf("s-%03d", i), Missed: v == 1 && i == 399})
		}
		nights = append(nights, n)
	}
	nights[1].Schedules[398].LateSeconds = new(1.0)
	list, omitted := schedules(nights)
	assert.Len(t, list, maxSchedules)
	assert.Equal(t, 300, omitted)
	for _, name := range []string{"s-399", "s-398"} {
		assert.True(t, slices.ContainsFunc(list, func(s schedule) bool { return s.velero == "velero-1" && s.Name == name }), "%s is not left out", name)
	}
	assert.True(t, slices.IsSortedFunc(list, func(a, b schedule) int { return strings.Compare(a.velero+a.Name, b.velero+b.Name) }))
	assert.Contains(t, string(appendNights(nil, nights)), "\nplimsoll_backup_schedules_omitted 300\n")
}

func TestNightsJSON(t *testing.T) {
	status, body, _ := askController(t, foreseeing(), "/api/v1/backups")
	assert.Equal(t, http.StatusOK, status)
	var b Backups
	require.NoError(t, json.Unmarshal([]byte(body), &b))
	assert.True(t, b.Deadlines)
	assert.Equal(t, madeUpNights(), b.Nights)
	_, body, _ = askController(t, ControllerState{Leader: "a_1"}, "/api/v1/backups")
	assert.Contains(t, body, `"deadlines": false`)
	assert.Contains(t, body, `"nights": []`)
}

func TestNightPage(t *testing.T) {
	_, page, h := askController(t, foreseeing(), "/")
	assert.Equal(t, plainPolicy, h.Get("Content-Security-Policy"))
	for _, want := range []string{
		"velero: the night", "1 of at most 2 Backups running, 4 waiting, 1 to come, 2 will be late",
		"Schedule large has missed its deadline of 2026-03-01 00:00 UTC: newest good Backup 2 d 14 h old.", "no good Backup yet",
		"Schedule none&lt;b&gt;, due 04:00: will miss its deadline by 3h, because no Backup comes before it.",
		"annotation plimsoll.dev/rpo", "will miss its deadline by 40m, because it waits 1h15m while as many other Backups run as the limit allows, 2; it would be in time with a limit of 3 instead of 2",
		"not known: nothing is known of how long it takes", ">40m late: bank-20260301214500</text>", "other: the night",
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, page, "<b>new")
	assert.NotContains(t, page, "ZgotmplZ")
	assert.Less(t, strings.Index(page, "40m late: bank-20260301214500"), strings.Index(page, ">shop-20260301213000<"), "what will be late is first")
	_, page, _ = askController(t, leading(), "/")
	assert.Contains(t, page, "deadlines are disabled (backups.deadlines.enabled: false)")
	_, page, _ = askController(t, ControllerState{Leader: "a_1", QueueEnabled: true}, "/")
	assert.NotContains(t, page, "deadlines are disabled", "a standby replica knows no night")
}

func TestOldForecastOnPage(t *testing.T) {
	s := foreseeing()
	_, page, _ := askController(t, s, "/")
	assert.Contains(t, page, "A new one is due each minute")
	assert.NotContains(t, page, "only the first to come")
	s.Nights[1].Omitted = 3
	_, page, _ = askController(t, s, "/")
	assert.Contains(t, page, "Of 3 Schedules, which create very many Backups, only the first to come are in this forecast.")
	for i := range s.Nights {
		s.Nights[i].From = time.Now()
	}
	_, page, _ = askController(t, s, "/")
	assert.NotContains(t, page, "A new one is due")
}

func TestNightPageBounded(t *testing.T) {
	s := foreseeing()
	n := &s.Nights[0]
	for i := range 500 {
		n.Backups = append(n.Backups, backup.Foreseen{Name: fmt.Sprintf("app-%03d", i), Created: n.From, Begins: n.From, Ends: n.Until, Deadline: n.Until})
	}
	_, page, _ := askController(t, s, "/")
	assert.Equal(t, 60, strings.Count(page, "<g>"))
	assert.Contains(t, page, "and 446 more: kubectl plimsoll backups")
}

func TestNightPageGolden(t *testing.T) {
	s := foreseeing()
	s.Started, s.Queues = time.Now(), nil // ages are by the wall clock
	_, got, _ := askController(t, s, "/?hold")
	got = regexp.MustCompile(`This forecast is \S+ old`).ReplaceAllString(got, "This forecast is 100h old")
	file := filepath.Join("testdata", "pages_controller_night.html")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), got), "run the test with -update if this is meant")
}
