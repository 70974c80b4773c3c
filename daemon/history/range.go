package history

import (
	"fmt"
	"net/url"
	"time"
)

// Range is the time that plots show. ParseRange makes one.
type Range struct {
	// Name is "hour" or "day", as in ?range=.
	Name string
	// From and To are multiples of the length of a point.
	From, To time.Time
	// At is the moment that was asked for, which is in the middle where there is a
	// later half; zero: none, and To is now.
	At time.Time
}

const (
	rangeHour = "hour"
	rangeDay  = "day"
)

// ParseRange reads range=hour|day, hour by default, and at=RFC3339, which may be as old
// as what is kept. The error is for the client.
func ParseRange(query url.Values, now time.Time) (Range, error) {
	r := Range{Name: query.Get("range")}
	switch r.Name {
	case "":
		r.Name = rangeHour
	case rangeHour, rangeDay:
	default:
		return Range{}, fmt.Errorf("range=%q: want hour or day", clip(r.Name))
	}
	to := now
	if text := query.Get("at"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		switch {
		case err != nil:
			return Range{}, fmt.Errorf("at=%q: want a time such as %s (RFC 3339; in a query + is %%2B)", clip(text), now.UTC().Format(time.RFC3339))
		case at.After(now.Add(time.Minute)):
			return Range{}, fmt.Errorf("at=%s is in the future: it is %s", text, now.UTC().Format(time.RFC3339))
		case at.Before(now.Add(-24 * time.Hour)):
			return Range{}, fmt.Errorf("at=%s is more than a day ago: a day is kept", text)
		}
		r.At = at.UTC()
		to = at.Add(r.length() / 2)
		if to.After(now) {
			to = now
		}
	}
	step := r.Step()
	r.To = to.UTC().Truncate(step)
	if r.To.Before(to) {
		r.To = r.To.Add(step)
	}
	r.From = r.To.Add(-r.length())
	return r, nil
}

// plotPoints is how many points a line has at most: as many as a screen can show, few
// enough that a page of thirty plots stays small.
const plotPoints = 240

// Step is the length of a point of a drawn line.
func (r Range) Step() time.Duration {
	if r.Name == rangeDay {
		return 24 * time.Hour / plotPoints
	}
	return 20 * time.Second
}

// shortest is the shortest step of which all of the range is kept.
func (r Range) shortest() time.Duration {
	if r.Name == rangeDay {
		return dayStep
	}
	return fineStep
}

// clip is the beginning of a text that a client sent.
func clip(text string) string { return text[:min(len(text), 40)] }

func (r Range) length() time.Duration {
	if r.Name == rangeDay {
		return 24 * time.Hour
	}
	return time.Hour
}

// count is how many steps of a length the range has.
func (r Range) count(step time.Duration) int { return int(r.To.Sub(r.From) / step) }

// Query of a range of this length about a moment, or up to now where it is zero.
func (r Range) Query(at time.Time) string {
	q := url.Values{"range": {r.Name}}
	if !at.IsZero() {
		q.Set("at", at.UTC().Format(time.RFC3339))
	}
	return q.Encode()
}
