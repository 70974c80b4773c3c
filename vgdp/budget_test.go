package vgdp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// live lets a budget live for so many seconds under one level, and gives what it
// is then.
func live(b Budget, from, seconds int, level plugins.Level, running int) Budget {
	for s := range seconds {
		b = b.Next(NodePressure{Time: at(time.Duration(from+s) * time.Second), Level: level, Why: "disk", Configured: 4, Running: running})
	}
	return b
}

func TestBudgetShrinksAndGrows(t *testing.T) {
	var b Budget
	assert.Nil(t, b.Pressure(noon), "nothing is told of a node that suffers nothing")
	b = live(b, 0, 1, plugins.Soft, 3)
	assert.Equal(t, 3, b.Limit, "no more than run")
	assert.Equal(t, at(10*time.Second), b.HoldUntil)
	assert.Equal(t, 3, live(b, 1, 29, plugins.Soft, 3).Limit)
	b = live(b, 1, 30, plugins.Soft, 3)
	assert.Equal(t, 2, b.Limit)
	b = live(b, 31, 1, plugins.Hard, 3)
	assert.Equal(t, 1, b.Limit, "half")
	b = live(b, 32, 100, plugins.Hard, 3)
	assert.Equal(t, MinBudget, b.Limit, "backups stay alive")
	assert.Equal(t, "disk", b.Pressure(at(132*time.Second)).Why)

	b = live(b, 132, 1, plugins.None, 1)
	assert.Equal(t, 1, live(b, 133, 59, plugins.None, 1).Limit)
	b = live(b, 133, 60, plugins.None, 1)
	assert.Equal(t, 2, b.Limit)
	flaps := live(b, 193, 1, plugins.Soft, 2)
	assert.Equal(t, 2, live(live(flaps, 194, 1, plugins.None, 2), 195, 59, plugins.None, 2).Limit, "the clear time starts anew")
	b = live(b, 193, 120, plugins.None, 1)
	assert.Zero(t, b.Limit, "as many as are configured")
	assert.Empty(t, b.Why)
}

func TestBudgetHoldGrows(t *testing.T) {
	var b Budget
	var holds []time.Duration
	until := time.Time{}
	now := 0
	for ; len(holds) < 15; now++ {
		if b = live(b, now, 1, plugins.Soft, 2); b.HoldUntil != until {
			holds, until = append(holds, b.HoldUntil.Sub(at(time.Duration(now)*time.Second))), b.HoldUntil
		}
	}
	assert.Equal(t, 10*time.Second, holds[0])
	assert.Equal(t, 20*time.Second, holds[1])
	assert.Equal(t, MaxStartHold, holds[11])
	assert.Equal(t, MaxStartHold, holds[14])
	b = live(b, now, 1, plugins.None, 0)
	assert.Equal(t, MaxStartHold, live(b, now+1, 299, plugins.None, 0).Hold)
	assert.Equal(t, MaxStartHold-HoldStep, live(b, now+1, 300, plugins.None, 0).Hold)
	assert.Zero(t, live(b, now+1, 3600, plugins.None, 0).Hold)
}

// Where nothing runs one may start when the hold is over, however long the
// pressure lasts.
func TestBudgetUnderEndlessPressure(t *testing.T) {
	b := live(Budget{}, 0, 10, plugins.Hard, 0)
	assert.Equal(t, at(10*time.Second), b.Pressure(at(9*time.Second)).HoldUntil)
	b = live(b, 10, 5, plugins.Hard, 0)
	p := b.Pressure(at(15 * time.Second))
	assert.True(t, p.HoldUntil.IsZero())
	assert.Equal(t, MinBudget, *p.Budget)
	b = live(b, 15, 1, plugins.Hard, 1)
	assert.Equal(t, at(35*time.Second), b.HoldUntil, "one has started: the next waits")
}

