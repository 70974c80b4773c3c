package katalyst

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// converting is what turns the answers of plugin p, which was shown these pods;
// what it refuses is counted.
func converting(uids ...string) (Converter, map[string]int) {
	refused := map[string]int{}
	var pods []Pod
	for _, uid := range uids {
		pods = append(pods, Pod{UID: uid})
	}
	return Converter{Plugin: "p", Shown: NewVisiblePods(pods, nil), Refuse: func(what string) { refused[what]++ }}, refused
}

func rawPod(t *testing.T, uid string) []byte {
	t.Helper()
	raw, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", Name: "web-" + uid}}).Marshal()
	require.NoError(t, err)
	return raw
}

func TestConvertThresholdReason(t *testing.T) {
	for what, row := range map[string]struct {
		answer *wire.ThresholdMetResponse
		want   string
		op     string
		level  plugins.Level
	}{
		"met at hard": {
			&wire.ThresholdMetResponse{MetType: wire.ThresholdMetType_HARD_MET, EvictionScope: "memory", ObservedValue: 1.5, ThresholdValue: 2, ThresholdOperator: wire.ThresholdOperator_LESS_THAN},
			"the plugin reports hard threshold met: memory, observed 1.5, threshold < 2", "<", plugins.Hard,
		},
		"not met": {
			&wire.ThresholdMetResponse{ObservedValue: 1e9, ThresholdValue: 2, ThresholdOperator: wire.ThresholdOperator_GREATER_THAN},
			"the plugin reports threshold not met: node, observed 1e+09, threshold > 2", ">", plugins.None,
		},
	} {
		c, refused := converting()
		v := c.Threshold(row.answer)
		assert.Equal(t, row.want, v.Reason, what)
		assert.Equal(t, row.op, v.Operator, what)
		assert.Equal(t, row.level, v.Level, what)
		assert.Equal(t, row.level, v.MetLevel, what)
		assert.Empty(t, refused, what)
	}
	assert.Equal(t, "unknown", amount(snapshot.Opt[float64]{}))
}

func TestConvertTopPodsBounded(t *testing.T) {
	c, refused := converting("a", "b", "c")
	v := plugins.Verdict{Level: plugins.Hard, Scope: "memory"}
	answer := &wire.GetTopEvictionPodsResponse{}
	for _, uid := range []string{"x", "a", "b", "c", "y"} {
		answer.TargetPods = append(answer.TargetPods, rawPod(t, uid))
	}
	c.Top(&v, answer, 2)
	var why []string
	for _, o := range v.Candidates {
		why = append(why, o.PodUID+": "+o.Refused)
	}
	assert.Equal(t, []string{"x: this pod was not in the request to the plugin", "a: ", "b: ", "c: the plugin named more than the 2 pods that it may name", "y: this pod was not in the request to the plugin"}, why, "one that is refused takes no other's place")
	assert.Equal(t, map[string]int{RefusedNotShown: 2, RefusedTooMany: 1}, refused)

	v = plugins.Verdict{Level: plugins.Hard}
	answer.TargetPods = nil
	for i := range 3 * MaxRefused {
		answer.TargetPods = append(answer.TargetPods, rawPod(t, fmt.Sprint("x", i)))
	}
	c.Top(&v, answer, 2)
	assert.Len(t, v.Candidates, MaxRefused)
}

// An empty message takes two bytes of a pod, and a hundred in memory if it is decoded.
func TestConvertPodOfManyMessages(t *testing.T) {
	raw, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Name: "web-a", Namespace: "shop", ManagedFields: make([]metav1.ManagedFieldsEntry, 100_000)}}).Marshal()
	require.NoError(t, err)
	var id podID
	assert.LessOrEqual(t, testing.AllocsPerRun(10, func() { id, err = identifyPod(raw) }), 10.0)
	require.NoError(t, err)
	assert.Equal(t, podID{"a", "shop", "web-a"}, id)
	_, err = identifyPod(raw[:len(raw)-1])
	require.Error(t, err)
}

