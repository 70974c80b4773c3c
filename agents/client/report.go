package client

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Report is what the agent's Lease reports about its node: levels of resources
// and of outer plugins, what was not judged, and the data mover budget.
type Report struct {
	// Wake renews the Lease soon. It does not block.
	Wake func()

	levels atomic.Pointer[levelsReport]
	outer  atomic.Pointer[outerReport]
	budget atomic.Pointer[vgdp.Pressure]
	// unjudged are the resources of which something was not judged.
	unjudged atomic.Pointer[[]string]
}

// levelsReport are the levels of inner plugins, and until when they are current.
type levelsReport struct {
	levels *plugins.Levels
	until  time.Time
}

// SetLevels passes the inner plugins' levels on, which are current for so long; if one
// rose, the Lease is renewed at once.
func (r *Report) SetLevels(levels *plugins.Levels, rose bool, valid time.Duration) {
	before := r.levels.Swap(&levelsReport{levels, time.Now().Add(valid)})
	if rose && (before == nil || !maps.Equal(before.levels.NodePressure(), levels.NodePressure())) {
		r.Wake()
	}
}

// SetUnjudged passes on what was not judged. It waits for the next renewal.
func (r *Report) SetUnjudged(resources []string) { r.unjudged.Store(&resources) }

// outerReport are the levels of outer plugins, and until when they are reported.
type outerReport struct {
	levels map[string]string
	until  time.Time
}

// SetOuter passes the outer plugins' verdicts on, for so long. They wait for the next
// renewal: outer plugins must not raise its rate.
func (r *Report) SetOuter(said []plugins.Verdict, valid time.Duration) {
	r.outer.Store(&outerReport{outerLevels(said), time.Now().Add(valid)})
}

// SetBudget passes the data mover budget on, nil for no limit; a smaller one is
// written at once.
func (r *Report) SetBudget(p *vgdp.Pressure) {
	before := r.budget.Swap(p)
	if p != nil && (before == nil || p.HoldUntil.After(before.HoldUntil) || p.Budget != nil && (before.Budget == nil || *p.Budget < *before.Budget)) {
		r.Wake()
	}
}

// Encode is the report for the Lease, as compact JSON. known is false until the
// levels are known. Once they are old, no resource is judged. The levels stay: without
// them the controller would lift its brakes.
func (r *Report) Encode() (text string, known bool) {
	last := r.levels.Load()
	if last == nil {
		return "", false
	}
	report := lease.NodeReport{Pressure: levelNames(last.levels.NodePressure()), Reported: levelNames(last.levels.Reported())}
	if unjudged := r.unjudged.Load(); unjudged != nil {
		report.NotJudged = *unjudged
	}
	if !time.Now().Before(last.until) {
		report.NotJudged = resources()
	}
	if outer := r.outer.Load(); outer != nil && time.Now().Before(outer.until) {
		report.Plugins = outer.levels
	}
	if budget := r.budget.Load(); budget != nil {
		report.DataMoverBudget = budget.Budget
		if !budget.HoldUntil.IsZero() {
			report.HoldUntil = new(lease.Micro(budget.HoldUntil))
		}
	}
	b, err := json.Marshal(report)
	if err != nil {
		return "{}", true // cannot happen: strings and numbers always encode
	}
	return string(b), true
}

// outerLevels are the levels above none by plugin, hard before soft: as many as
// a Lease carries, because each renewal is stored in etcd.
func outerLevels(said []plugins.Verdict) map[string]string {
	highest := map[string]plugins.Level{}
	for _, v := range said {
		if v.Level > plugins.None {
			highest[v.Plugin] = max(highest[v.Plugin], v.Level)
		}
	}
	names := slices.SortedFunc(maps.Keys(highest), func(a, b string) int {
		return cmp.Or(cmp.Compare(highest[b], highest[a]), cmp.Compare(a, b))
	})
	levels := map[string]string{}
	for _, name := range names[:min(len(names), lease.MaxPlugins)] {
		levels[name] = highest[name].String()
	}
	return levels
}

// resources are all that a report may name, sorted.
func resources() []string {
	return []string{string(plugins.CPU), string(plugins.Disk), string(plugins.Filesystem), string(plugins.Memory), string(plugins.NetworkIO)}
}

// levelNames is the level of each resource, as the Lease carries it.
func levelNames(levels map[plugins.Resource]plugins.Level) map[string]string {
	names := map[string]string{}
	for resource, level := range levels {
		names[string(resource)] = level.String()
	}
	return names
}
