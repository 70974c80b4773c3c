package history

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func noon(d time.Duration) time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d) }

func TestParseRange(t *testing.T) {
	now := noon(7 * time.Second)
	for query, want := range map[string]Range{
		"":                                  {Name: "hour", From: noon(20*time.Second - time.Hour), To: noon(20 * time.Second)},
		"range=hour&x=y":                    {Name: "hour", From: noon(20*time.Second - time.Hour), To: noon(20 * time.Second)},
		"range=day":                         {Name: "day", From: noon(6*time.Minute - 24*time.Hour), To: noon(6 * time.Minute)},
		"at=2026-03-01T09:00:00Z":           {Name: "hour", From: noon(-210 * time.Minute), To: noon(-150 * time.Minute), At: noon(-3 * time.Hour)},
		"at=2026-03-01T10:00:00%2B01:00":    {Name: "hour", From: noon(-210 * time.Minute), To: noon(-150 * time.Minute), At: noon(-3 * time.Hour)},
		"at=2026-03-01T11:59:00Z":           {Name: "hour", From: noon(20*time.Second - time.Hour), To: noon(20 * time.Second), At: noon(-time.Minute)},
		"range=day&at=2026-03-01T11:59:00Z": {Name: "day", From: noon(6*time.Minute - 24*time.Hour), To: noon(6 * time.Minute), At: noon(-time.Minute)},
		"at=2026-02-28T12:00:07Z":           {Name: "hour", From: noon(-24*time.Hour - 29*time.Minute - 40*time.Second), To: noon(-24*time.Hour + 30*time.Minute + 20*time.Second), At: noon(7*time.Second - 24*time.Hour)},
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		r, err := ParseRange(q, now)
		require.NoError(t, err, query)
		assert.Equal(t, want, r, query)
		assert.LessOrEqual(t, r.count(r.Step()), plotPoints)
		again, err := url.ParseQuery(r.Query(r.At))
		require.NoError(t, err)
		same, err := ParseRange(again, now)
		require.NoError(t, err)
		assert.Equal(t, r, same, "its own query")
	}
	for query, want := range map[string]string{
		"range=week":                          `range="week": want hour or day`,
		"range=Hour":                          `range="Hour": want hour or day`,
		"at=yesterday":                        `at="yesterday": want a time such as 2026-03-01T12:00:07Z (RFC 3339; in a query + is %2B)`,
		"at=2026-03-01T10:00:00+01:00":        `at="2026-03-01T10:00:00 01:00": want a time`,
		"at=2026-03-01T12:02:00Z":             "at=2026-03-01T12:02:00Z is in the future: it is 2026-03-01T12:00:07Z",
		"at=2026-02-28T12:00:06Z":             "at=2026-02-28T12:00:06Z is more than a day ago: a day is kept",
		"at=9999-12-31T23:59:59Z":             "is in the future",
		"at=0000-01-01T00:00:00Z":             "is more than a day ago",
		"range=" + string(make([]byte, 5000)): `range="\x00`,
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = ParseRange(q, now)
		require.ErrorContains(t, err, want, query)
		assert.Less(t, len(err.Error()), 400)
	}
}
