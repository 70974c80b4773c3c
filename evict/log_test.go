package evict

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// caused is a decision with one cause.
func caused(id string, code Code, level plugins.Level) Decision {
	return Decision{ID: id, Code: code, Causes: []Cause{{Plugin: "memory-stall", Scope: "node", Level: level}}}
}

// ids of the decisions in a log.
func ids(l *Log) string {
	all := ""
	for _, d := range l.List() {
		all += d.ID
	}
	return all
}

func TestLog(t *testing.T) {
	t.Run("keeps news", logKeepsNews)
	t.Run("repeats after calm", logRepeatsAfterCalm)
	t.Run("newest first", logNewestFirst)
	t.Run("update", logUpdate)
	t.Run("list is a copy", logListIsACopy)
	t.Run("candidates bounded", logCandidatesBounded)
	t.Run("survives restart", logSurvivesRestart)
	t.Run("dry run beside real", logDryRunBesideReal)
	t.Run("requests have half", logRequestsHaveHalf)
	t.Run("unknown outcome is one", logUnknownOutcomeIsOne)
}

// A request that is repeated while its outcome is unknown, as while the controller is away, is
// one decision, which pushes none out.
func logUnknownOutcomeIsOne(t *testing.T) {
	asks := func(id, uid string, o Outcome, text string) Decision {
		d := caused(id, Code(o), plugins.Hard)
		d.Candidates = []Considered{{Pod: &pods.Pod{UID: uid}, Answers: []Answer{{Outcome: o, Text: text}}}}
		return d
	}
	l := &Log{Max: 4}
	require.True(t, l.Add(asks("a", "x", Evicted, "")))
	require.True(t, l.Add(asks("b", "y", UnknownOutcome, "for 4s")))
	for range 100 {
		require.False(t, l.Add(asks("c", "y", UnknownOutcome, "for 9s")))
	}
	require.Equal(t, "ba", ids(l))
	assert.Equal(t, "for 9s", l.List()[0].Candidates[0].Answers[0].Text, "the last answer")
	d, changed := l.Update("c", func(d *Decision) { d.TerminatedAt = at(9) })
	assert.True(t, changed, "the last request's outcome becomes known")
	assert.Equal(t, "b", d.ID)
	require.True(t, l.Add(asks("d", "z", UnknownOutcome, "")), "of another pod")
	require.True(t, l.Add(asks("e", "z", Evicted, "")))
	assert.Equal(t, "edba", ids(l))
}

func logKeepsNews(t *testing.T) {
	going := func(uid string) func(*Decision) {
		return func(d *Decision) {
			d.Candidates = []Considered{{Code: CodeWouldEvict, Pod: &pods.Pod{UID: uid}}}
		}
	}
	asked := func(d *Decision) { d.Candidates = []Considered{{Answers: []Answer{{Outcome: Blocked}}}} }
	spared := func(d *Decision) { d.Candidates, d.Reason = []Considered{{Code: CodePDB}}, "other words" }
	cause := func(c Cause) func(*Decision) { return func(d *Decision) { d.Causes[0] = c } }
	for what, row := range map[string]struct {
		before, now func(*Decision)
		kept        bool
	}{
		"the same again":              {func(*Decision) {}, func(*Decision) {}, false},
		"other words, others spared":  {func(*Decision) {}, spared, false},
		"somebody was asked":          {func(*Decision) {}, asked, true},
		"somebody was asked again":    {asked, asked, true},
		"another outcome":             {func(*Decision) {}, func(d *Decision) { d.Code = CodeLatched }, true},
		"another level":               {func(*Decision) {}, func(d *Decision) { d.Causes[0].Level = plugins.Soft }, true},
		"another plugin":              {func(*Decision) {}, cause(Cause{Plugin: "x", Scope: "node", Level: plugins.Hard}), true},
		"another scope":               {func(*Decision) {}, cause(Cause{Plugin: "memory-stall", Scope: "x", Level: plugins.Hard}), true},
		"other numbers":               {func(*Decision) {}, cause(Cause{Plugin: "memory-stall", Scope: "node", Level: plugins.Hard, Reason: "x", Since: at(1)}), false},
		"one cause more":              {func(*Decision) {}, func(d *Decision) { d.Causes = append(d.Causes, Cause{}) }, true},
		"somebody goes":               {func(*Decision) {}, going("a"), true},
		"another one goes":            {going("a"), going("b"), true},
		"the same one goes":           {going("a"), going("a"), false},
		"nothing is met, nor was":     {func(*Decision) {}, func(d *Decision) { d.Causes = nil }, false},
		"nothing is met, all changed": {func(*Decision) {}, func(d *Decision) { d.Causes = nil; asked(d); d.Code = CodeEnded }, false},
	} {
		t.Run(what, func(t *testing.T) {
			l := Log{Max: 9}
			before, now := caused("1", CodeSoft, plugins.Hard), caused("2", CodeSoft, plugins.Hard)
			row.before(&before)
			row.now(&now)
			require.True(t, l.Add(before))
			assert.Equal(t, row.kept, l.Add(now))
			want := "1"
			if row.kept {
				want = "21"
			}
			assert.Equal(t, want, ids(&l))
		})
	}
}

