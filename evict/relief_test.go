package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// relieved is a round in which memory is short and data movers were slowed down
// for it some seconds ago.
func relieved(ago int) Input {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 20), named("b", 15)))
	in.Relief = []Relief{{Resource: plugins.Memory, Scope: "node", Since: at(-ago), Until: at(-ago).Add(in.Config.ReliefWait), Action: "2 data movers are slowed down"}}
	return in
}

func TestReliefWaits(t *testing.T) {
	var a api
	d, _ := play(relieved(9), &a)
	assert.Equal(t, CodeRelief, d.Code)
	assert.Equal(t, "since 2026-03-01 11:59:51 UTC 2 data movers are slowed down; waiting for its effect until 2026-03-01 12:00:01 UTC", d.Reason)
	assert.Equal(t, map[string]Code{"a": CodeRelief, "b": CodeRelief}, codes(d))
	assert.Empty(t, a.asked)
	d, _ = play(relieved(10), &a)
	assert.Equal(t, CodeEvicted, d.Code, "and not a moment longer")
}

func TestReliefScope(t *testing.T) {
	for what, row := range map[string]struct {
		change func(*Input)
		waits  bool
	}{
		"another resource":      {func(in *Input) { in.Relief[0].Resource = plugins.Disk }, false},
		"another scope":         {func(in *Input) { in.Relief[0].Scope, in.Levels.Verdicts[0].Scope = "sda", "sdb" }, false},
		"one that has its part": {func(in *Input) { in.Relief[0].Scope = "numa0" }, true},
		"one it is a part of":   {func(in *Input) { in.Levels.Verdicts[0].Scope = "numa0" }, true},
		"an outer plugin's, of that disk": {func(in *Input) {
			in.Relief[0].Resource, in.Relief[0].Scope = plugins.Disk, "sda"
			in.Levels.Verdicts[0].Resource, in.Levels.Verdicts[0].Scope = "", "sda"
		}, true},
		"an outer plugin's, of the node": {func(in *Input) { in.Levels.Verdicts[0].Resource = "" }, false},
		"memory below its floor":         {func(in *Input) { in.Levels.Verdicts[0].Urgent = true }, false},
		"forced":                         {func(in *Input) { in.Levels.Verdicts[0].Candidates[1].Forced = true }, false},
		"of two the longer": {func(in *Input) {
			in.Relief = append(in.Relief, in.Relief[0], Relief{Resource: plugins.Memory, Scope: "node", Until: at(-1)})
		}, true},
		"none": {func(in *Input) { in.Relief = nil }, false},
	} {
		t.Run(what, func(t *testing.T) {
			in := relieved(3)
			row.change(&in)
			var a api
			d, _ := play(in, &a)
			assert.Equal(t, row.waits, d.Code == CodeRelief, "%s: %s", d.Code, d.Reason)
			assert.Equal(t, row.waits, len(a.asked) == 0)
		})
	}
}

func TestReliefForcedEvictedAnyway(t *testing.T) {
	in := relieved(3)
	in.Levels.Verdicts[0].Candidates[1].Forced = true
	var a api
	d, _ := play(in, &a)
	require.Len(t, a.asked, 1)
	assert.Equal(t, CodeEvicted, codes(d)["b"])
	assert.NotEqual(t, CodeEvicted, codes(d)["a"])
}

func TestReliefHoldsOnlyItsRule(t *testing.T) {
	in := relieved(3)
	in.Levels.Verdicts = append(in.Levels.Verdicts, disk(plugins.Hard, named("b", 1)))
	in.Levels.Verdicts[1].Target, in.Levels.Verdicts[1].Whole = in.Levels.Verdicts[0].Target, in.Levels.Verdicts[0].Whole
	in.Levels.Verdicts[1].Candidates[0].Relief = 20
	var a api
	d, _ := play(in, &a)
	assert.Equal(t, CodeEvicted, d.Code, d.Reason)
	assert.Equal(t, CodeRelief, codes(d)["a"], "it is named by the rule that waits alone")
	assert.Equal(t, 10*time.Second, DefaultConfig().ReliefWait)
}

func TestReliefLongestInScope(t *testing.T) {
	v := disk(plugins.Hard)
	of := func(scope string, second int) Relief {
		return Relief{Resource: plugins.Disk, Scope: scope, Until: at(second)}
	}
	for want, list := range map[int][]Relief{
		30: {of("sda", 20), of("sda", 30), of("sda", 10)},
		20: {of("sda", 20), of("sdb", 30)},
		40: {of("sda", 20), of("node", 40)},
	} {
		in := round(0, nil, v)
		in.Relief = list
		longest, waits := reliefFor(in, v)
		assert.True(t, waits)
		assert.Equal(t, at(want), longest.Until)
	}
}
