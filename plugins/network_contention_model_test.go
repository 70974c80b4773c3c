package plugins

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// slowLink is the slow obvious version: it keeps every second and adds up.
type slowLink struct {
	received, sent  []uint64 // bytes of each second
	segments, again []uint64
	lost            float64 // so far: a part of a segment counts with the next one
	held            []bool
	since           int // the second from which on there are differences
	on              bool
}

func (s *slowLink) judge(of traffic, known bool) Level {
	s.received, s.sent = append(s.received, uint64(of.received*gigabit)), append(s.sent, uint64(of.sent*gigabit))
	before := uint64(s.lost)
	s.lost += of.again * float64(of.segments)
	s.segments, s.again = append(s.segments, of.segments), append(s.again, uint64(s.lost)-before)
	last := len(s.sent) - 1
	keep := known && last-s.since >= 1 && s.bad(min(5, last-s.since), 0.81, 0.005, math.Inf(1))
	s.held = append(s.held, keep)
	watched := last-s.since >= 30
	met := known && watched && s.bad(30, 0.9, 0.01, 1.1)
	calm := watched
	for i := last; calm && i > last-30; i-- {
		calm = !s.held[i]
	}
	switch {
	case !known: // the rule does not apply, and nothing is remembered
		s.on = false
	case met:
		s.held[last], s.on = true, true
	case calm:
		s.on = false
	}
	if s.on {
		return Soft
	}
	return None
}

// bad says whether the last seconds together were.
func (s *slowLink) bad(seconds int, use, loss, believed float64) bool {
	sum := func(list []uint64) (n uint64) {
		for _, v := range list[len(list)-seconds:] {
			n += v
		}
		return n
	}
	most := float64(max(sum(s.received), sum(s.sent))) / float64(seconds) / gigabit
	segments := sum(s.segments)
	return float64(segments) >= 1000*float64(seconds)/30 && most >= use && most <= believed && float64(sum(s.again))/float64(segments) >= loss
}

func TestNetworkContentionModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 5))
	w, slow, seen := newWired(t), &slowLink{}, map[Level]int{}
	pick := func(list ...float64) float64 { return list[rnd.IntN(len(list))] }
	of, known := quiet(), true
	for i := range 30_000 {
		if rnd.IntN(20) == 0 { // the weather changes
			of = traffic{
				received: pick(0.11, 0.23, 0.86, 0.97), sent: pick(0.11, 0.52, 0.86, 0.97, 0.97, 1.3),
				segments: uint64(pick(10, 100, 20_000, 60_000)), again: pick(0, 0.007, 0.03, 0.05),
			}
		}
		if rnd.IntN(500) == 0 {
			known = !known || rnd.IntN(3) > 0
		}
		if rnd.IntN(500) == 0 {
			w.sleep(10 * time.Second)
			slow.since = i
		}
		w.nic.SpeedBytesPerSecond = snapshot.Opt[uint64]{}
		if known {
			w.nic.SpeedBytesPerSecond = snapshot.Some[uint64](gigabit)
		}
		want := slow.judge(of, known)
		list := w.second(func(s *snapshot.Sample) { w.carry(s, of) })
		require.Len(t, list, 1)
		v := list[0]
		if !known {
			require.Equal(t, None, v.Level)
			require.Contains(t, v.Absent, "its speed is unknown")
			continue
		}
		require.Equal(t, want, v.Level, "second %d: %s", i, v.Reason)
		require.Empty(t, v.Candidates)
		seen[want]++
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft} {
		require.Greater(t, seen[l], 1000, l)
	}
}