func logRepeatsAfterCalm(t *testing.T) {
	l := Log{Max: 9}
	require.True(t, l.Add(caused("1", CodeSoft, plugins.Soft)))
	require.False(t, l.Add(Decision{ID: "2", Code: CodeEnded}))
	require.True(t, l.Add(caused("3", CodeSoft, plugins.Soft)))
	assert.Equal(t, "31", ids(&l))
}

func logNewestFirst(t *testing.T) {
	l := Log{Max: 3}
	assert.Equal(t, []Decision{}, l.List())
	levels := []plugins.Level{plugins.Soft, plugins.Hard}
	for i, want := range []string{"0", "10", "210", "321", "432", "543"} {
		require.True(t, l.Add(caused(fmt.Sprint(i), CodeSoft, levels[i%2])))
		assert.Equal(t, want, ids(&l))
	}
}

func logUpdate(t *testing.T) {
	l := Log{Max: 2}
	for i, level := range []plugins.Level{plugins.Soft, plugins.Hard, plugins.Soft} {
		l.Add(caused(fmt.Sprint(i), CodeSoft, level))
	}
	given := l.List()
	for _, id := range []string{"0", "1"} {
		l.Update(id, func(d *Decision) { d.TerminatedAt = at(5) })
	}
	assert.Equal(t, "21", ids(&l))
	assert.Zero(t, l.List()[0].TerminatedAt)
	assert.Equal(t, at(5), l.List()[1].TerminatedAt)
	assert.Zero(t, given[1].TerminatedAt, "what was given before is as it was")
}

func logListIsACopy(t *testing.T) {
	l := Log{Max: 2}
	mine := caused("1", CodeEvicted, plugins.Hard)
	mine.Candidates, mine.After = []Considered{{Code: CodeEvicted, Pod: &pods.Pod{}}}, []Cause{{Scope: "after"}}
	l.Add(mine)
	given := l.List()[0]
	given.ID, given.Causes[0].Scope, given.Candidates[0].Code, given.After[0].Scope = "x", "x", "x", "x"
	again := l.List()[0]
	assert.Equal(t, "1", again.ID)
	assert.Equal(t, "node", again.Causes[0].Scope)
	assert.Equal(t, CodeEvicted, again.Candidates[0].Code)
	assert.Equal(t, "after", again.After[0].Scope)
}

func logCandidatesBounded(t *testing.T) {
	d := caused("1", CodeEvicted, plugins.Hard)
	for i := range 100 {
		d.Candidates = append(d.Candidates, Considered{Code: CodeTooSmall, Reason: fmt.Sprint(i)})
	}
	d.Candidates[50].Code, d.Candidates[50].Answers = CodePDB, []Answer{{Outcome: Blocked}}
	d.Candidates[99].Code, d.Candidates[99].Answers, d.Candidates[99].Pod = CodeEvicted, []Answer{{Outcome: Evicted}}, &pods.Pod{UID: "z"}
	l := Log{Max: 1}
	l.Add(d)
	kept := l.List()[0]
	require.Len(t, kept.Candidates, 32)
	assert.Equal(t, 68, kept.Omitted)
	assert.Equal(t, "29", kept.Candidates[29].Reason)
	assert.Equal(t, CodePDB, kept.Candidates[30].Code)
	going, some := kept.FirstEvicted()
	require.True(t, some)
	assert.Equal(t, "z", going.Pod.UID)
	assert.Len(t, d.Candidates, 100, "the round's own copy keeps all of them")
	assert.Zero(t, d.Omitted)

	few := caused("2", CodeSoft, plugins.Soft)
	few.Candidates = make([]Considered, 30)
	l.Add(few)
	assert.Len(t, l.List()[0].Candidates, 30)
	assert.Zero(t, l.List()[0].Omitted)
}

