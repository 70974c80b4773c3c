// Package gantt draws what is foreseen of the Backups of a night: as text for a terminal,
// and as an SVG for a page. Values in, drawings out.
//
// # Usage
//
//	err := gantt.Text{Width: 120, Zone: time.Local}.Write(os.Stdout, &night)
//	drawing := gantt.SVG(&night)
package gantt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Row is a line of the plot: one Backup, or all of one Schedule that are to come.
type Row struct {
	// Backups of the row, by when they begin.
	Backups []*backup.Foreseen
	// First is the one whose times are named: the late one that is due first, else the
	// first.
	First *backup.Foreseen
}

// Rows of a night: late ones first, by when they are due, then the others as they begin.
func Rows(n *backup.Night) []Row {
	var rows []Row
	coming := map[string]int{}
	for i := range n.Backups {
		f := &n.Backups[i]
		at, shared := coming[f.Schedule]
		if f.Name == "" && shared {
			rows[at].add(f)
			continue
		}
		if f.Name == "" {
			coming[f.Schedule] = len(rows)
		}
		rows = append(rows, Row{[]*backup.Foreseen{f}, f})
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case !late(a.First) && !late(b.First):
			return 0
		case late(a.First) && late(b.First):
			return a.First.Deadline.Compare(b.First.Deadline)
		case late(a.First):
			return -1
		}
		return 1
	})
	return rows
}

func (r *Row) add(f *backup.Foreseen) {
	r.Backups = append(r.Backups, f)
	if late(f) && (!late(r.First) || f.Deadline.Before(r.First.Deadline)) {
		r.First = f
	}
}

func late(f *backup.Foreseen) bool { return f.LateSeconds > 0 }

// Name of the row for people: "nightly-20260301", "nightly, 3 to come".
func (r *Row) Name() string {
	switch {
	case r.First.Name != "":
		return view.Clip(r.First.Name)
	case len(r.Backups) == 1:
		return view.Clip(r.First.Schedule) + ", to come"
	}
	return fmt.Sprintf("%s, %d to come", view.Clip(r.First.Schedule), len(r.Backups))
}

// Late is what keeps the Backup that the row names from being in time, and what would
// help; empty: it will be in time, or that is not known.
func (r *Row) Late() string {
	f := r.First
	if !late(f) {
		return ""
	}
	return missText(f.LateSeconds, f.Because, f.Helps)
}

// missText is by how much a deadline will be missed, why, and what would help.
func missText(lateSeconds float64, because string, helps []string) string {
	text := "will miss its deadline by " + lateBy(lateSeconds)
	if because != "" {
		text += ", because " + view.Printable(because)
	}
	if len(helps) > 0 {
		text += "; it would be in time with " + view.Printable(strings.Join(helps, ", or with "))
	}
	return text
}

// WillMiss says of each Schedule that will miss its deadline, while no Backup of it is late,
// why: none comes in time.
func WillMiss(n *backup.Night, zone *time.Location) (lines []string) {
	said := map[string]bool{}
	for i := range n.Backups {
		if f := &n.Backups[i]; late(f) {
			said[f.Schedule] = true
		}
	}
	for i := range n.Schedules {
		if s := &n.Schedules[i]; s.WillMiss() && !said[s.Name] {
			lines = append(lines, fmt.Sprintf("Schedule %s, due %s: %s.", view.Clip(s.Name), clock(n, s.Deadline, zone), missText(*s.LateSeconds, s.Because, s.Helps)))
		}
	}
	return lines
}

// Verdict is what the forecast says of the Backup that the row names.
func (r *Row) Verdict() string {
	f := r.First
	switch {
	case late(f):
		return r.Late()
	case f.Why != "":
		return "not known: " + view.Printable(f.Why)
	case f.Deadline.IsZero():
		return "no deadline"
	case f.Ends.IsZero():
		return "not known: it ends after the forecast"
	case f.Latest.After(f.Deadline):
		return "in time by the estimate; it may be late"
	}
	return "in time"
}

// lateBy is by how much a deadline will be missed.
func lateBy(seconds float64) string {
	return problems.Minutes(time.Duration(seconds * float64(time.Second)))
}

// Counts of a night in one line.
func Counts(n *backup.Night) string {
	runs, ends, waits, coming, lates := 0, 0, 0, 0, 0
	for i := range n.Backups {
		f := &n.Backups[i]
		switch {
		case f.Name == "":
			coming++
		case f.Phase == backup.Ready || f.Phase == backup.InProgress:
			runs++
		case f.Phase.Finishing():
			ends++
		default:
			waits++
		}
		if late(f) {
			lates++
		}
	}
	finishing := ""
	if ends > 0 {
		finishing = fmt.Sprintf("%d finishing, ", ends)
	}
	return fmt.Sprintf("%d of at most %d Backups running, %s%d waiting, %d to come, %d will be late", runs, n.Limit, finishing, waits, coming, lates)
}

// Omitted says that not all Backups to come are in a night, or not all of the night; "": they
// are.
func Omitted(n *backup.Night) string {
	var list []string
	if n.Omitted > 0 {
		list = append(list, fmt.Sprintf("Of %d Schedules, which create very many Backups, only the first to come are in this forecast.", n.Omitted))
	}
	if n.Cut {
		list = append(list, fmt.Sprintf("So many Backups wait that this forecast reaches only %s ahead.", problems.Minutes(n.Until.Sub(n.From))))
	}
	return strings.Join(list, " ")
}

// staleAfter is from which age a forecast is said to be old. One is due each minute; with many
// Veleros, of which each round foresees one, or a long backups.resync, later.
const staleAfter = 5 * time.Minute

