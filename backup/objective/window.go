package objective

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // an image of one file has no /usr/share/zoneinfo
)

// Window is a time of day, in minutes after midnight by the clocks of a zone. It may pass
// midnight. The zero value is no window.
//
// On a night in which these clocks change, it has one begin and one end all the same: a
// time that they show twice begins a window when it is shown first and ends it when it is
// shown last, and a time that they skip is the moment of the change. A window that is
// skipped whole is not there in that night.
type Window struct {
	from, to int // from 0:00 to 23:59; to 24:00 is 0
	zone     *time.Location
}

const minutesOfDay = 24 * 60

var errWindow = errors.New(`want a window such as "22:00-06:00 Europe/Berlin"`)

// ParseWindow reads "22:00-06:00 Europe/Berlin". The zone is one of the IANA time zone
// database.
func ParseWindow(text string) (Window, error) {
	clocks, zone, ok := strings.Cut(text, " ")
	from, to, ok2 := strings.Cut(clocks, "-")
	if !ok || !ok2 {
		return Window{}, errWindow
	}
	w := Window{from: parseClock(from), to: parseClock(to)}
	switch {
	case w.from < 0 || w.to < 0 || w.from == minutesOfDay:
		return Window{}, fmt.Errorf("%w, with times as HH:MM from 00:00 to 23:59", errWindow)
	case w.from == w.to%minutesOfDay:
		return Window{}, fmt.Errorf("%w, which does not end when it begins", errWindow)
	}
	w.to %= minutesOfDay
	var err error
	// "Local" would be the zone of the controller's machine, and "" UTC.
	if w.zone, err = location(zone); err != nil || zone == "" || zone == "Local" {
		return Window{}, fmt.Errorf("%w, with a zone of the IANA database", errWindow)
	}
	return w, nil
}

// zones are those that were read before, by name: each reading opens a file.
//
//nolint:gochecknoglobals // a cache of files, the same for every caller
var zones sync.Map

func location(name string) (*time.Location, error) {
	if known, there := zones.Load(name); there {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err == nil {
		zones.Store(name, zone)
	}
	return zone, err
}

// parseClock reads "06:00" in minutes; -1: it is none.
func parseClock(text string) int {
	if len(text) != len("06:00") || text[2] != ':' {
		return -1
	}
	h, err := strconv.ParseUint(text[:2], 10, 8)
	m, err2 := strconv.ParseUint(text[3:], 10, 8)
	if err != nil || err2 != nil || m > 59 || int(h)*60+int(m) > minutesOfDay {
		return -1
	}
	return int(h)*60 + int(m)
}

// Set tells whether there is a window.
func (w Window) Set() bool { return w.zone != nil }

// String is the window as ParseWindow reads it; "none".
func (w Window) String() string {
	if !w.Set() {
		return none
	}
	return fmt.Sprintf("%02d:%02d-%02d:%02d %s", w.from/60, w.from%60, w.to/60, w.to%60, w.zone)
}

// Next is the window that is open at t, or the first that opens later. It is open from
// opens, and until just before closes.
func (w Window) Next(t time.Time) (opens, closes time.Time) {
	y, m, d := t.In(w.zone).Date()
	end := 0
	if w.to <= w.from {
		end = 1 // on the next day
	}
	// The last of the day before may be open still. A clock that skips a day, and one window
	// with it, does so once.
	for day := d - 1; ; day++ {
		opens, _ = instants(y, m, day, w.from, w.zone)
		_, closes = instants(y, m, day+end, w.to, w.zone)
		if closes.After(opens) && closes.After(t) {
			return opens, closes
		}
	}
}

// instants are the first and the last time at which the clocks of a zone show a minute of
// a day: two in a night in which they are put back over it. Where they skip it, both are
// the moment of the change.
func instants(y int, m time.Month, day, minute int, zone *time.Location) (first, last time.Time) {
	shown := time.Date(y, m, day, 0, minute, 0, 0, time.UTC) // what the clocks show, as if in UTC
	before, after := offset(shown.Add(-24*time.Hour), zone), offset(shown.Add(24*time.Hour), zone)
	a, b := shown.Add(-before), shown.Add(-after)
	okA, okB := offset(a, zone) == before, offset(b, zone) == after
	switch {
	case okA && okB && b.Before(a):
		return b, a
	case okA && okB:
		return a, b
	case okA:
		return a, a
	case okB:
		return b, b
	}
	_, change := b.In(zone).ZoneBounds() // put forward, b is the earlier of both
	return change, change
}

// offset of a zone from UTC at a time.
func offset(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}