func TestBudgetUnknownPressure(t *testing.T) {
	b := live(Budget{}, 0, 1, plugins.Hard, 2)
	blind := b
	for s := range 600 {
		blind = blind.Next(NodePressure{Time: at(time.Duration(s+1) * time.Second), Absent: "no PSI", Configured: 4})
	}
	assert.Equal(t, b.Limit, blind.Limit)
	blind = live(blind, 601, 1, plugins.None, 0)
	assert.Equal(t, b.Limit, live(blind, 602, 59, plugins.None, 0).Limit, "only from now on it is known to be calm")
	assert.Equal(t, b.Limit+1, live(blind, 602, 60, plugins.None, 0).Limit)
}

func TestNodePressureIgnoresPerWorkload(t *testing.T) {
	calm := plugins.Verdict{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node"}
	hard := plugins.Verdict{Plugin: "oom-storm", Resource: plugins.Memory, Scope: "node", Level: plugins.Hard, PerWorkload: true}
	l := &plugins.Levels{Verdicts: []plugins.Verdict{calm, hard}}
	assert.Equal(t, plugins.None, NewNodePressure(l).Level)
	hard.PerWorkload = false
	l = &plugins.Levels{Verdicts: []plugins.Verdict{calm, hard}}
	assert.Equal(t, plugins.Hard, NewNodePressure(l).Level)
}

func TestNodePressureHighestLevel(t *testing.T) {
	v := func(r plugins.Resource, l plugins.Level, absent string) plugins.Verdict {
		return plugins.Verdict{Resource: r, Level: l, Scope: "nvme0n1", Reason: "await 40ms", Absent: absent}
	}
	s := NewNodePressure(&plugins.Levels{Time: noon, Verdicts: []plugins.Verdict{
		v(plugins.CPU, plugins.Hard, ""), v(plugins.Filesystem, plugins.Hard, ""), v(plugins.Disk, plugins.Soft, ""), v(plugins.Memory, plugins.None, "no PSI"),
	}})
	assert.Equal(t, NodePressure{Time: noon, Level: plugins.Soft, Why: "disk soft on nvme0n1: await 40ms"}, s)
	s = NewNodePressure(&plugins.Levels{Verdicts: []plugins.Verdict{v(plugins.Memory, plugins.None, "no PSI")}})
	assert.Equal(t, "no PSI", s.Absent)
	assert.NotEmpty(t, NewNodePressure(&plugins.Levels{}).Absent)
}

// surviving is what holds of a budget whatever happens.
func surviving(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 4))
	var b Budget
	now, calm := noon, noon
	level := plugins.None
	configured := 1 + r.IntN(5)
	for range 400 {
		if r.IntN(10) == 0 {
			level = plugins.Level(r.IntN(3))
		}
		now = now.Add(time.Duration(1+r.IntN(20)) * time.Second)
		if level > plugins.None {
			calm = now
		}
		before := b
		b = b.Next(NodePressure{Time: now, Level: level, Configured: configured, Running: r.IntN(configured + 1), Why: "w"})
		switch {
		case b.Limit < 0 || b.Limit > configured:
			return errorf("%d places of %d", b.Limit, configured)
		case b.HoldUntil.Sub(now) > MaxStartHold || b.Hold < 0:
			return errorf("held until %v at %v", b.HoldUntil, now)
		case level > plugins.None && b.Limit == 0:
			return errorf("no budget under pressure")
		case level > plugins.None && before.Limit > 0 && b.Limit > before.Limit:
			return errorf("grew under pressure from %d to %d", before.Limit, b.Limit)
		case now.Sub(calm) > time.Duration(configured+2)*GrowInterval && b.Limit != 0:
			return errorf("still %d after %v of calm", b.Limit, now.Sub(calm))
		}
	}
	return nil
}

func TestBudgetRandom(t *testing.T) {
	for seed := range uint64(500) {
		require.NoError(t, surviving(seed), "seed %d", seed)
	}
}

func FuzzBudget(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { require.NoError(t, surviving(seed)) })
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }
