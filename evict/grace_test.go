package evict

import (
	"math/rand/v2"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

var graceStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// word is what a plugin said in one round, or that it said nothing.
type word struct {
	at     int // seconds
	scope  string
	level  plugins.Level
	missed bool
}

func (w word) verdict(grace time.Duration) plugins.Verdict {
	return plugins.Verdict{Plugin: "p", Scope: w.scope, Level: w.level, GraceSeconds: int64(grace / time.Second)}
}

// due is when the grace is over after the last of these words; zero: nothing
// is met.
func due(words []word, grace time.Duration) time.Time {
	var g GraceTimers
	var last time.Time
	for _, w := range words {
		if w.missed {
			g = g.MissedAnswer("p")
			continue
		}
		g, last = g.Observe(w.verdict(grace), graceStart.Add(time.Duration(w.at)*time.Second))
	}
	return last
}

func TestGraceRestartsWhenNotMet(t *testing.T) {
	const grace = 30 * time.Second
	at := func(s int) time.Time { return graceStart.Add(time.Duration(s) * time.Second) }
	met, not := plugins.Hard, plugins.None
	story := []word{{at: 0, scope: "s", level: met}, {at: 10, scope: "s", level: not}, {at: 20, scope: "s", level: met}}
	assert.Equal(t, at(50), due(story, grace))
	for s := 25; s < 60; s += 5 {
		story = append(story, word{at: s, scope: "s", level: met})
		assert.Equal(t, at(50), due(story, grace))
	}
	for name, c := range map[string]struct {
		words []word
		want  time.Time
	}{
		"one call that failed changes nothing": {[]word{{at: 0, scope: "s", level: met}, {missed: true}, {at: 20, scope: "s", level: met}}, at(30)},
		"two begin anew":                       {[]word{{at: 0, scope: "s", level: met}, {missed: true}, {missed: true}, {at: 20, scope: "s", level: met}}, at(50)},
		"nor do single ones add up": {
			[]word{{at: 0, scope: "s", level: met}, {missed: true}, {at: 5, scope: "s", level: met}, {missed: true}, {at: 20, scope: "s", level: met}},
			at(30),
		},
		"another scope does not start it again": {[]word{{at: 0, scope: "s", level: met}, {at: 20, scope: "other", level: met}}, at(30)},
		"soft that turns hard has waited":       {[]word{{at: 0, scope: "s", level: plugins.Soft}, {at: 20, scope: "s", level: met}}, at(30)},
		"a clock that was set back":             {[]word{{at: 1000, scope: "s", level: met}, {at: 20, scope: "s", level: met}}, at(50)},
		"not met is not due":                    {[]word{{at: 0, scope: "s", level: met}, {at: 5, scope: "s", level: not}}, time.Time{}},
	} {
		assert.Equal(t, c.want, due(c.words, grace), name)
	}
}

func TestGracePerPlugin(t *testing.T) {
	var g GraceTimers
	g, _ = g.Observe(plugins.Verdict{Plugin: "p", Scope: "s", Level: plugins.Hard}, graceStart)
	g, _ = g.Observe(plugins.Verdict{Plugin: "q", Scope: "s", Level: plugins.None}, graceStart)
	g = g.MissedAnswer("q").MissedAnswer("q")
	_, due := g.Observe(plugins.Verdict{Plugin: "p", Scope: "s", Level: plugins.Hard, GraceSeconds: 60}, graceStart.Add(time.Hour))
	assert.Equal(t, graceStart.Add(time.Minute), due)
}

// Only the process that reported the threshold just before goes on where it was.
func TestGraceOfRegistered(t *testing.T) {
	met := plugins.Verdict{Plugin: "p", Scope: "s", Level: plugins.Hard, GraceSeconds: 60, Process: "first"}
	var g GraceTimers
	g, _ = g.Observe(met, graceStart)
	g, _ = g.Observe(met, graceStart.Add(20*time.Second))
	for what, row := range map[string]struct {
		process string
		after   time.Duration // since the start
		goesOn  bool
	}{
		"connected anew":           {"first", 20*time.Second + reconnectTime - 1, true},
		"away for longer":          {"first", 20*time.Second + reconnectTime, false},
		"another process":          {"second", 21 * time.Second, false},
		"the clock was set back":   {"first", -time.Hour, false},
		"it had missed one answer": {"first", 25 * time.Second, true},
	} {
		now, before := graceStart.Add(row.after), g
		if what == "it had missed one answer" {
			before = before.MissedAnswer("p")
		}
		_, due := before.Registered("p", row.process, now).Observe(met, now)
		want := now
		if row.goesOn {
			want = graceStart
		}
		assert.Equal(t, want.Add(time.Minute), due, what)
	}
	assert.Len(t, g, 1, "what was given is not changed")
	assert.Len(t, g.Registered("q", "other", graceStart.Add(20*time.Second+timerTTL-1)), 1)
	assert.Empty(t, g.Registered("q", "other", graceStart.Add(20*time.Second+timerTTL)), "one that is gone is forgotten")
}

// slowDue looks back through all words for the first of those that were met
// without a break: a word that is not met, or two that are missing, are one.
func slowDue(words []word, grace time.Duration) time.Time {
	last := -1
	for i, w := range words {
		if !w.missed {
			last = i
		}
	}
	if last < 0 || words[last].level == plugins.None {
		return time.Time{}
	}
	since, gap := words[last].at, 0
	for i := last - 1; i >= 0; i-- {
		w := words[i]
		if w.missed {
			if gap++; gap == 2 {
				break
			}
			continue
		}
		if w.level == plugins.None {
			break
		}
		since, gap = w.at, 0
	}
	return graceStart.Add(time.Duration(since)*time.Second + grace)
}

func TestGraceModel(t *testing.T) {
	require.NoError(t, quick.Check(func(seed uint64, length uint8) bool {
		r := rand.New(rand.NewPCG(seed, 1))
		var words []word
		for i := range int(length % 40) {
			words = append(words, word{
				at: 5 * i, scope: []string{"a", "a", "a", "b"}[r.IntN(4)],
				level: plugins.Level(min(2, r.IntN(6))), missed: r.IntN(4) == 0,
			})
		}
		return assert.Equal(t, slowDue(words, time.Minute), due(words, time.Minute), "%+v", words)
	}, &quick.Config{MaxCount: 5000}))
}
