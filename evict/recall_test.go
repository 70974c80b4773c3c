package evict

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// forcing is a plugin's answer that forces these pods.
func forcing(uids ...string) plugins.Verdict {
	v := plugins.Verdict{Plugin: "p", Scope: plugins.ScopeNamed}
	for _, uid := range uids {
		v.Level, v.Pressing, v.Named = plugins.Hard, plugins.Hard, true
		v.Candidates = append(v.Candidates, plugins.Candidate{PodUID: uid, Name: "ns/" + uid, Why: "must go", Forced: true, GraceSeconds: probes.Some[int64](7)})
	}
	return v
}

func says(level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Plugin: "p", Scope: "s", Level: level, Pressing: level}
}

// rounds tells after each round which pods are forced; a round is 5 s after the
// one before.
type rounds struct {
	now    time.Time
	memory Memory
	there  []string
}

func (r *rounds) next(verdicts ...plugins.Verdict) []string {
	r.now = r.now.Add(5 * time.Second)
	in := Input{Time: r.now, Levels: &plugins.Levels{Time: r.now, Verdicts: verdicts}, Memory: r.memory, Cluster: &Cluster{Pods: pods.List{Synced: true}}}
	for _, uid := range r.there {
		in.Cluster.Pods.Pods = append(in.Cluster.Pods.Pods, pods.Pod{UID: uid, Name: uid})
	}
	levels, m := Recall(in)
	r.memory = m
	names := []string{}
	for _, v := range levels.Verdicts {
		for _, c := range v.Candidates {
			if c.Forced {
				names = append(names, c.PodUID)
			}
		}
	}
	return names
}

func newRounds(there ...string) *rounds {
	return &rounds{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), there: there}
}

func TestAPodThatIsForcedOnceStaysAskedForUntilItIsGoneOrTooOld(t *testing.T) {
	r := newRounds("a", "b")
	assert.Equal(t, []string{"a", "b"}, r.next(forcing("a", "b")))
	assert.Equal(t, []string{"a", "b"}, r.next(forcing()), "some plugins say it once only")
	r.there = []string{"b"}
	assert.Equal(t, []string{"b"}, r.next(forcing()))
	assert.Equal(t, []string{"b"}, r.next(), "the plugin has gone")
	r.now = r.now.Add(forcedFor)
	assert.Empty(t, r.next())
	assert.Empty(t, r.memory.Forced)
}

func TestAPodThatIsRecalledIsAskedForAsItWas(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	in := Input{Time: r.now, Levels: &plugins.Levels{Verdicts: []plugins.Verdict{forcing()}}, Memory: r.memory}
	levels, _ := Recall(in)
	v := levels.Verdicts[0]
	assert.Equal(t, forcing("a").Candidates, v.Candidates)
	assert.Equal(t, plugins.Hard, v.Level)
	assert.True(t, v.Named)
	assert.Contains(t, v.Reason, "the plugin forced the eviction of ns/a at")
	assert.Empty(t, in.Levels.Verdicts[0].Candidates, "what came in is not changed")
}

func TestWhoRepeatsItselfTakesBackWhatItLeavesOut(t *testing.T) {
	r := newRounds("a", "b")
	r.next(forcing("a", "b"))
	r.next(forcing("a", "b"))
	assert.Equal(t, []string{"b"}, r.next(forcing("b")))
	assert.Empty(t, r.next(forcing()))
	assert.Empty(t, r.memory.Forced)
}

func TestWhatIsForcedUnderPressureEndsWithThePressure(t *testing.T) {
	all := []string{"1", "2", "3", "4", "5", "6", "7"}
	r := newRounds(all...)
	assert.Equal(t, all, r.next(forcing(all...), says(plugins.Soft)))
	r.there = all[3:] // as many as a round allows
	assert.Equal(t, all[3:], r.next(forcing(), says(plugins.Soft)), "the pressure stays")
	assert.Empty(t, r.next(forcing(), says(plugins.None)), "it has gone: none more")
}

func TestASilentPluginTakesNothingBack(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"), says(plugins.Hard))
	silent := forcing()
	silent.Absent = "it did not answer"
	assert.Equal(t, []string{"a"}, r.next(silent, says(plugins.None)))
	assert.Empty(t, r.next(forcing(), says(plugins.None)))
}

func TestARefusedPodIsNotForced(t *testing.T) {
	r := newRounds("a")
	v := forcing("a")
	v.Candidates[0].Refused = "this pod was not in the request to the plugin"
	r.next(v)
	assert.Empty(t, r.memory.Forced)
}

func TestAnotherPluginsWordTakesNothingBack(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	r.next(forcing("a"))
	other := forcing()
	other.Plugin = "q"
	assert.Equal(t, []string{"a"}, r.next(other))
}

func TestWhatIsForcedOutlivesTheAgentAndChangesTheMemoryOnceAMinute(t *testing.T) {
	r := newRounds("a")
	changes := 0
	for range 60 { // 5 min
		before := fmt.Sprint(r.memory.Forced)
		r.next(forcing("a"))
		if fmt.Sprint(r.memory.Forced) != before {
			changes++
		}
	}
	assert.LessOrEqual(t, changes, 7, "each is a write to the disk")
	assert.Equal(t, []string{"a"}, newAgent(t, r).next(forcing()))
}

// newAgent goes on with what the one before kept.
func newAgent(t *testing.T, r *rounds) *rounds {
	t.Helper()
	next := *r
	next.memory = restarted(t, r.memory)
	next.memory.Forced[0].Again = false
	return &next
}

func TestAClockThatWasSetBackKeepsNothingForEver(t *testing.T) {
	r := newRounds("a")
	r.next(forcing("a"))
	r.now = r.now.Add(-24 * time.Hour)
	assert.Empty(t, r.next(forcing()))
}
