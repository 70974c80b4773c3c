package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

func TestForecastsWhereThereAreNone(t *testing.T) {
	assert.ErrorIs(t, forecasts(&web.Backups{Enabled: true, Deadlines: true}), errStandby)
	assert.ErrorIs(t, forecasts(&web.Backups{Leads: true, Deadlines: true}), errQueueOff)
	assert.ErrorIs(t, forecasts(&web.Backups{Leads: true, Enabled: true}), errDeadlinesOff)
	assert.NoError(t, forecasts(&web.Backups{Leads: true, Enabled: true, Deadlines: true}))
}

func TestUTF8Locale(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{
		{"", "", "", false},
		{"", "", "de_DE.UTF-8", true},
		{"", "", "C.utf8", true},
		{"", "C", "de_DE.UTF-8", false},
		{"en_US.UTF-8", "C", "C", true},
		{"C", "en_US.UTF-8", "en_US.UTF-8", false},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		assert.Equal(t, c.want, utf8Locale(), "%+v", c)
	}
}

func TestWriteNights(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	now := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)
	night := func(velero string) backup.Night {
		return backup.Night{Namespace: velero, From: now, Until: now.Add(time.Hour), Backups: []backup.Foreseen{{Name: "a", Created: now, Begins: now}}}
	}
	text := func(b *web.Backups) string {
		var out strings.Builder
		require.NoError(t, writeNights(&out, b, false))
		return out.String()
	}
	two := text(&web.Backups{Nights: []backup.Night{night("one"), night("two")}})
	assert.Contains(t, two, "Velero one, ")
	assert.Contains(t, two, "\n\nVelero two, ")
	assert.Contains(t, two, "  ########")
	assert.Contains(t, text(&web.Backups{}), "Nothing is forecast yet")
}