func TestConvertNamedPods(t *testing.T) {
	c, refused := converting("a", "b", "c")
	of := func(uid string, forced bool, reason string) *wire.EvictPod {
		return &wire.EvictPod{Pod: rawPod(t, uid), ForceEvict: forced, Reason: reason}
	}
	v := c.Named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{of("a", true, "it leaks"), of("b", false, ""), of("a", false, "again"), of("c", false, "x")}})
	assert.Equal(t, "the plugin named pods to evict: 1 forced, 2 optional", v.Reason)
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Equal(t, plugins.Hard, v.MetLevel)
	require.Len(t, v.Candidates, 3)
	assert.Equal(t, plugins.Candidate{PodUID: "a", Name: "shop/web-a", Why: "it leaks", Forced: true}, v.Candidates[0])
	assert.Equal(t, "named by p", v.Candidates[1].Why)
	assert.False(t, v.Candidates[1].Forced)

	v = c.Named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{of("b", false, "x")}})
	assert.Equal(t, plugins.Soft, v.Level)
	assert.Equal(t, "the plugin named pods to evict: 0 forced, 1 optional", v.Reason)
	v = c.Named(&wire.GetEvictPodsResponse{})
	assert.Equal(t, plugins.None, v.Level)
	assert.False(t, v.Named)
	assert.Equal(t, "the plugin named no pod to evict", v.Reason)
	assert.Empty(t, refused)

	answer := &wire.GetEvictPodsResponse{}
	for i := range 3 * MaxRefused {
		answer.EvictPods = append(answer.EvictPods, of(fmt.Sprint("x", i), true, "x"))
	}
	v = c.Named(answer)
	assert.Len(t, v.Candidates, MaxRefused)
	assert.Equal(t, plugins.None, v.Level, "none of them counts")
	assert.Equal(t, "the plugin named no pod to evict", v.Reason)
	v = c.Named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: []byte{0xff}}}})
	assert.Equal(t, "the plugin named a pod without UID", v.Candidates[0].Refused)
}

func TestConvertCondition(t *testing.T) {
	for what, row := range map[string]struct {
		level plugins.Level
		met   bool
		want  string
	}{
		"met":                     {plugins.Soft, true, "C"},
		"not met, at no level":    {plugins.None, false, "C"},
		"met, at no level":        {plugins.None, true, "C"},
		"not met, though at soft": {plugins.Soft, false, ""},
	} {
		c, _ := converting()
		v := plugins.Verdict{Level: row.level}
		c.condition(&v, &wire.Condition{ConditionType: wire.ConditionType_NODE_CONDITION, ConditionName: "C", MetCondition: row.met})
		assert.Equal(t, row.want, v.Condition, what)
	}
}

func TestConvertCNREffectQoSLevel(t *testing.T) {
	for effect, want := range map[string]bool{
		"reclaimed_cores/NoSchedule": true, "NoSchedule": false, "/NoSchedule": false, "a b/NoSchedule": false, "x/Evict": false, "x/NoExecute": false,
	} {
		c, refused := converting()
		assert.Equal(t, want, c.effect(&plugins.Verdict{CNR: true}, effect), effect)
		assert.Equal(t, want, len(refused) == 0, effect)
	}
}

func TestConvertLongestGrace(t *testing.T) {
	const day = 24 * 3600
	c, refused := converting()
	assert.EqualValues(t, day, c.grace(day))
	assert.Equal(t, snapshot.Some[int64](day), c.deletionGrace(&wire.DeletionOptions{GracePeriodSeconds: day}))
	assert.Empty(t, refused)
	assert.EqualValues(t, day, c.grace(day+1))
	assert.Equal(t, snapshot.Some[int64](day), c.deletionGrace(&wire.DeletionOptions{GracePeriodSeconds: day + 1}))
	assert.Equal(t, map[string]int{RefusedNumber: 2}, refused)
}

func TestClipText(t *testing.T) {
	longest := strings.Repeat("x", MaxText)
	assert.Equal(t, longest, Clip(longest))
	assert.Equal(t, longest, Clip(longest+"x"))
	assert.Equal(t, "ab", Clip("a\xffb"))
}

func TestOuterAnswerBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*wire.ThresholdMetResponse)
		permit func(*Converter)
		check  func(*testing.T, plugins.Verdict)
		counts map[string]int
	}{
		"nothing": {func(*wire.ThresholdMetResponse) {}, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, plugins.Hard, v.Level)
			assert.Equal(t, ">", v.Operator)
			assert.Equal(t, "p", v.Plugin)
			assert.Empty(t, v.Condition)
		}, nil},
		"values the wrong way round": {func(r *wire.ThresholdMetResponse) { r.ObservedValue, r.ThresholdValue = 1, 5 }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, plugins.Hard, v.Level, "observed and threshold are not compared")
		}, nil},
		"no number": {func(r *wire.ThresholdMetResponse) { r.ObservedValue, r.ThresholdValue = math.NaN(), math.Inf(-1) }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.True(t, v.Observed.IsZero() && v.Threshold.IsZero())
			assert.Equal(t, plugins.Hard, v.Level)
		}, map[string]int{RefusedNumber: 2}},
		"an unknown level": {func(r *wire.ThresholdMetResponse) { r.MetType = 77 }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, plugins.None, v.Level)
		}, map[string]int{RefusedEnum: 1}},
		"an unknown operator": {func(r *wire.ThresholdMetResponse) { r.ThresholdOperator = 9 }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Empty(t, v.Operator)
		}, map[string]int{RefusedEnum: 1}},
		"a negative grace": {func(r *wire.ThresholdMetResponse) { r.GracePeriodSeconds = -5 }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Zero(t, v.GraceSeconds)
		}, map[string]int{RefusedNumber: 1}},
		"an absurd grace": {func(r *wire.ThresholdMetResponse) { r.GracePeriodSeconds = math.MaxInt64 }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.EqualValues(t, maxGrace/time.Second, v.GraceSeconds)
		}, map[string]int{RefusedNumber: 1}},
		"an endless scope": {func(r *wire.ThresholdMetResponse) { r.EvictionScope = string(make([]byte, 1<<20)) }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Len(t, v.Scope, MaxText)
		}, map[string]int{RefusedText: 1}},
		"no scope": {func(r *wire.ThresholdMetResponse) { r.EvictionScope = "" }, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, "node", v.Scope)
		}, nil},
		"the kubelet's own condition": {conditioned("MemoryPressure", "NoSchedule"), nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, "MemoryPressure", v.Condition, "which is plimsoll.dev/MemoryPressure")
			assert.Equal(t, []string{"NoSchedule"}, v.Effects)
		}, nil},
		"a condition with a prefix": {conditioned("kubernetes.io/Ready"), nil, func(t *testing.T, v plugins.Verdict) {
			assert.Empty(t, v.Condition)
		}, map[string]int{RefusedCondition: 1}},
		"a condition that is no name": {conditioned("a b"), nil, func(t *testing.T, v plugins.Verdict) {
			assert.Empty(t, v.Condition)
		}, map[string]int{RefusedCondition: 1}},
		"NoExecute": {conditioned("C", "NoExecute", "NoSchedule", "NoSchedule", "Sometimes"), nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, []string{"NoSchedule"}, v.Effects)
		}, map[string]int{RefusedNoExecute: 1, RefusedEffect: 1}},
		"NoExecute that another may have": {conditioned("C", "NoExecute"), func(c *Converter) { c.NoExecute = []string{"q/C", "p/D"} }, func(t *testing.T, v plugins.Verdict) {
			assert.Empty(t, v.Effects)
			assert.Equal(t, "C", v.Condition, "with the level's own effect")
		}, map[string]int{RefusedNoExecute: 1}},
		"NoExecute that it may have": {conditioned("C", "NoExecute"), func(c *Converter) { c.NoExecute = []string{"p/C"} }, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, []string{"NoExecute"}, v.Effects)
		}, nil},
		"a condition that is not met": {func(r *wire.ThresholdMetResponse) {
			r.Condition = &wire.Condition{ConditionName: "C"}
		}, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Empty(t, v.Condition, "nothing is marked")
		}, nil},
		"not met, with a condition that is": {func(r *wire.ThresholdMetResponse) {
			conditioned("C")(r)
			r.MetType = wire.ThresholdMetType_NOT_MET
		}, nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, plugins.None, v.Level)
			assert.Equal(t, "C", v.Condition, "it is shown as clear")
		}, nil},
		"a condition without effects": {conditioned("C"), nil, func(t *testing.T, v plugins.Verdict) {
			assert.Equal(t, []string{plugins.NoEffect}, v.Effects, "no taint, as in Katalyst")
		}, nil},
		"a CNR condition": {func(r *wire.ThresholdMetResponse) {
			conditioned("C", "shared_cores/NoSchedule", "NoSchedule")(r)
			r.Condition.ConditionType = wire.ConditionType_CNR_CONDITION
		}, nil, func(t *testing.T, v plugins.Verdict) {
			assert.True(t, v.CNR)
			assert.Equal(t, []string{"shared_cores/NoSchedule"}, v.Effects)
		}, map[string]int{RefusedEffect: 1}},
		"a condition of no known kind": {func(r *wire.ThresholdMetResponse) {
			conditioned("C")(r)
			r.Condition.ConditionType = 5
		}, nil, func(t *testing.T, v plugins.Verdict) { assert.Empty(t, v.Condition) }, map[string]int{RefusedEnum: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			converter, refused := converting()
			if c.permit != nil {
				c.permit(&converter)
			}
			r := &wire.ThresholdMetResponse{
				MetType: wire.ThresholdMetType_HARD_MET, EvictionScope: "s", ObservedValue: 7, ThresholdValue: 5, ThresholdOperator: wire.ThresholdOperator_GREATER_THAN,
			}
			c.change(r)
			c.check(t, converter.Threshold(r))
			if c.counts == nil {
				assert.Empty(t, refused)
			} else {
				assert.Equal(t, c.counts, refused)
			}
		})
	}
}

