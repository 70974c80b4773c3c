package view_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestDataMoversText(t *testing.T) {
	assert.Equal(t, "0 running", (&view.DataMovers{}).Text())
	l := view.DataMovers{DryRun: true, Running: 3, Budget: new(1), StartHoldUntil: time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC), Throttled: make([]view.Throttled, 2)}
	assert.Equal(t, "3 running, budget 1, start hold until 12:00:05 UTC, 2 throttled (dry run: budget not published, no mover throttled)", l.Text())
	cpu := view.Throttled{Name: "velero/a\x1b", Percent: 40, Limit: vgdp.Rates{CPU: 0.4}, Foreign: true}
	assert.Equal(t, `velero/a\x1b: CPU limited to 0.4 cores, 40 % of its previous use; another program changed this limit since, it is left unchanged`, cpu.Text())
}
