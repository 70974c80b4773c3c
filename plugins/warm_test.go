package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSkipWarmUpUnlessJustBooted(t *testing.T) {
	short := func(booted time.Duration) *node {
		n := newNode(t)
		n.set.SkipWarmUp()
		n.at, n.available = booted, 5*gib
		return n
	}
	n := short(time.Hour)
	assert.LessOrEqual(t, n.until(Soft, 40, 0.2, 500), 31)

	n = short(time.Second)
	for range 290 {
		require.Equal(t, None, n.second(0.2, 500).Level)
	}
	n.seconds(15, 0.2, 500)
	assert.Equal(t, Soft, n.levels.Verdicts[0].Level)
}

// A window may be a little short, for an agent that has just started too: a replay, in
// which the rules go on over a restart, says the same.
func TestFirstWindowAfterStart(t *testing.T) {
	hardAfter := func(n *node) (ticks int) {
		n.available = gib
		for ticks = 1; n.second(0.9, 500).Level != Hard; ticks++ {
			require.Less(t, ticks, 30)
			n.at -= time.Millisecond // of the next tick
		}
		return ticks
	}
	goesOn := newNode(t)
	goesOn.set.SkipWarmUp()
	goesOn.seconds(60, 0, 0)
	goesOn.history.Break("the agent was restarted")
	starts := newNode(t)
	starts.set.SkipWarmUp()
	assert.Equal(t, hardAfter(goesOn), hardAfter(starts))
}

func TestLevelsRose(t *testing.T) {
	of := func(list ...Verdict) *Levels { return &Levels{Verdicts: list} }
	a, b := Verdict{Plugin: "p", Scope: "a"}, Verdict{Plugin: "p", Scope: "b", Level: Soft}
	hard := b
	hard.Level = Hard
	c := Verdict{Plugin: "p", Scope: "b"}
	assert.False(t, of(a, b).Rose(of(a, b), Soft))
	assert.True(t, of(a, hard).Rose(of(a, b), Soft))
	assert.True(t, of(a, hard).Rose(of(a, b), Hard))
	assert.True(t, of(a, b).Rose(of(a, c), Soft))
	assert.False(t, of(a, b).Rose(of(a, c), Hard))
	assert.False(t, of(a, b).Rose(of(a, hard), Soft))
	assert.False(t, of(a, b).Rose(of(a), Soft), "what was not judged before did not rise")
}
