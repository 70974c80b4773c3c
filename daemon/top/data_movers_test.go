package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
)

func TestTopDataMovers(t *testing.T) {
	s := scenes.Evicted()
	with := func(l *view.DataMovers) string {
		c := *s.Cluster
		c.DataMovers = l
		s.Cluster = &c
		var b strings.Builder
		Render(&b, s, 200, 60, false)
		return b.String()
	}
	assert.NotContains(t, with(nil), "data movers")
	assert.NotContains(t, with(&view.DataMovers{}), "data movers")
	text := with(&view.DataMovers{Running: 2, Budget: new(1), Problem: "read-only\x1b file system"})
	assert.Contains(t, text, "data movers  2 running, budget 1\n")
	assert.Contains(t, text, `read-only\x1b file system`)
}

func TestTopThrottles(t *testing.T) {
	s := scenes.Evicted()
	with := func(l *view.Throttles) string {
		c := *s.Cluster
		c.Throttles = l
		s.Cluster = &c
		var b strings.Builder
		Render(&b, s, 200, 60, false)
		return b.String()
	}
	assert.NotContains(t, with(nil), "throttled  ")
	assert.NotContains(t, with(&view.Throttles{}), "throttled  ")
	text := with(&view.Throttles{
		Throttled: []view.Throttled{{Name: "batch/import", Disk: "vda", Percent: 20, Reason: "shop/db waits 38 % of the time", DryRun: true}, {}, {}, {}, {}},
		Exempt:    []view.NotThrottled{{Name: "shop/web", Disk: "vda", Reason: "it is Guaranteed"}},
		Problem:   "read-only\x1b file system",
	})
	assert.Contains(t, text, "throttled  batch/import: vda limited to 0 kB/s read, 0 kB/s write, 20 % of its previous use, released in steps when the pressure is over, since shop/db waits 38 % of the time (dry run: not applied)\n")
	assert.Equal(t, throttledShown, strings.Count(text, "\nthrottled  "))
	assert.Contains(t, text, "  and 2 more\n")
	assert.Contains(t, text, "not throttled  shop/web, vda: it is Guaranteed\n")
	assert.Contains(t, text, `read-only\x1b file system`)
}
