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
	text := with(&view.DataMovers{Running: 2, Budget: new(1), Throttled: make([]view.Throttled, 5), Problem: "read-only\x1b file system"})
	assert.Contains(t, text, "data movers  2 running, budget 1, 5 throttled\n")
	assert.Equal(t, throttledShown, strings.Count(text, "  throttled: "))
	assert.Contains(t, text, `read-only\x1b file system`)
}
