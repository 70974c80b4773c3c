package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// marker tells the effects of the taints after each round, 5 s after the one
// before.
type marker struct {
	second int
	dry    []string
	memory State
}

func (m *marker) marks(verdicts ...plugins.Verdict) Marks {
	m.second += 5
	in := round(m.second, nil, verdicts...)
	in.Config.DryRun, in.Config.DryRunPlugins = false, m.dry
	in.State = m.memory
	marks, memory := Mark(in)
	m.memory = memory
	return marks
}

func (m *marker) next(verdicts ...plugins.Verdict) []corev1.TaintEffect {
	var list []corev1.TaintEffect
	for _, t := range m.marks(verdicts...).Taints {
		list = append(list, t.Effect)
	}
	return list
}

func marking(plugin string, level plugins.Level, effects ...string) plugins.Verdict {
	return plugins.Verdict{Plugin: plugin, Scope: "s", Level: level, MetLevel: level, Condition: "C", Effects: effects}
}

func TestEffects(t *testing.T) {
	t.Run("of plugin replace level", effectsOfPluginReplaceLevel)
	t.Run("of two plugins do not flap", effectsOfTwoPluginsDoNotFlap)
	t.Run("of plugin take none away", effectsOfPluginTakeNoneAway)
	t.Run("end after transition", effectsEndAfterTransition)
	t.Run("all end", effectsAllEnd)
	t.Run("survive restart", effectsSurviveRestart)
}

func effectsOfPluginReplaceLevel(t *testing.T) {
	m := marker{}
	assert.Equal(t, []corev1.TaintEffect{no}, m.next(marking("p", plugins.Soft, "NoSchedule")))
	m = marker{}
	assert.Equal(t, []corev1.TaintEffect{out, prefer}, m.next(marking("p", plugins.Hard, "NoExecute", "PreferNoSchedule")))
	m = marker{}
	assert.Equal(t, []corev1.TaintEffect{no}, m.next(marking("p", plugins.Hard)))
	m = marker{}
	got := m.marks(marking("p", plugins.Hard, plugins.NoEffect))
	assert.Empty(t, got.Taints)
	assert.Equal(t, corev1.ConditionTrue, got.Conditions[0].Status, "a condition without a taint")
	assert.Equal(t, []corev1.TaintEffect{no}, m.next(marking("p", plugins.Hard, plugins.NoEffect), marking("q", plugins.Hard)), "another plugin asks for one")
}

func effectsOfTwoPluginsDoNotFlap(t *testing.T) {
	both := []corev1.TaintEffect{out, no}
	m := marker{}
	for i := range 100 { // their answers come and go
		p, q := marking("p", plugins.Soft, "NoSchedule"), marking("q", plugins.Hard, "NoExecute")
		if i > 0 && i%2 == 0 {
			p = marking("p", plugins.None)
		}
		if i > 0 && i%3 == 0 {
			q = marking("q", plugins.None)
		}
		assert.Equal(t, both, m.next(p, q), "round %d", i)
	}
}

func effectsOfPluginTakeNoneAway(t *testing.T) {
	m := marker{}
	assert.Equal(t, []corev1.TaintEffect{no}, m.next(marking("p", plugins.Hard)))
	want := []corev1.TaintEffect{no, prefer}
	for range 3 {
		assert.Equal(t, want, m.next(marking("p", plugins.Hard), marking("q", plugins.Soft, "PreferNoSchedule")))
	}
}

func effectsEndAfterTransition(t *testing.T) {
	m := marker{}
	m.next(marking("p", plugins.Soft, "NoSchedule"), marking("q", plugins.Soft, "PreferNoSchedule"))
	transition := DefaultConfig().Transition
	var lasted time.Duration
	for lasted = 0; lasted < 2*transition; lasted += 5 * time.Second {
		if list := m.next(marking("p", plugins.None), marking("q", plugins.Soft, "PreferNoSchedule")); len(list) == 1 {
			assert.Equal(t, []corev1.TaintEffect{prefer}, list)
			break
		}
	}
	assert.InDelta(t, transition.Seconds(), lasted.Seconds(), 20)
}

func effectsAllEnd(t *testing.T) {
	m := marker{}
	m.next(marking("p", plugins.Hard, "NoExecute"))
	m.second += int((2 * time.Hour).Seconds())
	m.next(marking("p", plugins.None))
	assert.Empty(t, m.next(marking("p", plugins.None)))
	assert.Empty(t, m.memory.Marks["C"].Effects)
	assert.Equal(t, []corev1.TaintEffect{no}, m.next(marking("p", plugins.Hard)), "nothing of it is left")
}

func effectsSurviveRestart(t *testing.T) {
	m := marker{}
	want := m.next(marking("p", plugins.Soft, "NoSchedule"), marking("q", plugins.Soft, "NoExecute"))
	m.memory = restarted(t, m.memory)
	m.memory = m.memory.Adopt(at(m.second), []OwnTaint{{Key: names.Prefix + "C", Effect: no}, {Key: names.Prefix + "C", Effect: out}})
	assert.Equal(t, want, m.next(marking("p", plugins.None)))
}

func TestCNRMarkedAlone(t *testing.T) {
	v, node := marking("p", plugins.Hard, "shared_cores/NoSchedule", "reclaimed_cores/PreferNoSchedule"), marking("q", plugins.Soft)
	v.CNR = true
	m := marker{}
	got := m.marks(v, node)
	assert.Equal(t, []corev1.Taint{{Key: names.Prefix + "C", Effect: prefer}}, got.Taints, "the Node has that of the other plugin")
	require.NotNil(t, got.CNR)
	assert.Equal(t, []corev1.Taint{
		{Key: names.Prefix + "C", Effect: "reclaimed_cores/PreferNoSchedule"}, {Key: names.Prefix + "C", Effect: "shared_cores/NoSchedule"},
	}, got.CNR.Taints)
	require.Len(t, got.CNR.Conditions, 1)
	assert.Equal(t, names.Prefix+"C", got.CNR.Conditions[0].Type)
	assert.Equal(t, corev1.ConditionTrue, got.CNR.Conditions[0].Status)
}

func TestCNRConditionWithoutQoSLevel(t *testing.T) {
	v := marking("p", plugins.Hard)
	v.CNR = true
	got := (&marker{}).marks(v)
	assert.Empty(t, got.Taints)
	assert.Empty(t, got.Conditions)
	assert.Empty(t, got.CNR.Taints)
	assert.Len(t, got.CNR.Conditions, 1)
}

func TestCNRTaintsSurviveLostState(t *testing.T) {
	m := marker{}
	m.memory = m.memory.Adopt(at(0), []OwnTaint{{Key: names.Prefix + "C", Effect: "shared_cores/NoSchedule"}})
	v := marking("p", plugins.None)
	v.CNR = true
	got := m.marks(v)
	assert.Empty(t, got.Taints)
	assert.Equal(t, []corev1.Taint{{Key: names.Prefix + "C", Effect: "shared_cores/NoSchedule"}}, got.CNR.Taints)
	m.second += int((2 * time.Hour).Seconds())
	assert.Empty(t, m.marks(v).CNR.Taints)
}

func TestCNRDryRunPluginLeavesNode(t *testing.T) {
	m := marker{dry: []string{"p"}}
	v, node := marking("p", plugins.Hard, "shared_cores/NoSchedule"), marking("q", plugins.Soft)
	v.CNR = true
	for range 3 {
		got := m.marks(v, node)
		assert.Len(t, got.Taints, 1)
		assert.Nil(t, got.CNR)
	}
}
