package outer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/plugins"
	wire "github.com/plimsoll-dev/plimsoll/plugins/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// converting is what turns the answers of plugin p, which was shown these pods;
// what it refuses is counted.
func converting(uids ...string) (converter, map[string]int) {
	refused := map[string]int{}
	c := converter{plugin: "p", shown: visiblePods{at: map[string]int{}}, refuse: func(what string) { refused[what]++ }}
	for i, uid := range uids {
		c.shown.at[uid] = i
	}
	return c, refused
}

func rawPod(t *testing.T, uid string) []byte {
	t.Helper()
	raw, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "shop", Name: "web-" + uid}}).Marshal()
	require.NoError(t, err)
	return raw
}

func TestAThresholdIsToldInOneSentence(t *testing.T) {
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
		v := c.threshold(row.answer)
		assert.Equal(t, row.want, v.Reason, what)
		assert.Equal(t, row.op, v.Operator, what)
		assert.Equal(t, row.level, v.Level, what)
		assert.Equal(t, row.level, v.MetLevel, what)
		assert.Empty(t, refused, what)
	}
	assert.Equal(t, "unknown", amount(snapshot.Opt[float64]{}))
}

func TestOfThePodsThatAThresholdNamesAsManyAreTakenAsWereAskedFor(t *testing.T) {
	c, refused := converting("a", "b", "c")
	v := plugins.Verdict{Level: plugins.Hard, Scope: "memory"}
	answer := &wire.GetTopEvictionPodsResponse{}
	for _, uid := range []string{"x", "a", "b", "c", "y"} {
		answer.TargetPods = append(answer.TargetPods, rawPod(t, uid))
	}
	c.top(&v, answer, 2)
	var why []string
	for _, o := range v.Candidates {
		why = append(why, o.PodUID+": "+o.Refused)
	}
	assert.Equal(t, []string{"x: this pod was not in the request to the plugin", "a: ", "b: ", "c: the plugin named more pods than the 2 it was asked for", "y: this pod was not in the request to the plugin"}, why, "one that is refused takes no other's place")
	assert.Equal(t, map[string]int{refusedNotShown: 2, refusedTooMany: 1}, refused)

	v = plugins.Verdict{Level: plugins.Hard}
	answer.TargetPods = nil
	for i := range 3 * maxRefused {
		answer.TargetPods = append(answer.TargetPods, rawPod(t, fmt.Sprint("x", i)))
	}
	c.top(&v, answer, 2)
	assert.Len(t, v.Candidates, maxRefused)
}

func TestPodsThatAPluginNamesAreForcedOrNotAndCountedOnce(t *testing.T) {
	c, refused := converting("a", "b", "c")
	of := func(uid string, forced bool, reason string) *wire.EvictPod {
		return &wire.EvictPod{Pod: rawPod(t, uid), ForceEvict: forced, Reason: reason}
	}
	v := c.named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{of("a", true, "it leaks"), of("b", false, ""), of("a", false, "again"), of("c", false, "x")}})
	assert.Equal(t, "the plugin named pods to evict: 1 forced, 2 optional", v.Reason)
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Equal(t, plugins.Hard, v.MetLevel)
	require.Len(t, v.Candidates, 3)
	assert.Equal(t, plugins.Candidate{PodUID: "a", Name: "shop/web-a", Why: "it leaks", Forced: true}, v.Candidates[0])
	assert.Equal(t, "named by p", v.Candidates[1].Why)
	assert.False(t, v.Candidates[1].Forced)

	v = c.named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{of("b", false, "x")}})
	assert.Equal(t, plugins.Soft, v.Level)
	assert.Equal(t, "the plugin named pods to evict: 0 forced, 1 optional", v.Reason)
	v = c.named(&wire.GetEvictPodsResponse{})
	assert.Equal(t, plugins.None, v.Level)
	assert.False(t, v.Named)
	assert.Equal(t, "the plugin named no pod to evict", v.Reason)
	assert.Empty(t, refused)

	answer := &wire.GetEvictPodsResponse{}
	for i := range 3 * maxRefused {
		answer.EvictPods = append(answer.EvictPods, of(fmt.Sprint("x", i), true, "x"))
	}
	v = c.named(answer)
	assert.Len(t, v.Candidates, maxRefused)
	assert.Equal(t, plugins.None, v.Level, "none of them counts")
	assert.Equal(t, "the plugin named no pod to evict", v.Reason)
	v = c.named(&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: []byte{0xff}}}})
	assert.Equal(t, "the plugin named a pod without UID", v.Candidates[0].Refused)
}

func TestAConditionThatIsMetMarksAndOneThatIsNotIsClearAtNoLevelAlone(t *testing.T) {
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

func TestAnEffectOfACustomNodeResourceNamesItsQoSLevel(t *testing.T) {
	for effect, want := range map[string]bool{
		"reclaimed_cores/NoSchedule": true, "NoSchedule": false, "/NoSchedule": false, "a b/NoSchedule": false, "x/Evict": false, "x/NoExecute": false,
	} {
		c, refused := converting()
		assert.Equal(t, want, c.effect(&plugins.Verdict{CNR: true}, effect), effect)
		assert.Equal(t, want, len(refused) == 0, effect)
	}
}

func TestTheLongestGraceIsTaken(t *testing.T) {
	const day = 24 * 3600
	c, refused := converting()
	assert.EqualValues(t, day, c.grace(day))
	assert.Equal(t, snapshot.Some[int64](day), c.deletionGrace(&wire.DeletionOptions{GracePeriodSeconds: day}))
	assert.Empty(t, refused)
	assert.EqualValues(t, day, c.grace(day+1))
	assert.Equal(t, snapshot.Some[int64](day), c.deletionGrace(&wire.DeletionOptions{GracePeriodSeconds: day + 1}))
	assert.Equal(t, map[string]int{refusedNumber: 2}, refused)
}

func TestCallsAreCountedInTheBucketsThatTheyFit(t *testing.T) {
	c := counts{}
	for _, took := range []time.Duration{5 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second} {
		c.call("p", "ThresholdMet", "OK", took)
	}
	got := c.all(time.Now())["p"]
	assert.Equal(t, []uint64{1, 1, 1, 2, 2, 2}, got.Within)
	assert.InDelta(t, 10.305, got.Seconds, 1e-9)
}

func TestOfPluginsThatHaveGoneTheFirstToGoMakesRoom(t *testing.T) {
	now := time.Unix(1000, 0)
	c := counts{unregisteredAt: map[string]time.Time{"b": now.Add(1), "a": now, "c": now.Add(2)}}
	for range 20 { // in any order
		assert.Equal(t, "a", c.oldestUnregistered())
	}
	assert.Empty(t, (&counts{}).oldestUnregistered())
}

func TestATextIsClippedWhereItIsTooLong(t *testing.T) {
	longest := strings.Repeat("x", maxText)
	assert.Equal(t, longest, clip(longest))
	assert.Equal(t, longest, clip(longest+"x"))
	assert.Equal(t, "ab", clip("a\xffb"))
}
