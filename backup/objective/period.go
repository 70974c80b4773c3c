package objective

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// firings bounds how far ahead a cron expression is read: a week of minutes.
const firings = 7 * minutesOfDay

// Cron is when a Schedule creates Backups, read as Velero does. The zero value: never.
type Cron struct{ schedule cron.Schedule }

// ParseCron reads a cron expression.
func ParseCron(expression string) (Cron, error) {
	if _, rest, zoned := strings.Cut(expression, "TZ="); expression == "" || zoned && !strings.Contains(rest, " ") { // the parser panics
		return Cron{}, fmt.Errorf("cron expression: want one such as %q, got %s", "0 22 * * *", problems.Quote(expression))
	}
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return Cron{}, fmt.Errorf("cron expression: %w", err)
	}
	return Cron{s}, nil
}

// Next is when the next Backup is created after t; zero: never. Without a zone of its own
// an expression is in UTC, which is the zone of Velero's image, whatever that of this machine
// is.
func (c Cron) Next(t time.Time) time.Time {
	if c.schedule == nil {
		return time.Time{}
	}
	return c.schedule.Next(t.UTC())
}

// Period is the longest time between two Backups, over 400 days from the first after from, and
// at most firings; of those that are farther apart, between the first two. 0: there are no two.
func (c Cron) Period(from time.Time) (longest time.Duration) {
	first := c.Next(from)
	last := first
	for range firings {
		next := c.Next(last)
		if next.IsZero() || longest > 0 && next.Sub(first) > 400*24*time.Hour {
			break
		}
		longest, last = max(longest, next.Sub(last)), next
	}
	return longest
}
