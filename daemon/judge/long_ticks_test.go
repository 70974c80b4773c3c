package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const longTick = 5 * time.Second

// TestLongTicks plays of each labelled recording (each eighth in short) what an agent with a tick of five seconds
// would have sampled, and what a PSI trigger of the host would have woken: a simulation,
// with the tick at each second of the five. A hard level comes little later, no level is
// false, and of the samples, of nodes that are busy or in trouble, a third and more is left out.
func TestLongTicks(t *testing.T) {
	c := defaults(t)
	c.Tick = longTick
	longTicks(t, c, 3500*time.Millisecond) // docs/reading.md says 3 s; samples are not exactly a second apart
	c.Triggers.Stall = 50 * time.Millisecond
	longTicks(t, c, 2*time.Second)
}

// longTicks: of a resource on whose stalls a trigger fires, a hard level comes at most so much
// later. A filesystem that is full stalls nobody: a tick later at most.
func longTicks(t *testing.T, c *config.Agent, laterAtMost time.Duration) {
	t.Helper()
	list := tuned(t)
	hardLevels := func(e entry) int {
		return count(slices.ContainsFunc(e.label.Want, func(w judgement.Want) bool { return w.Level == plugins.Hard && !w.AtMost }))
	}
	slices.SortStableFunc(list, func(a, b entry) int { return hardLevels(b) - hardLevels(a) }) // so that each eighth has some
	require.Empty(t, c.Validate())
	var later []time.Duration
	kept, all := 0, 0
	for i := 0; i < len(list); i += live.Times(8, 1) {
		e := list[i]
		what := recordingOf(t, e)
		usual := hardFrom(c, e.label, what.samples, time.Second)
		for phase := range longTick / time.Second {
			some := sampledWith(c, what.samples, phase*time.Second)
			kept, all = kept+len(some), all+len(what.samples)
			hard := hardFrom(c, e.label, some, longTick)
			for alarm, from := range usual {
				at, met := hard[alarm]
				assert.True(t, met, "%s: %s is not seen at all", e.label.Name, alarm)
				delay := time.Duration((at - from) * float64(time.Second))
				later = append(later, delay)
				most := laterAtMost
				if alarm.Resource == plugins.Filesystem {
					most = longTick
				}
				assert.LessOrEqual(t, delay, most, "%s: %s, the tick at %d s", e.label.Name, alarm, phase)
			}
			for alarm, at := range hard {
				assert.Contains(t, usual, alarm, "%s: false at %.0f s", e.label.Name, at)
			}
		}
	}
	require.NotEmpty(t, later)
	assert.Less(t, kept, all*2/3)
	slices.Sort(later)
	t.Logf("triggers.stall %s: %d of %d samples; %d hard levels later by %s in the median, %s at most", c.Triggers.Stall, kept, all, len(later), later[len(later)/2], later[len(later)-1])
}

// hardFrom is when each hard level began, in seconds from the recording's start.
func hardFrom(c *config.Agent, l judgement.Label, list []*snapshot.Sample, tick time.Duration) map[judgement.Alarm]float64 {
	o := newOurs(c, l, list)
	of := *c
	of.Tick = tick
	o.history.MaxGap = of.MaxGap()
	spells, _ := judgement.Play(list, o)
	from := map[judgement.Alarm]float64{}
	for _, s := range spells {
		if _, known := from[s.Alarm]; s.Level == plugins.Hard && !known {
			from[s.Alarm] = s.From
		}
	}
	return from
}

// sampledWith are the samples that an agent would have taken: the first, one a tick, and
// those that a trigger of the host woke, no more than one a window.
func sampledWith(c *config.Agent, list []*snapshot.Sample, phase time.Duration) (kept []*snapshot.Sample) {
	next, woken := list[0].Monotonic+phase, time.Duration(0)
	for i, s := range list {
		fires := i > 0 && s.Monotonic-woken >= c.Triggers.Window && stalls(c, list[:i+1])
		switch {
		case s.Monotonic >= next:
			next += longTick
		case fires:
			woken = s.Monotonic
		case i > 0:
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// stalls tells whether tasks stalled on memory or IO for long enough in the last window.
func stalls(c *config.Agent, list []*snapshot.Sample) bool {
	now := list[len(list)-1]
	i, _ := slices.BinarySearchFunc(list, now.Monotonic-c.Triggers.Window, func(s *snapshot.Sample, at time.Duration) int { return int(s.Monotonic - at) })
	was := list[min(i, len(list)-2)]
	share := c.Triggers.Stall.Seconds() / c.Triggers.Window.Seconds() * (now.Monotonic - was.Monotonic).Seconds()
	grew := func(a, b snapshot.Stall) bool {
		from, _ := a.Some.Get()
		to, ok := b.Some.Get()
		return ok && float64(to-from)/1e6 >= share
	}
	return grew(was.Pressure.Memory, now.Pressure.Memory) || grew(was.Pressure.IO, now.Pressure.IO)
}
