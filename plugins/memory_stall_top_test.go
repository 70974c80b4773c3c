package plugins

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// takerOf is a pod with its memory, swap, request, and stall of a second.
type takerOf struct {
	set, swap, request uint64
	stall              float64
	hits               uint64
}

// topOf is the names in the order in which they would go.
func topOf(t *testing.T, standalone bool, list []takerOf) (names []string, all []Candidate) {
	t.Helper()
	w := newPodNode(t, Config{})
	w.standalone = standalone
	for i, o := range list {
		w.pod(string(rune('a'+i)), snapshot.Pod{MemoryRequestBytes: o.request})
	}
	w.pass()
	for i, o := range list {
		l := &w.list[i]
		l.MemoryBytes, l.InactiveFileBytes, l.SwapBytes = snapshot.Some(o.set+mib), snapshot.Some[uint64](mib), snapshot.Some(o.swap)
		l.Pressure.Memory.Some, l.LimitHits = snapshot.Some(uint64(1e6*o.stall)), snapshot.Some(o.hits)
	}
	w.pass()
	s := w.snapshot
	all = MemoryStall{}.Top(View{Snapshot: s, Monotonic: s.Monotonic()}, Verdict{}, MaxCandidates)
	for _, c := range all {
		names = append(names, c.PodUID)
	}
	return names, all
}

func TestMemoryStallMostAboveRequestFirst(t *testing.T) {
	list := []takerOf{
		{set: 30 * gib, request: 32 * gib},           // a: the largest, and within what was promised to it
		{set: 3 * gib, request: gib},                 // b: 2 GiB above
		{set: gib, swap: 8 * gib, request: gib},      // c: 8 GiB above, swapped
		{set: 5 * gib, request: 2 * gib, stall: 0.4}, // d: 3 GiB above, and stalls
		{set: 3800 * mib, request: 0},                // e: asks for nothing
		{set: 3900 * mib, stall: 0.9, hits: 3},       // f: stalls at a limit of its own
	}
	names, all := topOf(t, false, list)
	assert.Equal(t, []string{"c", "d", "f", "e", "b", "a"}, names)
	assert.Equal(t, "working set 1024 MiB, swapped 8192 MiB, 8192 MiB above its request of 1024 MiB", all[0].Why)
	assert.Equal(t, "working set 5120 MiB, 3072 MiB above its request of 2048 MiB, stalls 40 % of the time", all[1].Why)
	assert.InDelta(t, 9*gib, all[0].Relief, 0, "its going gives back all that it has")
	assert.Equal(t, "ns/c", all[0].Name)

	names, all = topOf(t, true, list)
	assert.Equal(t, []string{"a", "c", "d", "f", "e", "b"}, names, "as ever where no requests are known")
	assert.Equal(t, "working set 30720 MiB", all[0].Why)
}

func TestMemoryStallOrderByExcess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 13))
	for range 200 {
		var list []takerOf
		for range 2 + rnd.IntN(8) {
			list = append(list, takerOf{
				set: uint64(rnd.IntN(64)) << (20 + rnd.IntN(8)), swap: uint64(rnd.IntN(2)) * gib, request: uint64(rnd.IntN(64)) << (20 + rnd.IntN(8)),
				stall: float64(rnd.IntN(4)) / 4, hits: uint64(rnd.IntN(2)),
			})
		}
		above := func(name string) uint64 {
			o := list[name[0]-'a']
			return o.set + o.swap - min(o.set+o.swap, o.request)
		}
		stall := func(name string) float64 {
			o := list[name[0]-'a']
			return o.stall * float64(1-o.hits)
		}
		names, _ := topOf(t, false, list)
		require.Len(t, names, len(list))
		for i, first := range names {
			for _, second := range names[i+1:] {
				require.False(t, above(second) >= 2*above(first) && above(second) > 0, "%s has more than twice as much above as %s: %+v", second, first, list)
				if above(first) == above(second) {
					require.GreaterOrEqual(t, stall(first), stall(second))
				}
			}
		}
	}
}
