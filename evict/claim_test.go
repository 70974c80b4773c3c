package evict

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// naming is what a plugin of another process says: it is at a level, and calls
// its condition so.
func naming(plugin, condition string, level plugins.Level, effects ...string) plugins.Verdict {
	return plugins.Verdict{Plugin: plugin, Scope: condition, Condition: condition, Level: level, MetLevel: level, Effects: effects, Reason: "it says so"}
}

func TestClaims(t *testing.T) {
	t.Run("invented conditions bounded", claimsInventedConditionsBounded)
	t.Run("per plugin limit", claimsPerPluginLimit)
	t.Run("of outer plugins limit", claimsOfOuterPluginsLimit)
	t.Run("effects per condition", claimsEffectsPerCondition)
	t.Run("holder keeps its effects", claimsHolderKeepsItsEffects)
	t.Run("none without condition", claimsNoneWithoutCondition)
}

// Hours of a plugin that calls its condition otherwise in each round, that comes
// back under ever new names, and that does both.
func claimsInventedConditionsBounded(t *testing.T) {
	for what, of := range map[string]func(round int) []plugins.Verdict{
		"conditions": func(n int) []plugins.Verdict {
			return []plugins.Verdict{naming("rogue", fmt.Sprint("C", 2*n), plugins.Hard), naming("rogue", fmt.Sprint("C", 2*n+1), plugins.Soft)}
		},
		"names": func(n int) []plugins.Verdict {
			return []plugins.Verdict{naming(fmt.Sprint("rogue", n), fmt.Sprint("C", n), plugins.Hard)}
		},
		"conditions on its CustomNodeResource": func(n int) []plugins.Verdict {
			v := naming("rogue", fmt.Sprint("C", n), plugins.Hard, fmt.Sprintf("q%d/NoSchedule", n))
			v.CNR = true
			return []plugins.Verdict{v}
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := invent(t, of)
			clean := false
			in := round(2*3600, nil, memoryAt(plugins.None))
			in.State = restarted(t, m)
			for range 3600/60 + 15 { // it ends
				in = then(in, 60, in.State)
				var marks Marks
				marks, in.State = Mark(in)
				clean = len(marks.Conditions) == 1 && len(marks.Taints) == 0 && marks.CNR == nil
			}
			assert.True(t, clean, "nothing is left on the Node")
			in = then(in, 3600, in.State)
			_, in.State = Mark(in)
			assert.Empty(t, in.State.Marks)
			assert.Empty(t, in.State.Claims)
		})
	}
}

// invent plays two hours with a rogue beside an honest plugin and an inner rule.
func invent(t *testing.T, rogue func(round int) []plugins.Verdict) State {
	t.Helper()
	honest, inner := naming("honest", "Honest", plugins.None), memoryAt(plugins.Hard)
	in := round(0, nil, honest, inner)
	_, in.State = Mark(in)
	most, refused := 0, 0
	for n := range 2 * 3600 / 5 {
		in = then(in, 5, in.State)
		if n == 1000 {
			honest.Level, honest.MetLevel = plugins.Soft, plugins.Soft
		}
		in.Levels = &plugins.Levels{Time: in.Time, Verdicts: append(rogue(n), honest, inner)}
		var marks Marks
		marks, in.State = Mark(in)
		refused += len(marks.Refused)
		most = max(most, carried(marks))
		require.Equal(t, "Hard", about(t, marks, memoryKey).Reason, "inner rules have their own")
		if n > 1000 {
			require.Equal(t, "Soft", about(t, marks, names.Prefix+"Honest").Reason)
		}
		require.LessOrEqual(t, len(in.State.Claims), conditionsOfOuterPlugins)
		require.LessOrEqual(t, len(in.State.Marks), conditionsOfOuterPlugins+1)
	}
	t.Logf("at most %d conditions and taints; %d were refused", most, refused)
	assert.LessOrEqual(t, most, 2*(conditionsOfOuterPlugins+1))
	assert.Positive(t, refused)
	return in.State
}

func carried(m Marks) int {
	n := len(m.Conditions) + len(m.Taints)
	if m.CNR != nil {
		n += len(m.CNR.Conditions) + len(m.CNR.Taints)
	}
	return n
}