func logSurvivesRestart(t *testing.T) {
	before := Log{Max: 3}
	levels := []plugins.Level{plugins.Soft, plugins.Hard}
	for i := range 2 {
		require.True(t, before.Add(caused(fmt.Sprint(i), CodeSoft, levels[i])))
	}
	gone, changed := before.Update("0", func(d *Decision) { d.TerminatedAt = at(9) })
	require.True(t, changed)
	_, changed = before.Update("0", func(d *Decision) { d.TerminatedAt = at(9) })
	require.False(t, changed, "nothing new is said")
	_, changed = before.Update("none", func(*Decision) {})
	require.False(t, changed)

	after := Log{Max: 3}
	after.Restore([]Decision{caused("0", CodeSoft, plugins.Soft), caused("1", CodeSoft, plugins.Hard), gone})
	assert.Equal(t, before.List(), after.List(), "in its order, and as it became")
	after.Restore([]Decision{caused("2", CodeSoft, plugins.Soft), caused("3", CodeSoft, plugins.Soft)})
	assert.Len(t, after.List(), 3)
	assert.Equal(t, "3", after.List()[0].ID)
}

func logDryRunBesideReal(t *testing.T) {
	l := Log{Max: 10}
	counts, dry := caused("1", CodeSoft, plugins.Soft), caused("1-dry", CodeSoft, plugins.Soft)
	dry.DryRun = true
	assert.True(t, l.Add(counts))
	assert.True(t, l.Add(dry))
	for range 3 {
		assert.False(t, l.Add(counts))
		assert.False(t, l.Add(dry))
	}
}

// A plugin may report another scope, or level, in each round.
func logRequestsHaveHalf(t *testing.T) {
	scopes := func(l *Log, n int) {
		for i := range n {
			d := caused("s", CodeSoft, plugins.Soft)
			d.Causes[0].Plugin, d.Causes[0].Scope = "outer", fmt.Sprint(i)
			require.True(t, l.Add(d))
		}
	}
	request := func(id string) Decision {
		d := caused(id, CodeEvicted, plugins.Hard)
		d.Candidates = []Considered{{Code: CodeEvicted, Pod: &pods.Pod{UID: id}, Answers: []Answer{{Outcome: Evicted}}}}
		return d
	}
	l := Log{Max: 5}
	require.True(t, l.Add(request("1")))
	scopes(&l, 300)
	assert.Equal(t, "ssss1", ids(&l))
	dry := request("d")
	dry.DryRun = true
	for range 9 {
		l.Add(dry)
	}
	assert.Equal(t, "dddd1", ids(&l), "nor does one in a dry run push it out")
	for i := range 8 {
		l.Add(request(fmt.Sprint(i + 2)))
	}
	assert.Equal(t, "987dd", ids(&l))
	scopes(&l, 2)
	assert.Equal(t, "ss98d", ids(&l))
	l = Log{Max: 2}
	soft := func(id string) Decision { return caused(id, CodeSoft, plugins.Soft) }
	l.Restore([]Decision{soft("a"), request("8"), request("9"), soft("b"), soft("c")})
	assert.Equal(t, "c9", ids(&l))
	for n := range 2 {
		l = Log{Max: n + 1}
		for i := range 4 {
			l.Add(request(fmt.Sprint(i)))
			assert.Equal(t, fmt.Sprint(i), l.List()[0].ID, "the newest stays")
			scopes(&l, 1)
			assert.Equal(t, "s", l.List()[0].ID)
		}
	}
}
