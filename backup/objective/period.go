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

// Period is the longest time between two Backups of a cron expression, which it reads as
// Velero does: over 400 days after from, and at most firings.
func Period(expression string, from time.Time) (longest time.Duration, err error) {
	if _, rest, zoned := strings.Cut(expression, "TZ="); expression == "" || zoned && !strings.Contains(rest, " ") { // the parser panics
		return 0, fmt.Errorf("cron expression: want one such as %q, got %s", "0 22 * * *", problems.Quote(expression))
	}
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return 0, fmt.Errorf("cron expression: %w", err)
	}
	last := s.Next(from)
	for range firings {
		next := s.Next(last)
		if next.IsZero() || next.Sub(from) > 400*24*time.Hour {
			break
		}
		longest, last = max(longest, next.Sub(last)), next
	}
	return longest, nil
}
