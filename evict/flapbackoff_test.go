package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// worn plays marks, a round every 10 s, restarted after each, at the level that
// is so at a second, and gives the minutes at which the taint changed.
func worn(t *testing.T, seconds int, level func(second int) plugins.Level) (minutes []float64) {
	t.Helper()
	in := round(0, nil, memoryAt(plugins.None))
	last := corev1.TaintEffect("")
	for second := 0; second < seconds; second += 10 {
		in.Levels.Verdicts = []plugins.Verdict{memoryAt(level(second))}
		marks, m := Mark(in)
		if effect := effects(marks)[memoryKey]; (effect == "") != (last == "") {
			minutes = append(minutes, float64(second)/60)
			last = effect
		}
		in = then(in, 10, restarted(t, m))
	}
	return minutes
}

// blink is at a level for a moment every so many minutes.
func blink(l plugins.Level, minutes int) func(int) plugins.Level {
	return func(second int) plugins.Level {
		if second%(60*minutes) == 0 {
			return l
		}
		return plugins.None
	}
}

func TestFlapBackoff(t *testing.T) {
	t.Run("grows", flapBackoffGrows)
	t.Run("bound and reset", flapBackoffBoundAndReset)
	t.Run("clock set back", flapBackoffClockSetBack)
	t.Run("adopted taint", flapBackoffAdoptedTaint)
	t.Run("condition lasts", flapBackoffConditionLasts)
}

func flapBackoffGrows(t *testing.T) {
	assert.Equal(t, []float64{0, 5, 10, 23, 33, 53}, worn(t, 57*60, blink(plugins.Soft, 6))[:6],
		"off for 5 and 10 min, on for 10 and 20 at least, and 5 from when it was met")
	hard := worn(t, 60*60, blink(plugins.Hard, 6))
	assert.Equal(t, []float64{0, 5, 6, 17, 18, 41, 42}, hard[:7], "hard comes at once")
}

func flapBackoffBoundAndReset(t *testing.T) {
	f := DefaultConfig().Taints
	assert.Equal(t, []time.Duration{5 * time.Minute, 10 * time.Minute, 40 * time.Minute, time.Hour, time.Hour},
		[]time.Duration{f.duration(0), f.duration(1), f.duration(3), f.duration(4), f.duration(1 << 40)})
	s := MarkState{}.updateTaint(plugins.Soft, at(0), f)
	s = s.updateTaint(plugins.None, at(300), f)
	assert.Equal(t, MarkState{TaintedAt: at(0), UntaintedAt: at(300)}, s)
	assert.Equal(t, 1, s.updateTaint(plugins.Soft, at(600), f).Flaps)
	assert.Equal(t, 1, s.updateTaint(plugins.Soft, at(300+3599), f).Flaps)
	assert.Equal(t, 0, s.updateTaint(plugins.Soft, at(300+3600), f).Flaps)
	assert.False(t, s.expired(plugins.None, at(300+3599), f))
	assert.True(t, s.expired(plugins.None, at(300+3600), f))
}

func flapBackoffClockSetBack(t *testing.T) {
	f := DefaultConfig().Taints
	s := MarkState{}.updateTaint(plugins.Soft, at(86400), f)
	s = s.updateTaint(plugins.None, at(0), f)
	assert.Equal(t, plugins.Soft, s.TaintLevel)
	assert.Equal(t, plugins.None, s.updateTaint(plugins.None, at(300), f).TaintLevel)
	s = MarkState{UntaintedAt: at(86400)}.updateTaint(plugins.Soft, at(0), f)
	assert.Equal(t, plugins.Soft, s.updateTaint(plugins.Soft, at(300), f).TaintLevel)
}

func flapBackoffAdoptedTaint(t *testing.T) {
	m := State{}.Adopt(at(0), []OwnTaint{ownTaint(memoryKey, corev1.TaintEffectNoSchedule, -100)})
	assert.Equal(t, plugins.Hard, m.Marks["MemoryContention"].TaintLevel)
	assert.Equal(t, ownTaint(memoryKey, corev1.TaintEffectNoSchedule, -100).Since.UTC(), m.Marks["MemoryContention"].TaintedAt.UTC())
}

func flapBackoffConditionLasts(t *testing.T) {
	in := round(0, nil, memoryAt(plugins.None))
	in.State.Marks = map[string]MarkState{"MemoryContention": {TaintLevel: plugins.Hard, TaintedAt: at(-1), Flaps: 2}}
	marks, m := Mark(in)
	assert.Equal(t, "Settling", about(t, marks, memoryKey).Reason)
	marks, _ = Mark(then(in, 20*60-1, m))
	assert.Equal(t, "Clear", about(t, marks, memoryKey).Reason)
	assert.Empty(t, marks.Taints)
}
