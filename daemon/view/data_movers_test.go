package view_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

func TestDataMoversText(t *testing.T) {
	assert.Equal(t, "0 running", (&view.DataMovers{}).Text())
	l := view.DataMovers{DryRun: true, Running: 3, Budget: new(1), StartHoldUntil: time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)}
	assert.Equal(t, "3 running, budget 1, start hold until 12:00:05 UTC (dry run: budget not published, no mover throttled)", l.Text())
}

func TestThrottlesText(t *testing.T) {
	cpu := view.Throttled{Cgroup: "/a", Name: "velero/a\x1b", Percent: 40, Limit: throttle.Rates{CPU: 0.4}, Foreign: true}
	assert.Equal(t, `velero/a\x1b: CPU limited to 0.4 cores, 40 % of its previous use, released in steps when the pressure is over; another program changed this limit since, it is left unchanged`, cpu.Text())
	exempt := view.NotThrottled{Name: "shop/a\x1b", Reason: "it is Guaranteed"}
	assert.Equal(t, `shop/a\x1b, CPU: it is Guaranteed`, exempt.Text())
	l := &view.Throttles{Throttled: []view.Throttled{cpu, {Cgroup: "/b", Disk: "vda"}}}
	assert.Len(t, l.All(), 2)
	assert.Equal(t, []string{cpu.Text()}, l.Of("/a"))
	assert.Equal(t, []string{l.Throttled[1].Text()}, l.On("vda"))
	assert.Empty(t, (*view.Throttles)(nil).All())
}
