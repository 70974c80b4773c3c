package view_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestWhatDataMoversMayDoIsOneLine(t *testing.T) {
	assert.Equal(t, "0 run", (&view.Loads{}).Text())
	l := view.Loads{DryRun: true, Running: 3, Budget: new(1), HoldUntil: time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC), Throttled: make([]view.Throttled, 2)}
	assert.Equal(t, "3 run, 1 may, none starts before 12:00:05 UTC, 2 slowed down (dry run: nothing is published, nobody is slowed down)", l.Text())
	cpu := view.Throttled{Name: "velero/a\x1b", Percent: 40, May: vgdp.Rates{CPU: 0.4}, Foreign: true}
	assert.Equal(t, `velero/a\x1b: CPU at 0.4 cores, 40 % of what it used; somebody else has set a limit there since, which is left alone`, cpu.Text())
}
