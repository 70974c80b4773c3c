package evict

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestDecisionCauses(t *testing.T) {
	const none, soft, hard = plugins.None, plugins.Soft, plugins.Hard
	levels := func(verdicts ...plugins.Verdict) *plugins.Levels {
		return &plugins.Levels{Time: at(0), Verdicts: verdicts}
	}
	on := func(scope string, l plugins.Level) plugins.Verdict {
		v := disk(l)
		v.Scope = scope
		return v
	}
	memory, outerOne := pressing(), pressing()
	outerOne.Plugin = "vendor"
	for what, row := range map[string]struct {
		before, now *plugins.Levels
		want        []string
	}{
		"nothing":                   {nil, levels(on("sda", none)), nil},
		"what is met":               {nil, levels(on("sda", soft), on("sdb", none), memory), []string{"sda soft: the disk is soft", "node hard: memory is short"}},
		"what stays met":            {levels(on("sda", soft)), levels(on("sda", soft)), []string{"sda soft: the disk is soft"}},
		"what ended":                {levels(on("sda", hard), on("sdb", none)), levels(on("sda", none), on("sdb", none)), []string{"sda none: the disk is none"}},
		"a device that is gone":     {levels(on("sda", none), on("sdb", soft)), levels(on("sda", none)), []string{"sdb none: " + ReasonNoLongerJudged}},
		"a plugin switched off":     {levels(memory, on("sda", none)), levels(on("sda", none)), []string{"node none: " + ReasonDisabled}},
		"an outer one":              {levels(outerOne), levels(on("sda", none)), []string{"node none: " + ReasonUnregistered}},
		"all plugins switched off":  {levels(memory), levels(), []string{"node none: " + ReasonDisabled}},
		"a calm one that goes away": {levels(on("sda", none)), levels(), nil},
		"the same scope, another's": {levels(memory), levels(func() plugins.Verdict { v := on("node", none); return v }()), []string{"node none: " + ReasonDisabled}},
	} {
		t.Run(what, func(t *testing.T) {
			in := round(7, nil)
			in.Before, in.Levels = row.before, row.now
			d, _ := Decide(in)
			var got []string
			for _, c := range d.Causes {
				got = append(got, fmt.Sprintf("%s %s: %s", c.Scope, c.Level, c.Reason))
			}
			assert.Equal(t, row.want, got)
		})
	}
}

func TestDecisionCauseNumbers(t *testing.T) {
	v := pressing()
	v.Observed, v.Operator, v.Threshold, v.Unit = snapshot.Some(0.4), ">=", snapshot.Some(0.25), "ratio"
	in := round(7, nil, v)
	in.Before = &plugins.Levels{Verdicts: []plugins.Verdict{disk(plugins.Soft)}}
	in.Config.DryRun = true
	d, _ := Decide(in)
	want := []Cause{
		{Plugin: "disk-contention", Scope: "sda", Level: plugins.None, Since: at(7), Reason: ReasonDisabled},
		{
			Plugin: "memory-stall", Scope: "node", Level: plugins.Hard, Since: at(-5), Reason: "memory is short",
			Observed: snapshot.Some(0.4), Operator: ">=", Threshold: snapshot.Some(0.25), Unit: "ratio",
			Target: snapshot.Some(10.0),
		},
	}
	assert.Empty(t, cmp.Diff(want, d.Causes, cmp.AllowUnexported(snapshot.Opt[float64]{})))
	assert.Equal(t, at(7), d.Time)
	assert.True(t, d.DryRun)
	later, _ := Decide(then(in, 1, State{}))
	assert.NotEqual(t, d.ID, later.ID)
}
