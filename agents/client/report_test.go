package client

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// newReport is one whose wakes are not counted.
func newReport() *Report { return &Report{Wake: func() {}} }

// carried is what the Lease carries of a report.
func carried(r *Report) map[string]string { return Annotations(r, nil) }

func TestLeaseCarriesHighestLevels(t *testing.T) {
	r := newReport()
	assert.Empty(t, carried(r), "nothing was judged yet")
	r.SetLevels(&plugins.Levels{Verdicts: []plugins.Verdict{
		{Plugin: "a", Resource: plugins.Disk, Level: plugins.Soft},
		{Plugin: "b", Resource: plugins.Disk, Level: plugins.Hard},
		{Plugin: "c", Resource: plugins.Memory, Level: plugins.Soft},
		{Plugin: "d", Resource: plugins.NetworkIO},
		{Plugin: "e", Level: plugins.Hard},
	}}, true, time.Hour)
	assert.Equal(t, map[string]string{lease.NodeAnnotation: `{"pressure":{"disk":"hard","memory":"soft"}}`}, carried(r))
	r.SetLevels(&plugins.Levels{}, false, time.Hour)
	assert.Equal(t, map[string]string{lease.NodeAnnotation: `{}`}, carried(r))
}

func TestLeaseReport(t *testing.T) {
	r := newReport()
	r.SetLevels(&plugins.Levels{Verdicts: []plugins.Verdict{
		{Plugin: "cpu-contention", Resource: plugins.CPU, Level: plugins.Soft, ReportOnly: true},
		{Plugin: "disk-contention", Resource: plugins.Disk, Level: plugins.Soft},
	}}, false, time.Hour)
	r.SetUnjudged([]string{"network"})
	assert.Equal(t, `{"pressure":{"disk":"soft"},"reported":{"cpu":"soft"},"notJudged":["network"]}`, carried(r)[lease.NodeAnnotation])
}

// Sampling that hangs must not look like a node without pressure, and lifts no brake of
// the controller.
func TestLeaseOldLevels(t *testing.T) { synctest.Test(t, testLeaseOldLevels) }

func testLeaseOldLevels(t *testing.T) {
	const none = `"notJudged":["cpu","disk","filesystem","memory","network"]}`
	r := newReport()
	r.SetLevels(&plugins.Levels{}, false, 15*time.Second)
	r.SetUnjudged([]string{"network"})
	time.Sleep(15*time.Second - time.Nanosecond)
	assert.Equal(t, `{"notJudged":["network"]}`, carried(r)[lease.NodeAnnotation])
	time.Sleep(time.Nanosecond)
	assert.Equal(t, `{`+none, carried(r)[lease.NodeAnnotation])
	time.Sleep(2 * time.Minute)
	read, err := lease.ReadContent(carried(r))
	require.NoError(t, err)
	assert.Equal(t, resources(), read.Report.NotJudged, "a reader knows each of them")

	r.SetLevels(&plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "a", Resource: plugins.Disk, Level: plugins.Hard}}}, true, 15*time.Second)
	assert.Equal(t, `{"pressure":{"disk":"hard"},"notJudged":["network"]}`, carried(r)[lease.NodeAnnotation])
	time.Sleep(2 * time.Minute)
	assert.Equal(t, `{"pressure":{"disk":"hard"},`+none, carried(r)[lease.NodeAnnotation])
}

func TestLeaseCarriesDataMoverBudget(t *testing.T) {
	r := newReport()
	r.SetBudget(&vgdp.Pressure{Budget: new(2)})
	assert.Empty(t, carried(r), "nothing was judged yet")
	r.SetLevels(&plugins.Levels{}, false, time.Hour)
	assert.Equal(t, `{"budget":2}`, carried(r)[lease.NodeAnnotation])
	r.SetBudget(&vgdp.Pressure{Budget: new(1), HoldUntil: time.Date(2026, 3, 1, 12, 0, 0, 7000, time.UTC)})
	assert.Equal(t, `{"budget":1,"holdUntil":"2026-03-01T12:00:00.000007Z"}`, carried(r)[lease.NodeAnnotation])
	read, err := lease.ReadContent(carried(r))
	require.NoError(t, err)
	assert.Equal(t, 1, *read.Report.DataMoverBudget)
	r.SetBudget(nil)
	assert.Equal(t, `{}`, carried(r)[lease.NodeAnnotation])
}

func TestLeaseCarriesOuterLevels(t *testing.T) { synctest.Test(t, testLeaseCarriesOuterLevels) }

