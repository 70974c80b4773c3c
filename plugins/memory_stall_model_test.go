package plugins

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The slow obvious version: it keeps every second of the node's life and asks
// of each level what the rule says, without windows, latches or totals.
type slowStall struct {
	stall, ratio, available []float64
	scans, swapIns          []uint64
	swapFree                []float64 // share
	on                      [2]bool
}

func (s *slowStall) judge(n *node, stall float64, scans uint64) Level {
	s.stall, s.scans = append(s.stall, stall), append(s.scans, scans)
	s.available = append(s.available, float64(n.available))
	s.ratio = append(s.ratio, float64(n.available)/float64(n.total))
	s.swapFree, s.swapIns = append(s.swapFree, float64(n.swapFree)/(8*gib)), append(s.swapIns, n.swapIns)
	m := DefaultMemoryStall()
	for i, r := range []StallRule{m.Soft, m.Hard} {
		floor := float64(m.KubeletEvictionHard) * []float64{4, 2}[i]
		last := len(s.stall) - 1
		if s.met(last, i == 1, r, floor) {
			s.on[i] = true
			continue
		}
		calm := true
		for at := last; at > last-30; at-- {
			calm = calm && !s.met(at, i == 1, r, floor) && !s.kept(at, i == 1, r, floor)
		}
		if calm {
			s.on[i] = false
		}
	}
	switch {
	case s.on[1]:
		return Hard
	case s.on[0]:
		return Soft
	}
	return None
}

func (s *slowStall) over(at, seconds int) (stall float64, scans uint64, most float64) {
	for i := at - seconds + 1; i <= at; i++ {
		stall += s.stall[i] / float64(seconds)
		scans += s.scans[i]
	}
	for i := at - seconds; i <= at; i++ {
		most = max(most, s.available[i])
	}
	return stall, scans, most
}

const slack = 1e-9

// swapless: hardly any swap is left and pages came back within so many seconds.
func (s *slowStall) swapless(at, seconds int) bool {
	return s.swapFree[at] < 0.1 && s.swapIns[at] > s.swapIns[at-seconds]
}

func (s *slowStall) met(at int, hard bool, r StallRule, floor float64) bool {
	seconds := int(r.Window / time.Second)
	stall, scans, most := s.over(at, seconds)
	return scans > 0 && (stall >= r.StallFull-slack && (s.ratio[at] < r.Available || hard && s.swapless(at, seconds)) || most < floor)
}

func (s *slowStall) kept(at int, hard bool, r StallRule, floor float64) bool {
	stall, scans, _ := s.over(at, 5)
	return scans > 0 && (stall >= r.StallFull/2-slack && (s.ratio[at] < r.Available*1.25 || hard && s.swapless(at, 5)) || s.available[at] < floor*1.25)
}

func TestMemoryStallModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	n := newNode(t)
	n.noSwap, n.swapFree = false, 8*gib
	n.warm()
	slow := &slowStall{}
	for range 301 {
		slow.stall, slow.scans = append(slow.stall, 0), append(slow.scans, 0)
		slow.available, slow.ratio = append(slow.available, 32*gib), append(slow.ratio, 0.5)
		slow.swapFree, slow.swapIns = append(slow.swapFree, 1), append(slow.swapIns, 0)
	}
	seen := map[Level]int{}
	stall, scans := 0.0, uint64(0)
	for i := range 20_000 {
		if rnd.IntN(15) == 0 { // the weather changes
			stall = []float64{0, 0.03, 0.06, 0.12, 0.3, 0.9}[rnd.IntN(6)]
			scans = []uint64{0, 800, 800}[rnd.IntN(3)]
			n.available = []uint64{32 * gib, 7 * gib, 5 * gib, 3 * gib, 2 * gib, 450 * mib, 300 * mib, 150 * mib}[rnd.IntN(8)]
			n.swapFree = []uint64{8 * gib, gib, gib / 2, 0}[rnd.IntN(4)]
			n.swapIns += []uint64{0, 70}[rnd.IntN(2)]
			if rnd.IntN(4) == 0 {
				stall, scans, n.available = 0, 0, 32*gib
			}
		}
		want := slow.judge(n, stall, scans)
		v := n.second(stall, scans)
		require.Equal(t, want, v.Level, "second %d: %s", i, v.Reason)
		seen[want]++
	}
	t.Log(seen)
	for _, l := range []Level{None, Soft, Hard} {
		require.Greater(t, seen[l], 100, l)
	}
}
