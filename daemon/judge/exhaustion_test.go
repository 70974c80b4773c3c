package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// foreseen is what the estimates of a recording came to, in seconds from the first
// sample; 0: never.
type foreseen struct {
	name string // of the recording
	// first is when an exhaustion of memory within vgdp.ForeseeWithin was estimated first,
	// and estimate what was estimated then.
	first    float64
	estimate snapshot.Exhaustion
	// exhausted is when less than nothingLeft was available first, hard when memory was
	// hard first.
	exhausted, hard float64
	// spaces are how often each filesystem was estimated to be full as soon.
	spaces map[string]int
}

// nothingLeft of the memory: what the kernel keeps for itself counts as available.
const nothingLeft = 0.04

func (f *foreseen) add(s *snapshot.Snapshot, l *plugins.Levels, at float64) {
	for _, e := range s.Exhaustion {
		switch {
		case e.Seconds > vgdp.ForeseeWithin.Seconds():
		case e.Kind != snapshot.ExhaustsMemory:
			if f.spaces == nil {
				f.spaces = map[string]int{}
			}
			f.spaces[e.Mountpoint]++
		case f.first == 0 && f.hard == 0:
			f.first, f.estimate = at, e
		}
	}
	if left, ok := s.Memory.AvailableRatio.Get(); ok && left < nothingLeft && f.exhausted == 0 {
		f.exhausted = at
	}
	if l.Of(plugins.Memory) == plugins.Hard && f.hard == 0 {
		f.hard = at
	}
}

// shrinksFor is how long memory must shrink before there is an estimate, and some samples.
const shrinksFor = 15

// check: where memory is not short, no exhaustion is expected soon; where a node comes to
// a hard level, it was expected before, unless memory was gone sooner than it is estimated.
func (f *foreseen) check(t *testing.T, healthy, wholeNode bool) {
	t.Helper()
	if healthy {
		assert.Zero(t, f.first, "an exhaustion that never came: %v", f.estimate)
	}
	if wholeNode {
		assert.Positive(t, f.first, "not foreseen")
		assert.Less(t, f.first, f.hard)
	}
}

// foreseeAll replays the labelled recordings.
func foreseeAll(t *testing.T) (rows []foreseen) {
	t.Helper()
	list := tuned(t)
	c := defaults(t)
	for _, e := range list {
		what := recordingOf(t, e)
		f, o := foreseen{name: e.label.Name}, newOurs(c, e.label, what.samples)
		for _, s := range what.samples {
			o.Judge(s)
			f.add(o.snapshot, o.levels, s.Time.Sub(what.samples[0].Time).Seconds())
		}
		f.check(t, e.label.Healthy(), slices.ContainsFunc(e.label.Want, func(w judgement.Want) bool {
			return w.Resource == plugins.Memory && w.Level == plugins.Hard && w.Scope == "" && w.From-e.label.Load.From > shrinksFor
		}))
		rows = append(rows, f)
	}
	return rows
}

// foreseenDocument is a table of the recordings in which an exhaustion of memory was
// expected, or should have been.
func foreseenDocument(rows []foreseen) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
## Time to exhaustion

How long memory and filesystems last is estimated from how they shrink ([ADR 96](adr/0096-exhaustion-is-foreseen.md)). In none of the recordings that are not held out and where nothing is expected was memory estimated to be exhausted within two minutes. Where the whole node came to a hard level it was, unless that was expected within %d s of the load: an estimate takes nearly as long.

| recording | first estimate below 2 min | it said | less than 4 %% were available | memory hard |
|---|---|---|---|---|
`, shrinksFor)
	for _, f := range rows {
		if f.first > 0 {
			fmt.Fprintf(&b, "| %s | %.0f s | in %.0f s (%.0f–%.0f s) | %s | %s |\n", f.name, f.first,
				f.estimate.Seconds, f.estimate.EarliestSeconds, f.estimate.LatestSeconds, f.later(f.exhausted), f.later(f.hard))
		}
	}
	return b.String()
}

// later is how long after the first estimate something came; 0: it never did.
func (f *foreseen) later(at float64) string {
	if at == 0 {
		return "never"
	}
	return fmt.Sprintf("after %.0f s", at-f.first)
}
