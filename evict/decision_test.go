package evict

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

func at(second int) time.Time { return time.Unix(int64(second), 0).UTC() }

// levels are verdicts of one plugin about the node, and of another about disks.
func levels(second int, node plugins.Level, disks ...plugins.Level) *plugins.Levels {
	l := &plugins.Levels{Time: at(second), Verdicts: []plugins.Verdict{verdict("memory-stall", "node", node)}}
	for i, level := range disks {
		l.Verdicts = append(l.Verdicts, verdict("disk-await", fmt.Sprintf("sd%c", 'a'+i), level))
	}
	return l
}

func verdict(plugin, scope string, level plugins.Level) plugins.Verdict {
	return plugins.Verdict{Plugin: plugin, Scope: scope, Level: level, Since: at(3), Reason: "it is " + level.String()}
}

// said is a decision in a word.
func said(list []Decision) []string {
	words := []string{}
	for _, d := range list {
		words = append(words, fmt.Sprintf("%s %s %s: %s", d.Plugin, d.Scope, d.Level, d.Reason))
	}
	return words
}

func TestADecisionIsMadeWhenALevelChanges(t *testing.T) {
	const none, soft, hard = plugins.None, plugins.Soft, plugins.Hard
	for _, c := range []struct {
		name          string
		previous, now *plugins.Levels
		want          []string
	}{
		{"a rise", levels(1, none), levels(2, soft), []string{"memory-stall node soft: it is soft"}},
		{"a rise by two", levels(1, none), levels(2, hard), []string{"memory-stall node hard: it is hard"}},
		{"a fall by one", levels(1, hard), levels(2, soft), []string{"memory-stall node soft: it is soft"}},
		{"a fall to none", levels(1, hard), levels(2, none), []string{"memory-stall node none: it is none"}},
		{"nothing changed", levels(1, soft, hard), levels(2, soft, hard), []string{}},
		{"nothing is met", levels(1, none), levels(2, none), []string{}},
		{"the first round records what is met", nil, levels(2, none, soft, none), []string{"disk-await sda soft: it is soft"}},
		{
			"each scope is its own", levels(1, none, soft, none), levels(2, none, none, hard),
			[]string{"disk-await sda none: it is none", "disk-await sdb hard: it is hard"},
		},
		{"a scope that is new", levels(1, none), levels(2, none, soft), []string{"disk-await sda soft: it is soft"}},
		{"a plugin that was switched off", levels(1, none, hard), levels(2, none), []string{"disk-await sda none: " + SwitchedOff}},
		{"a plugin that was switched off while calm", levels(1, none, none), levels(2, none), []string{}},
		{"a device that is gone", levels(1, none, none, soft), levels(2, none, none), []string{"disk-await sdb none: " + Gone}},
		{"all plugins were switched off", levels(1, soft), &plugins.Levels{Time: at(2)}, []string{"memory-stall node none: " + SwitchedOff}},
		{"no plugin at all", &plugins.Levels{}, &plugins.Levels{}, []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, said(Decide(c.previous, c.now)))
		})
	}
}

func TestADecisionKeepsItsReasonsAndSparesEachCandidateForOne(t *testing.T) {
	v := verdict("memory-stall", "node", plugins.Hard)
	v.Observed, v.Operator, v.Threshold, v.Unit = probes.Some(0.4), ">=", probes.Some(0.25), "ratio"
	v.Candidates = []plugins.Candidate{{Cgroup: "/b", Relief: 2}, {Cgroup: "/a", Relief: 1}}
	got := Decide(nil, &plugins.Levels{Time: at(9), Verdicts: []plugins.Verdict{v}})
	want := []Decision{{
		Time: at(9), Plugin: "memory-stall", Scope: "node", Level: plugins.Hard, Since: at(3),
		Observed: probes.Some(0.4), Operator: ">=", Threshold: probes.Some(0.25), Unit: "ratio", Reason: "it is hard",
		Spared: []Spared{{v.Candidates[0], Standalone}, {v.Candidates[1], Standalone}},
	}}
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(probes.Opt[float64]{})))
}

func TestALevelThatEndedUnjudgedEndsNowAndNamesNobody(t *testing.T) {
	was := levels(1, plugins.Hard)
	was.Verdicts[0].Observed = probes.Some(0.4)
	was.Verdicts[0].Candidates = []plugins.Candidate{{Cgroup: "/a"}}
	got := Decide(was, &plugins.Levels{Time: at(9)})
	want := []Decision{{Time: at(9), Since: at(9), Plugin: "memory-stall", Scope: "node", Level: plugins.None, Reason: SwitchedOff}}
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(probes.Opt[float64]{})))
}

func TestTheLogKeepsTheNewestAndListsThemFirst(t *testing.T) {
	l := Log{Max: 3}
	assert.Equal(t, []Decision{}, l.List())
	scopes := func() (s string) {
		for _, d := range l.List() {
			s += d.Scope
		}
		return s
	}
	l.Add(Decision{Scope: "a"}, Decision{Scope: "b"})
	assert.Equal(t, "ba", scopes())
	l.Add(Decision{Scope: "c"})
	l.Add()
	assert.Equal(t, "cba", scopes())
	l.Add(Decision{Scope: "d"})
	assert.Equal(t, "dcb", scopes())
	l.Add(Decision{Scope: "e"}, Decision{Scope: "f"})
	assert.Equal(t, "fed", scopes())
	l.Add(Decision{Scope: "1"}, Decision{Scope: "2"}, Decision{Scope: "3"}, Decision{Scope: "4"})
	assert.Equal(t, "432", scopes(), "more at once than it keeps")
}

func TestAListThatWasGivenIsTheReadersOwn(t *testing.T) {
	l := Log{Max: 2}
	l.Add(Decision{Scope: "a"}, Decision{Scope: "b"})
	given := l.List()
	l.Add(Decision{Scope: "c"})
	assert.Equal(t, "b", given[0].Scope)
	given[0].Scope = "x"
	assert.Equal(t, "b", l.List()[1].Scope)
}

func TestTheLogIsListedWhileDecisionsAreAdded(t *testing.T) {
	l := Log{Max: 10}
	const added = 1000
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for newest := -1; newest < added-1; {
				list := l.List()
				if len(list) == 0 {
					continue
				}
				first := int(list[0].Time.Unix())
				if first < newest || len(list) > l.Max {
					t.Errorf("%d of %d decisions, newest %d after %d", len(list), l.Max, first, newest)
					return
				}
				newest = first
			}
		})
	}
	for i := range added {
		l.Add(Decision{Time: at(i)})
	}
	readers.Wait()
	require.Len(t, l.List(), l.Max)
}