func testLeaseCarriesOuterLevels(t *testing.T) {
	r := newReport()
	r.SetLevels(&plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "a", Resource: plugins.Disk, Level: plugins.Soft}}}, false, time.Hour)
	r.SetOuter([]plugins.Verdict{
		{Plugin: "files", Scope: "node", Level: plugins.Soft},
		{Plugin: "files", Scope: plugins.ScopeNamed, Level: plugins.Hard},
		{Plugin: "calm", Scope: "node"},
	}, time.Minute)
	assert.Equal(t, `{"pressure":{"disk":"soft"},"plugins":{"files":"hard"}}`, carried(r)[lease.NodeAnnotation])
	time.Sleep(time.Minute - time.Nanosecond)
	assert.Equal(t, `{"pressure":{"disk":"soft"},"plugins":{"files":"hard"}}`, carried(r)[lease.NodeAnnotation])
	time.Sleep(time.Nanosecond)
	assert.Equal(t, `{"pressure":{"disk":"soft"}}`, carried(r)[lease.NodeAnnotation], "no round has told them again")
	r.SetOuter(nil, time.Minute)
	assert.Equal(t, `{"pressure":{"disk":"soft"}}`, carried(r)[lease.NodeAnnotation])
}

// Their owners decide what these rules see: three tenants' pods must not brake the
// evictions of a cluster, nor hold its data mover loads.
func TestLeaseOmitsPerWorkloadRules(t *testing.T) {
	r := newReport()
	r.SetLevels(&plugins.Levels{Verdicts: []plugins.Verdict{
		{Plugin: "rss-overuse", Resource: plugins.Memory, Level: plugins.Hard, PerWorkload: true},
		{Plugin: "memory-stall", Resource: plugins.Memory, Level: plugins.Soft},
		{Plugin: "cpu-suppression", Resource: plugins.CPU, Level: plugins.Hard, PerWorkload: true},
	}}, false, time.Hour)
	assert.Equal(t, `{"pressure":{"memory":"soft"}}`, carried(r)[lease.NodeAnnotation])
}

func TestLeaseBoundsOuterPlugins(t *testing.T) {
	var said []plugins.Verdict
	for i := range 64 { // as many as the agent asks, with the longest names
		said = append(said, plugins.Verdict{Plugin: fmt.Sprintf("%0128d", i), Level: plugins.Soft})
	}
	said[63].Level = plugins.Hard
	r := newReport()
	r.SetLevels(&plugins.Levels{}, false, time.Hour)
	r.SetOuter(said, time.Minute)
	assert.Less(t, len(carried(r)[lease.NodeAnnotation]), 1200)
	read, err := lease.ReadContent(carried(r))
	require.NoError(t, err)
	assert.Len(t, read.Report.Plugins, 8)
	assert.Equal(t, "hard", read.Report.Plugins[said[63].Plugin], "the worst first")
	assert.Contains(t, read.Report.Plugins, said[0].Plugin)
}

func TestReportWakes(t *testing.T) {
	soft := &plugins.Levels{Verdicts: []plugins.Verdict{{Plugin: "a", Resource: plugins.Disk, Level: plugins.Soft}}}
	for _, c := range []struct {
		name string
		do   func(*Report)
		want int
	}{
		{"a level rose", func(r *Report) { r.SetLevels(soft, true, time.Hour) }, 1},
		{"no level rose", func(r *Report) { r.SetLevels(soft, false, time.Hour) }, 0},
		{"another workload's level rose", func(r *Report) { r.SetLevels(soft, false, time.Hour); r.SetLevels(soft, true, time.Hour) }, 0},
		{"outer plugins never", func(r *Report) { r.SetOuter([]plugins.Verdict{{Plugin: "p", Level: plugins.Hard}}, time.Minute) }, 0},
		{"a budget", func(r *Report) { r.SetBudget(&vgdp.Pressure{Budget: new(2)}) }, 1},
		{"a smaller budget", func(r *Report) {
			r.SetBudget(&vgdp.Pressure{Budget: new(2)})
			r.SetBudget(&vgdp.Pressure{Budget: new(1)})
		}, 2},
		{"a greater budget waits", func(r *Report) {
			r.SetBudget(&vgdp.Pressure{Budget: new(1)})
			r.SetBudget(&vgdp.Pressure{Budget: new(2)})
		}, 1},
		{"no budget any more waits", func(r *Report) { r.SetBudget(nil) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			wakes := 0
			c.do(&Report{Wake: func() { wakes++ }})
			assert.Equal(t, c.want, wakes)
		})
	}
}