func conditioned(name string, effects ...string) func(*wire.ThresholdMetResponse) {
	return func(r *wire.ThresholdMetResponse) {
		r.Condition = &wire.Condition{ConditionName: name, Effects: effects, MetCondition: true}
	}
}

func TestOuterZeroGraceNeedsPermission(t *testing.T) {
	t.Parallel()
	c, refused := converting()
	grace := func(seconds int64) snapshot.Opt[int64] {
		return c.deletionGrace(&wire.DeletionOptions{GracePeriodSeconds: seconds})
	}
	assert.True(t, c.deletionGrace(nil).IsZero(), "the pod's own")
	assert.Equal(t, snapshot.Some[int64](1), grace(0))
	assert.Equal(t, snapshot.Some[int64](1), grace(-7))
	assert.Equal(t, snapshot.Some[int64](86400), grace(math.MaxInt64))
	assert.Equal(t, snapshot.Some[int64](12), grace(12))
	assert.Equal(t, map[string]int{RefusedGraceZero: 1, RefusedNumber: 2}, refused)
	c.ForceGraceZero = []string{"p"}
	assert.Equal(t, snapshot.Some[int64](0), grace(0))
}

func TestOuterEvictPodsCondition(t *testing.T) {
	t.Parallel()
	c, refused := converting()
	met := &wire.Condition{ConditionName: "C", ConditionType: wire.ConditionType_CNR_CONDITION, MetCondition: true}
	for i := range maxEffects + 2 {
		met.Effects = append(met.Effects, fmt.Sprintf("q%d/NoSchedule", i))
	}
	v := c.Named(&wire.GetEvictPodsResponse{Condition: met})
	assert.Equal(t, plugins.Soft, v.Level)
	assert.Equal(t, "C", v.Condition)
	assert.False(t, v.Named)
	assert.Len(t, v.Effects, maxEffects)
	assert.Equal(t, map[string]int{RefusedEffect: 1}, refused)
	assert.Equal(t, plugins.None, c.Named(&wire.GetEvictPodsResponse{}).Level)
}

func TestVisiblePodsAreFieldOfRequest(t *testing.T) {
	long := bytes.Repeat([]byte("a"), 200) // its length has two bytes
	shown := NewVisiblePods([]Pod{
		{UID: "a", Wire: long, Annotations: map[string][]byte{"seen": []byte("+x"), "secret": []byte("+y")}}, {UID: "b"}, {UID: "c", Wire: []byte("c")},
	}, []string{"seen", "missing"})
	other, err := proto.Marshal(&wire.GetTopEvictionPodsRequest{TopN: 3, EvictionScope: "s"})
	require.NoError(t, err)
	var got wire.GetTopEvictionPodsRequest
	require.NoError(t, proto.Unmarshal(append(other, shown.Field...), &got))
	assert.Equal(t, [][]byte{append(long, "+x"...), {}, []byte("c")}, got.GetActivePods())
	assert.EqualValues(t, 3, got.GetTopN())
	assert.Equal(t, "s", got.GetEvictionScope())
	assert.Equal(t, cap(shown.Field), len(shown.Field), "its size is known before")
}