func claimsPerPluginLimit(t *testing.T) {
	say := func(n int) (list []plugins.Verdict) {
		for i := range n {
			list = append(list, naming("p", fmt.Sprint("C", i), plugins.Soft))
		}
		return list
	}
	in := round(0, nil, say(conditionsPerPlugin)...)
	marks, m := Mark(in)
	assert.Empty(t, marks.Refused)
	in = then(in, 5, m)
	in.Levels.Verdicts = append(say(conditionsPerPlugin+1), naming("q", "C0", plugins.Hard))
	marks, _ = Mark(in)
	assert.Equal(t, []Refusal{{"p", "condition not written: the plugin already has 4, which is the limit; each is released some time after it ended"}}, marks.Refused)
	assert.Len(t, marks.Conditions, conditionsPerPlugin)
	assert.Len(t, marks.Taints, conditionsPerPlugin)
	assert.Equal(t, "Hard", about(t, marks, names.Prefix+"C0").Reason, "two plugins may have one")
}

func claimsOfOuterPluginsLimit(t *testing.T) {
	var list []plugins.Verdict
	for i := range conditionsOfOuterPlugins + 1 {
		list = append(list, naming(fmt.Sprint("p", i), fmt.Sprint("C", i), plugins.Soft))
	}
	marks, _ := Mark(round(0, nil, append(list, memoryAt(plugins.Hard))...))
	assert.Equal(t, []Refusal{{"p32", "condition not written: outer plugins already have 32, which is the limit"}}, marks.Refused)
	assert.Len(t, marks.Conditions, conditionsOfOuterPlugins+1)
	assert.Equal(t, "Hard", about(t, marks, memoryKey).Reason)
	record, err := json.Marshal(marks.Taints)
	require.NoError(t, err)
	assert.Less(t, len(record), 64<<10)
}

func claimsEffectsPerCondition(t *testing.T) {
	say := func(from, n int) plugins.Verdict {
		v := naming("p", "C", plugins.Soft)
		v.CNR = true
		for i := range n {
			v.Effects = append(v.Effects, fmt.Sprintf("q%d/NoSchedule", from+i))
		}
		return v
	}
	in := round(0, nil, say(0, 5), say(5, 5))
	marks, m := Mark(in)
	require.Len(t, marks.CNR.Taints, effectsPerCondition)
	assert.Equal(t, []Refusal{{"p", "taint effect not written: condition cnr/C already has 8"}}, marks.Refused)
	for range 10 {
		in = then(in, 5, m)
		in.Levels.Verdicts = []plugins.Verdict{say(20, 8)}
		marks, m = Mark(in)
		require.Len(t, marks.CNR.Taints, effectsPerCondition)
		require.Len(t, marks.Refused, 1)
	}
	in = then(in, 600, m)
	in.Levels.Verdicts = []plugins.Verdict{say(20, 8)}
	_, m = Mark(in)
	in = then(in, 5, m)
	in.Levels.Verdicts = []plugins.Verdict{say(20, 8)}
	marks, _ = Mark(in)
	assert.Len(t, marks.CNR.Taints, effectsPerCondition, "the first are forgotten, and these have their place")
	assert.Empty(t, marks.Refused)
}

// A rogue names an honest plugin's condition, before it in each round.
func claimsHolderKeepsItsEffects(t *testing.T) {
	say := func(plugin string, from, n int) plugins.Verdict {
		v := naming(plugin, "C", plugins.Soft)
		v.CNR = true
		for i := range n {
			v.Effects = append(v.Effects, fmt.Sprintf("q%d/NoSchedule", from+i))
		}
		return v
	}
	in := round(0, nil, say("honest", 0, 1))
	_, m := Mark(in)
	for i := range 20 {
		in = then(in, 5, m)
		in.Levels.Verdicts = []plugins.Verdict{say("rogue", 100+i, effectsPerCondition), say("honest", 1, effectsByOtherPlugins)}
		var marks Marks
		marks, m = Mark(in)
		require.Equal(t, []string{"rogue"}, refusedOf(marks))
		require.LessOrEqual(t, len(marks.CNR.Taints), effectsPerCondition)
		for _, e := range say("honest", 1, effectsByOtherPlugins).Effects {
			require.Contains(t, marks.CNR.Taints, corev1.Taint{Key: names.Prefix + "C", Effect: corev1.TaintEffect(e)}, i)
		}
	}
}

func refusedOf(m Marks) (list []string) {
	for _, r := range m.Refused {
		list = append(list, r.Plugin)
	}
	return list
}

func claimsNoneWithoutCondition(t *testing.T) {
	marks, m := Mark(round(0, nil, naming("p", "", plugins.Hard)))
	assert.Empty(t, m.Claims)
	assert.Empty(t, marks.Conditions)
}
