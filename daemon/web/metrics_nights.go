package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup"
)

// maxSchedules have series; a cluster has as many Schedules as its users make.
const maxSchedules = 500

// schedule is a Schedule of a Velero.
type schedule struct {
	velero string
	*backup.ScheduleState
}

// schedules of all nights, and how many are left out: those that will miss their deadlines or
// have missed them stay.
func schedules(nights []backup.Night) (list []schedule, omitted int) {
	for i := range nights {
		for j := range nights[i].Schedules {
			list = append(list, schedule{nights[i].Namespace, &nights[i].Schedules[j]})
		}
	}
	if len(list) > maxSchedules {
		slices.SortStableFunc(list, func(a, b schedule) int { return cmp.Compare(b.troubled(), a.troubled()) })
		omitted = len(list) - maxSchedules
		list = list[:maxSchedules]
		slices.SortStableFunc(list, func(a, b schedule) int {
			return cmp.Or(strings.Compare(a.velero, b.velero), strings.Compare(a.Name, b.Name))
		})
	}
	return list, omitted
}

func (s *schedule) troubled() int {
	if s.Missed || s.WillMiss() {
		return 1
	}
	return 0
}

// finish is a bound of when the next good Backup of a Schedule ends.
type finish struct {
	*schedule
	bound string
	at    time.Time
}

// appendTime appends nothing where there is none.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendFloat(b, float64(t.UnixMilli())/1000)
}

// appendNights is what is foreseen of each Schedule.
func appendNights(b []byte, nights []backup.Night) []byte {
	list, omitted := schedules(nights)
	if len(nights) == 0 {
		return b
	}
	b = appendFamilies(b, []int{omitted}, noLabels, []family[int]{{
		"plimsoll_backup_schedules_omitted", gauge, "Schedules without series, since there are more than 500; those that will miss a deadline or have missed one have series first.",
		func(b []byte, n *int) []byte { return appendCount(b, uint64(*n)) }, //nolint:gosec // a count
	}})
	b = appendFamilies(b, list, func(b []byte, s *schedule) []byte { return appendLabels(b, "velero", s.velero, "schedule", s.Name) }, scheduleFamilies())
	var ends []finish
	for i := range list {
		s := &list[i]
		ends = append(ends, finish{s, "earliest", s.Earliest}, finish{s, "estimate", s.Ends}, finish{s, "latest", s.Latest})
	}
	label := func(b []byte, f *finish) []byte {
		b = append(appendPair(append(b, '{'), "velero", f.velero), ',')
		b = append(appendPair(b, "schedule", f.Name), ',')
		return append(appendPair(b, "bound", f.bound), '}')
	}
	return appendFamilies(b, ends, label, []family[finish]{{
		"plimsoll_backup_forecast_finish_timestamp_seconds", gauge, "When the Schedule's next good Backup will be complete: the estimate, and the earliest and latest of an interval that is made for 90 %; absent while that is not known.",
		func(b []byte, f *finish) []byte { return appendTime(b, f.at) },
	}})
}

func scheduleFamilies() []family[schedule] {
	return []family[schedule]{
		{
			"plimsoll_backup_deadline_timestamp_seconds", gauge, "By when the Schedule's next good Backup is to be complete; absent without a deadline.",
			func(b []byte, s *schedule) []byte { return appendTime(b, s.Deadline) },
		},
		{
			"plimsoll_backup_forecast_late_seconds", gauge, "By how much the Schedule's next good Backup will miss its deadline; 0: it will not. Absent while that is not known, without a deadline, and once it has passed.",
			func(b []byte, s *schedule) []byte {
				if s.LateSeconds == nil {
					return b
				}
				return appendFloat(b, *s.LateSeconds)
			},
		},
		{
			"plimsoll_backup_rpo_seconds", gauge, "How old the Schedule's newest good Backup may become; absent where any age is good.",
			func(b []byte, s *schedule) []byte {
				if s.RPOSeconds == 0 {
					return b
				}
				return appendFloat(b, s.RPOSeconds)
			},
		},
		{
			"plimsoll_backup_newest_good_timestamp_seconds", gauge, "When the Schedule's newest good Backup was started; absent without one.",
			func(b []byte, s *schedule) []byte { return appendTime(b, s.Newest) },
		},
		{
			"plimsoll_backup_schedule_missed", gauge, "1 while the Schedule has missed its deadline: no good Backup was complete within its RPO, or by the end of its backup window, and none is since; else 0.",
			func(b []byte, s *schedule) []byte { return appendBool(b, s.Missed) },
		},
	}
}
