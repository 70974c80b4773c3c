package backup

import (
	"cmp"
	"slices"
	"time"
)

// WillMiss tells whether its next good Backup will miss its deadline.
func (s *ScheduleState) WillMiss() bool { return s.LateSeconds != nil && *s.LateSeconds > 0 }

// next is what is foreseen of the next good Backup of a Schedule.
type next struct {
	deadline, until time.Time
	// open are the Backups that may become good: those that end first, then those that do not
	// end in the forecast.
	open []*Foreseen
	// failed is the last Backup that did since the newest good one; nil: none.
	failed *Object
	// postpones: Backups wait for their next windows (OnMissPostpone).
	postpones bool
}

// foresee sets what is foreseen of the next good Backup. all are those that are foreseen of
// the Schedule, objects those that exist.
func (s *ScheduleState) foresee(all []*Foreseen, objects []*Object, until time.Time, onMiss OnMiss) {
	n := next{deadline: s.Deadline, until: until, postpones: onMiss == OnMissPostpone}
	for _, f := range all {
		if f.mayRenew(s.Newest) {
			n.open = append(n.open, f)
		}
	}
	slices.SortFunc(n.open, func(a, b *Foreseen) int {
		return cmp.Or(compareBool(!a.Ends.IsZero(), !b.Ends.IsZero()), a.Ends.Compare(b.Ends), a.Created.Compare(b.Created))
	})
	for _, o := range objects {
		if o.failed() && o.made().After(s.Newest) && (n.failed == nil || o.made().After(n.failed.made())) {
			n.failed = o
		}
	}
	if len(n.open) > 0 {
		s.Ends, s.Earliest, s.Latest = n.open[0].Ends, n.open[0].Earliest, n.open[0].Latest
	}
	if s.Deadline.IsZero() || s.Missed {
		return
	}
	late, known := n.late()
	if !known {
		return
	}
	s.LateSeconds = new(late.Seconds())
	if late > 0 {
		s.Because, s.Helps = n.because()
	}
}

// mayRenew tells whether it may become the newest good Backup: not where it began before that.
func (f *Foreseen) mayRenew(newest time.Time) bool {
	return !f.Phase.failing() && (f.Begins.IsZero() || !f.Begins.Before(newest))
}

// could is when a Backup could begin by itself.
func (f *Foreseen) could() time.Time { return later(f.Created, f.Opens) }

// late is by how much the next good Backup misses the deadline: at least, where none ends in
// the forecast.
func (n *next) late() (late time.Duration, known bool) {
	ends := n.until
	if len(n.open) > 0 && !n.open[0].Ends.IsZero() {
		ends = n.open[0].Ends
		if !ends.After(n.deadline) {
			return 0, true
		}
	}
	if slices.ContainsFunc(n.open, func(f *Foreseen) bool { return f.Why != "" && f.could().Before(n.deadline) }) {
		return 0, false
	}
	return ends.Sub(n.deadline), ends.After(n.deadline)
}

// because is why the deadline will be missed, and what would help.
func (n *next) because() (text string, helps []string) {
	var before []*Foreseen // created before the deadline
	for _, f := range n.open {
		if f.Created.Before(n.deadline) {
			before = append(before, f)
		}
	}
	if n.failed != nil && !slices.ContainsFunc(before, n.short) {
		return "Backup " + n.failed.Name + " failed, and " + n.comes(), nil
	}
	for _, f := range before {
		if f.Opens.After(n.deadline) {
			return f.title() + n.waits(f) + f.Opens.Format(time.RFC3339), nil
		}
	}
	switch {
	case len(before) == 0:
		return "no Backup comes before it", nil
	case before[0].Because == "": // it is due later than the Schedule
		return "no Backup is complete before it", nil
	}
	return before[0].Because, before[0].Helps
}

// short tells whether a Backup would be in time if it began as soon as it could.
func (n *next) short(f *Foreseen) bool {
	return !f.could().Add(f.Ends.Sub(f.Begins)).After(n.deadline)
}

// comes is when the first of those that may become good does.
func (n *next) comes() string {
	if len(n.open) == 0 {
		return "none comes before it"
	}
	first := slices.MinFunc(n.open, func(a, b *Foreseen) int { return a.Created.Compare(b.Created) })
	verb := "comes"
	if first.Name != "" {
		verb = "came"
	}
	return "the next one " + verb + " at " + first.Created.Format(time.RFC3339)
}

func (n *next) waits(f *Foreseen) string {
	switch {
	case f.First:
		return " waits for the window of first Backups until "
	case n.postpones:
		return " is postponed until "
	}
	return " waits for its backup window until "
}

// title of a Backup in a sentence.
func (f *Foreseen) title() string {
	if f.Name == "" {
		return "the Backup that comes at " + f.Created.Format(time.RFC3339)
	}
	return "Backup " + f.Name
}
