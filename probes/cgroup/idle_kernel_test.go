package cgroup

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// obvious reads the same workloads without any cache.
func obvious(k *ticks) []snapshot.Workload {
	k.t.Helper()
	for _, tr := range k.c.tracked {
		tr.fullDue = 0
	}
	return k.after(time.Microsecond)
}

// gatedPods are pods on this host's kernel that compute, take memory or sleep
// as ordered, with two readers.
type gatedPods struct {
	*testing.T
	children      []*child
	gated, always *ticks
	rested        int // how often the slice answered for a pod
}

func newGatedPods(t *testing.T, n int) *gatedPods {
	t.Helper()
	c, kubepods, gated := hostPods(t)
	g := &gatedPods{T: t, gated: gated, always: ticksOf(t, "", filepath.Dir(kubepods))}
	for i := range n {
		pod := fmt.Sprintf("%s/pod%d", kubepods, i)
		mkdirs(t, c, pod)
		if i%4 == 3 {
			continue // a pod without a process
		}
		p := startChild(t)
		p.enter(t, c, pod)
		g.children = append(g.children, p)
	}
	g.gated.tick()
	g.always.tick()
	return g
}

// gateCounters are the values that both readers read at the same instants:
// without the expensive files, At, and memory, which the kernel uncharges when
// another cgroup uses the CPU.
func gateCounters(w *snapshot.Workload) snapshot.Workload {
	return snapshot.Workload{Cgroup: w.Cgroup, Inode: w.Inode, CPUMicroseconds: w.CPUMicroseconds, IO: w.IO, Pressure: w.Pressure}
}

// holds reads with the caching reader between two reads of the other, and
// reports whether they are equal. CPU time, without which nothing changes, must
// be between the two at once.
func (g *gatedPods) holds() bool {
	g.Helper()
	before, got, after := obvious(g.always), g.gated.after(time.Microsecond), obvious(g.always)
	require.Equal(g, cgroupPaths(before), cgroupPaths(got))
	same := true
	for i := range got {
		least, _ := before[i].CPUMicroseconds.Get()
		most, _ := after[i].CPUMicroseconds.Get()
		cpu, ok := got[i].CPUMicroseconds.Get()
		require.True(g, ok)
		require.GreaterOrEqual(g, cpu, least, "%s: it had moved, and was not read", got[i].Cgroup)
		require.LessOrEqual(g, cpu, most)
		b, w, a := gateCounters(&before[i]), gateCounters(&got[i]), gateCounters(&after[i])
		same = same && cmp.Equal(b, w, sameWorkloads()) && cmp.Equal(w, a, sameWorkloads())
	}
	for _, tr := range g.gated.c.tracked {
		if tr.readAt[ofCPU] < g.gated.at {
			g.rested++
		}
	}
	return same
}

// settle waits until both readers return the same, and returns how often that took some
// CPU time: a task that had to wait before it ran for less than a microsecond is seen to
// have waited only when it runs again.
func (g *gatedPods) settle() (late int) {
	g.Helper()
	reads := 0
	kerneltest.Until(g, func() bool {
		same := g.holds()
		if reads++; !same && reads%1000 == 0 {
			late++
			for _, p := range g.children {
				require.Equal(g, "done", p.do(g.T, "burn a little"))
			}
		}
		return same
	})
	return late
}

// A reader that skips idle workloads returns the same values as one that reads
// everything: all activity before a read is in it. Nothing is due within the
// test, so it reads only what it saw change.
func TestIdleSkipReadsSameAsFull(t *testing.T) {
	if actAsChild() {
		return
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	g := newGatedPods(t, 8)
	allocated, late := 0, 0
	for range 40 {
		p := g.children[rnd.IntN(len(g.children))]
		switch n := rnd.IntN(10); {
		case n == 0 && allocated < 5:
			allocated++
			require.Equal(t, "done", p.do(t, "allocate"))
		case n < 6:
			require.Equal(t, "done", p.do(t, "burn a little"))
		default: // sleeps on
			require.Equal(t, "done", p.do(t, "sleep"))
		}
		for range rnd.IntN(5) {
			g.holds() // they may still do a little
		}
		late += g.settle()
	}
	assert.LessOrEqual(t, late, 2, "a wait without CPU time is rare")
	assert.Positive(t, g.rested, "the slice answered for its pods")
	full := fullEvery - 5*time.Second
	require.Less(t, g.gated.at-time.Hour, full, "nothing was due")
	t.Logf("the slice answered at %d reads", g.rested)
}