// Old says that a night was foreseen too long before now, the time of the clock by which it
// was; "": it was not.
func Old(n *backup.Night, now time.Time) string {
	age := now.Sub(n.From)
	if age < staleAfter {
		return ""
	}
	return fmt.Sprintf("This forecast is %s old. A new one is due each minute, or each backups.resync if that is longer; if none comes, see the controller's log.", problems.Minutes(age))
}

// Missed are the Schedules that have missed their deadlines, and what is not followed.
func Missed(n *backup.Night) (missed, unfollowed []*backup.ScheduleState) {
	for i := range n.Schedules {
		s := &n.Schedules[i]
		if s.Missed {
			missed = append(missed, s)
		}
		if len(s.Problems) > 0 {
			unfollowed = append(unfollowed, s)
		}
	}
	return missed, unfollowed
}

// NewestText is how old the newest good Backup of a Schedule is.
func NewestText(n *backup.Night, s *backup.ScheduleState) string {
	if s.Newest.IsZero() {
		return "no good Backup yet"
	}
	return "newest good Backup " + view.Age(n.From.Sub(s.Newest)) + " old"
}

// axis of time.
type axis struct{ from, to time.Time }

// past is the share of the forecast's length that is shown of the time before it, at most.
const past = 0.25

// axisOf begins where the first of those that run began, and ends with the forecast.
func axisOf(n *backup.Night) axis {
	a := axis{n.From, n.Until}
	if !a.to.After(a.from) {
		a.to = a.from.Add(time.Hour)
	}
	first := a.from
	for i := range n.Backups {
		if b := n.Backups[i].Begins; !b.IsZero() && b.Before(first) {
			first = b
		}
	}
	if least := a.from.Add(-time.Duration(past * float64(a.to.Sub(a.from)))); first.Before(least) {
		first = least
	}
	a.from = first
	return a
}

// across is the place of a time: 0 to 1 on the axis.
func (a axis) across(t time.Time) float64 {
	return t.Sub(a.from).Seconds() / a.to.Sub(a.from).Seconds()
}

// contains tells whether a time is set, and on the axis.
func (a axis) contains(t time.Time) bool {
	return !t.IsZero() && !t.Before(a.from) && !t.After(a.to)
}

// quarter: whole hours of each zone are a multiple of it after those of UTC.
const quarter = 15 * time.Minute

// hours are the whole hours of a zone, so many at most: every one, every second, and so
// on. In a night in which its clocks are put forward one is missing, put back one is there
// twice.
func (a axis) hours(zone *time.Location, most int) []time.Time {
	for _, every := range []int{1, 2, 3, 4, 6, 12, 24} {
		if a.to.Sub(a.from) > time.Duration(most*every)*time.Hour {
			continue
		}
		var list []time.Time
		for t := a.from.Truncate(quarter); !t.After(a.to); t = t.Add(quarter) {
			if local := t.In(zone); local.Minute() == 0 && local.Hour()%every == 0 && a.contains(t) {
				list = append(list, t)
			}
		}
		return list
	}
	return nil // it is longer than so many days
}

// part of a Backup's course.
type part int

// The parts, in the order in which they follow each other.
const (
	waits    part = iota
	runs          // until it ends at the earliest
	mayEnd        // until it ends by the median
	mayRun        // until it ends at the latest
	notKnown      // how long it takes
)

// course of a Backup: each part from a time to another. What is not known has a place, and
// no length.
func (a axis) course(f *backup.Foreseen, draw func(p part, from, to time.Time)) {
	could := f.Created
	if f.Opens.After(could) {
		could = f.Opens
	}
	switch {
	case f.Why != "":
		if could.Before(a.from) {
			could = a.from
		}
		draw(notKnown, could, could)
		return
	case f.Begins.IsZero():
		draw(waits, could, a.to)
		return
	}
	draw(waits, could, f.Begins)
	if f.Ends.IsZero() {
		draw(runs, f.Begins, a.to)
		return
	}
	earliest := f.Ends
	if !f.Earliest.IsZero() && f.Earliest.Before(f.Ends) {
		earliest = f.Earliest
	}
	if earliest.Before(f.Begins) {
		earliest = f.Begins
	}
	draw(runs, f.Begins, earliest)
	draw(mayEnd, earliest, f.Ends)
	draw(mayRun, f.Ends, f.Latest)
}

// clock is a time by the clocks of a zone, with its day where it is not within 20 hours of
// a night's begin, and its date where a weekday could be of another week.
func clock(n *backup.Night, t time.Time, zone *time.Location) string {
	const near, week = 20 * time.Hour, 6 * 24 * time.Hour
	switch d := t.Sub(n.From).Abs(); {
	case d > week:
		return t.In(zone).Format("2006-01-02 15:04")
	case d > near:
		return t.In(zone).Format("Mon 15:04")
	}
	return t.In(zone).Format("15:04")
}

// BeginText is when a Backup begins.
func BeginText(n *backup.Night, f *backup.Foreseen, zone *time.Location) string {
	switch {
	case f.Why != "":
		return "not known"
	case f.Begins.IsZero():
		return "later"
	}
	return clock(n, f.Begins, zone)
}

// EndText is when a Backup ends: its interval of 90 %, or why there is none.
func EndText(n *backup.Night, f *backup.Foreseen, zone *time.Location) string {
	switch {
	case f.Why != "":
		return "not known"
	case f.Ends.IsZero():
		return "later"
	}
	from := cmp.Or(f.Earliest, f.Ends)
	to := cmp.Or(f.Latest, f.Ends)
	return clock(n, from, zone) + "-" + clock(n, to, zone)
}

// DueText is a Backup's deadline.
func DueText(n *backup.Night, f *backup.Foreseen, zone *time.Location) string {
	if f.Deadline.IsZero() {
		return "-"
	}
	return clock(n, f.Deadline, zone)
}
