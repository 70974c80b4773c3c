package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// slowFilesystem is the slow obvious version: it keeps every second and asks of each
// what the rule says, without a latch or a time that something began.
type slowFilesystem struct {
	seen, low, tight []bool // of each second: it can be judged; too little is left; not clearly more is
	since            int    // the second at which what can be looked back at begins
	on               bool
}

func (s *slowFilesystem) judge(seen, low, tight, other bool) Level {
	s.seen, s.low, s.tight = append(s.seen, seen), append(s.low, seen && low), append(s.tight, seen && tight || !seen && s.on && !other)
	last := len(s.seen) - 1
	s.on = s.on && !other
	switch watched := last-s.since >= 30; {
	case watched && s.all(s.low, last-30, true):
		s.on = true
	case watched && s.all(s.tight, last-29, false):
		s.on = false
	}
	if s.on {
		return Soft
	}
	return None
}

func (s *slowFilesystem) all(of []bool, from int, want bool) bool {
	for _, b := range of[from:] {
		if b != want {
			return false
		}
	}
	return true
}

func TestFilesystemModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	r, slow, seen := newFilesystemNode(t), &slowFilesystem{}, map[Level]int{}
	bytes, files, why, gone := uint64(50), uint64(500), "", false
	for i := range 30_000 {
		if rnd.IntN(25) == 0 { // somebody writes or deletes
			bytes, files = []uint64{2, 9, 11, 12, 13, 60}[rnd.IntN(6)], []uint64{3, 49, 55, 70, 900}[rnd.IntN(5)]
			why, gone = []string{"", "", "", "", "statfs hangs"}[rnd.IntN(5)], rnd.IntN(30) == 0
		}
		if rnd.IntN(400) == 0 {
			r.sleep(10 * time.Second)
			slow.since = i
		}
		r.left(bytes*gib, files*1000).trouble(why)
		r.fs.AgeSeconds = snapshot.Some(2.0)
		if gone {
			r.trouble("first statfs has not returned yet").fs.AgeSeconds = snapshot.Opt[float64]{}
		}
		want := slow.judge(why == "" && !gone, bytes < 10 || files < 50, bytes*100 < 1250 || files*10 < 625, gone)
		v := r.seconds(1)
		require.Equal(t, want, v.Level, "second %d: %s", i, v.Reason)
		require.Empty(t, v.Candidates)
		seen[want]++
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft} {
		require.Greater(t, seen[l], 1000, l)
	}
}
