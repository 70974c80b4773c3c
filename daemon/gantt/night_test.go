package gantt

import (
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup"
)

// at is an hour of a MADE UP night.
func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

// madeUp is a night that was not: one Backup runs, one will be late, one is not known, one
// was made by hand, an hourly one comes thrice.
func madeUp() *backup.Night {
	n := &backup.Night{Namespace: "velero", From: at(22, 0), Until: at(31, 0), Limit: 2}
	n.Backups = []backup.Foreseen{
		{Name: "shop-20260301213000", Schedule: "shop", Phase: backup.InProgress, Created: at(21, 30), Begins: at(21, 30), Ends: at(23, 0), Earliest: at(22, 30), Latest: at(23, 45), Deadline: at(30, 0)},
		{Name: "bank-20260301214500", Schedule: "bank", Phase: backup.Queued, Created: at(21, 45), Begins: at(23, 0), Ends: at(26, 40), Earliest: at(26, 0), Latest: at(27, 30), Deadline: at(26, 0), LateSeconds: 2400, Because: "it waits 1h15m while as many other Backups run as the limit allows, 2", Helps: []string{"a limit of 3 instead of 2", "all backup windows opening an hour earlier"}},
		{Name: "new-20260301215000", Schedule: "new", Phase: backup.Queued, Created: at(21, 50), Deadline: at(30, 0), Why: "nothing is known of how long it takes"},
		{Name: "by-hand", Phase: backup.New, Created: at(21, 55), Begins: at(27, 0)},
		{Schedule: "nightly", Created: at(22, 30), Opens: at(24, 0), Begins: at(25, 0), Ends: at(28, 0), Earliest: at(27, 0), Latest: at(30, 30), Deadline: at(30, 0)},
	}
	for i := range 3 {
		begins := at(23+2*i, 5)
		n.Backups = append(n.Backups, backup.Foreseen{Schedule: "hourly", Created: begins.Add(-5 * time.Minute), Begins: begins, Ends: begins.Add(20 * time.Minute), Earliest: begins.Add(15 * time.Minute), Latest: begins.Add(25 * time.Minute), Deadline: begins.Add(2 * time.Hour)})
	}
	n.Schedules = []backup.ScheduleState{
		{Name: "bank", Cron: "45 21 * * *", RPOSeconds: 86400, Window: "22:00-06:00 Europe/Berlin", Priority: 1, Newest: at(-2, 0), Deadline: at(26, 0), Runs: 30, UsualSeconds: 13200, LeastSeconds: 10800, LongestSeconds: 16200},
		{Name: "large", Cron: "30 21 * * *", RPOSeconds: 144000, Newest: at(-40, 0), Deadline: at(0, 0), Missed: true, Runs: 7, UsualSeconds: 50, LeastSeconds: 40, LongestSeconds: 75},
		{Name: "new", Cron: "50 21 * * *", Problems: []string{`annotation plimsoll.dev/rpo: want a duration from 1m to 8784h such as 36h, got "daily"; using the default, none`}, Missed: true, Paused: true},
	}
	return n
}

// hostile has names that no API server would accept, and times without sense.
func hostile() *backup.Night {
	const evil = "<script>\x1b[2J\u202e"
	n := &backup.Night{Namespace: evil, From: at(22, 0), Until: at(20, 0), Limit: -1}
	n.Backups = []backup.Foreseen{
		{Name: evil + strings.Repeat("z", 300), Schedule: evil, Because: evil, Helps: []string{evil}, LateSeconds: 1, Deadline: at(22, 30), Begins: at(22, 10), Ends: at(22, 5), Earliest: at(23, 0), Latest: at(22, 0)},
		{Name: "a", Why: evil},
		{Schedule: evil, Ends: at(500, 0)},
		{},
		{Name: "b", Created: at(99999, 0), Begins: at(99999, 0), Ends: at(-99999, 0), Deadline: at(-99999, 0)},
	}
	n.Schedules = []backup.ScheduleState{{Name: evil, Cron: evil, Window: evil, Problems: []string{evil}, Missed: true, UsualSeconds: -1}, {Name: "z" + evil, LateSeconds: new(1.0), Because: evil, Helps: []string{evil}}}
	return n
}

// many is a night of so many Backups, the last of which will be late.
func many(backups int) *backup.Night {
	n := &backup.Night{Namespace: "velero", From: at(22, 0), Until: at(31, 0), Limit: 4}
	for i := range backups {
		begins := n.From.Add(time.Duration(i) * time.Minute)
		n.Backups = append(n.Backups, backup.Foreseen{Name: fmt.Sprintf("app-%04d", i), Phase: backup.Queued, Created: n.From, Begins: begins, Ends: begins.Add(time.Hour), Earliest: begins.Add(50 * time.Minute), Latest: begins.Add(70 * time.Minute), Deadline: at(30, 0)})
	}
	n.Backups[backups-1].LateSeconds = 600
	return n
}
