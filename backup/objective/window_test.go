package objective

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string) Window {
	t.Helper()
	w, err := ParseWindow(text)
	require.NoError(t, err, text)
	return w
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UTC()
}

func TestWindow(t *testing.T) {
	for name, tt := range map[string]struct {
		window, at, opens string
		length            time.Duration
	}{
		"later on the same day":          {"22:00-06:00 Europe/Berlin", "2026-01-10T12:00:00Z", "2026-01-10T21:00:00Z", 8 * time.Hour},
		"open since yesterday":           {"22:00-06:00 Europe/Berlin", "2026-01-10T04:59:59Z", "2026-01-09T21:00:00Z", 8 * time.Hour},
		"its end is not in it":           {"22:00-06:00 Europe/Berlin", "2026-01-10T05:00:00Z", "2026-01-10T21:00:00Z", 8 * time.Hour},
		"its begin is":                   {"22:00-06:00 Europe/Berlin", "2026-01-10T21:00:00Z", "2026-01-10T21:00:00Z", 8 * time.Hour},
		"on one day":                     {"09:00-17:30 Asia/Kolkata", "2026-01-10T12:00:00Z", "2026-01-11T03:30:00Z", 8*time.Hour + 30*time.Minute},
		"until midnight":                 {"18:00-24:00 UTC", "2026-01-10T23:59:00Z", "2026-01-10T18:00:00Z", 6 * time.Hour},
		"from midnight":                  {"00:00-06:00 America/New_York", "2026-01-10T12:00:00Z", "2026-01-11T05:00:00Z", 6 * time.Hour},
		"clocks put forward":             {"22:00-06:00 Europe/Berlin", "2026-03-28T22:00:00Z", "2026-03-28T21:00:00Z", 7 * time.Hour},
		"clocks put back":                {"22:00-06:00 Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-24T20:00:00Z", 9 * time.Hour},
		"begins in the skipped hour":     {"02:30-06:00 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", 3 * time.Hour},
		"ends in the skipped hour":       {"22:00-02:30 Europe/Berlin", "2026-03-28T22:00:00Z", "2026-03-28T21:00:00Z", 4 * time.Hour},
		"skipped whole":                  {"02:15-02:45 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-30T00:15:00Z", 30 * time.Minute},
		"begins in the hour shown twice": {"02:30-06:00 Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T00:30:00Z", 4*time.Hour + 30*time.Minute},
		"ends in the hour shown twice":   {"22:00-02:30 Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-24T20:00:00Z", 5*time.Hour + 30*time.Minute},
		"lies in the hour shown twice":   {"02:15-02:45 Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T00:15:00Z", 90 * time.Minute},
		"changed at midnight":            {"00:30-04:00 Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z", 3 * time.Hour},
		"changed by half an hour":        {"01:00-03:00 Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-04T14:00:00Z", 2*time.Hour + 30*time.Minute},
		"a day that a zone skipped":      {"10:00-12:00 Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-30T20:00:00Z", 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			opens, closes := parse(t, tt.window).Next(instant(t, tt.at))
			assert.Equal(t, tt.opens, opens.UTC().Format(time.RFC3339))
			assert.Equal(t, tt.length, closes.Sub(opens))
		})
	}
}

func TestWindowInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "want a window such as",
		"none":                            "want a window such as", // an annotation's value
		"22:00-06:00":                     "want a window such as",
		"22:00 06:00 Europe/Berlin":       "want a window such as",
		"22-06 Europe/Berlin":             "times as HH:MM from 00:00 to 23:59",
		"+2:00-06:00 UTC":                 "times as HH:MM from 00:00 to 23:59",
		"24:00-06:00 UTC":                 "times as HH:MM from 00:00 to 23:59",
		"22:00-24:01 UTC":                 "times as HH:MM from 00:00 to 23:59",
		"22:60-23:00 UTC":                 "times as HH:MM from 00:00 to 23:59",
		"22:00-22:00 Europe/Berlin":       "which does not end when it begins",
		"00:00-24:00 Europe/Berlin":       "which does not end when it begins",
		"22:00-06:00 Europe/Bärlin":       "with a zone of the IANA database",
		"22:00-06:00 Local":               "with a zone of the IANA database",
		"22:00-06:00 ":                    "with a zone of the IANA database",
		"22:00-06:00 +02:00":              "with a zone of the IANA database",
		"22:00-06:00 ../../../etc/passwd": "with a zone of the IANA database",
	} {
		w, err := ParseWindow(text)
		require.ErrorContains(t, err, want, text)
		assert.False(t, w.Set(), text)
	}
}

// slowly is Next once more, minute by minute: open is each minute between two that the
// clocks show as in the window, in the night of a change as well.
func slowly(w Window, t time.Time) (opens, closes time.Time) {
	in := func(at time.Time) bool {
		h, m, _ := at.In(w.zone).Clock()
		minute := h*60 + m
		if w.to <= w.from {
			return minute >= w.from || minute < w.to
		}
		return minute >= w.from && minute < w.to
	}
	walk := func(at time.Time, step time.Duration, until bool) time.Time {
		for in(at) != until {
			at = at.Add(step)
		}
		return at
	}
	at := walk(t, time.Minute, true)
	return walk(at, -time.Minute, false).Add(time.Minute), walk(at, time.Minute, false)
}

// Where no bound of a window is in the hour of the change, and outside of these nights, all
// readings of it agree.
func FuzzWindow(f *testing.F) {
	f.Add("22:00-06:00 Europe/Berlin", int64(1774738800))
	f.Add("00:30-04:00 Africa/Cairo", int64(1776945600))
	f.Add("01:00-03:00 Australia/Lord_Howe", int64(1775300000))
	f.Add("10:00-12:00 Pacific/Apia", int64(1325199600))
	f.Add("05:00-04:59 America/St_Johns", int64(1775300000))
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		w, err := ParseWindow(text)
		if err != nil {
			assert.False(t, w.Set())
			return
		}
		again, err := ParseWindow(w.String())
		require.NoError(t, err)
		assert.Equal(t, w.String(), again.String())
		if unix < 0 || unix > 1<<32 { // years from 1970 to 2106
			return
		}
		at := time.Unix(unix-unix%60, 0)
		opens, closes := w.Next(at)
		require.True(t, closes.After(at))
		require.Less(t, opens.Sub(at), 75*time.Hour)
		require.LessOrEqual(t, closes.Sub(opens), 26*time.Hour)
		if o1, o2 := offset(at.Add(-49*time.Hour), w.zone), offset(at.Add(49*time.Hour), w.zone); o1 != o2 || o1%time.Minute != 0 {
			return
		}
		wantOpens, wantCloses := slowly(w, at)
		assert.True(t, opens.Equal(wantOpens), "%s at %s: opens %s, want %s", w, at.UTC(), opens.UTC(), wantOpens.UTC())
		assert.True(t, closes.Equal(wantCloses), "%s at %s: closes %s, want %s", w, at.UTC(), closes.UTC(), wantCloses.UTC())
	})
}
