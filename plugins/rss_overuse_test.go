package plugins

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func overuse(t *testing.T, change ...func(*RSSOveruse)) *podNode {
	t.Helper()
	c := Config{RSSOveruse: DefaultRSSOveruse()}
	c.RSSOveruse.Enabled = true
	for _, f := range change {
		f(&c.RSSOveruse)
	}
	return newPodNode(t, c)
}

func (w *podNode) rss(i int, bytes uint64) *podNode {
	w.list[i].RSSBytes = snapshot.Some(bytes)
	return w
}

func TestRSSOveruse(t *testing.T) {
	t.Run("names pod", rssOveruseNamesPod)
	t.Run("annotation", rssOveruseAnnotation)
	t.Run("none", rssOveruseNone)
	t.Run("unmeasured", rssOveruseUnmeasured)
	t.Run("model", rssOveruseModel)
	t.Run("after gap", rssOveruseAfterGap)
}

func rssOveruseNamesPod(t *testing.T) {
	w := overuse(t).pod("a", snapshot.Pod{MemoryRequestBytes: gib}).pod("b", snapshot.Pod{MemoryRequestBytes: gib})
	w.rss(0, 1600*mib).rss(1, 2*gib)
	v := w.repeat(60*time.Second, nil)
	require.Equal(t, None, v.Level, v.Reason)
	assert.Contains(t, v.Reason, "ns/b has 2048 MiB of RSS, 200 % of the 1024 MiB that it requests, limit 150 %, exceeded for 59s (needs more than the limit, for 1m0s)")
	v = w.repeat(time.Second, nil)
	require.Equal(t, Hard, v.Level)
	assert.Equal(t, "rss-overuse", v.Plugin)
	assert.Empty(t, v.Condition, "the node is not to blame")
	assert.Equal(t, []Candidate{
		{Cgroup: "/kubepods/burstable/podb", Name: "ns/b", PodUID: "b", Relief: 2 * gib, Unit: "bytes", Why: "has 2048 MiB of RSS, 200 % of the 1024 MiB that it requests, limit 150 %, exceeded for 1m0s"},
		{Cgroup: "/kubepods/burstable/poda", Name: "ns/a", PodUID: "a", Relief: 1600 * mib, Unit: "bytes", Why: "has 1600 MiB of RSS, 156 % of the 1024 MiB that it requests, limit 150 %, exceeded for 1m0s"},
	}, v.Candidates)
	w.rss(0, gib).rss(1, gib)
	assert.Equal(t, Hard, w.repeat(29*time.Second, nil).Level)
	assert.Equal(t, None, w.repeat(time.Second, nil).Level)
}

func rssOveruseAnnotation(t *testing.T) {
	w := overuse(t, func(r *RSSOveruse) { r.For = 0 })
	w.pod("patient", snapshot.Pod{MemoryRequestBytes: gib, RSSOveruse: 3}).pod("strict", snapshot.Pod{MemoryRequestBytes: gib, RSSOveruse: 1.1})
	w.rss(0, 2*gib).rss(1, 1200*mib)
	v := w.repeat(time.Second, nil)
	require.Equal(t, Hard, v.Level)
	require.Len(t, v.Candidates, 1)
	assert.Equal(t, "ns/strict", v.Candidates[0].Name)
	assert.Contains(t, v.Candidates[0].Why, "limit 110 % (its annotation)")

	w = overuse(t, func(r *RSSOveruse) { r.For, r.Rate = 0, 0 })
	w.pod("silent", snapshot.Pod{MemoryRequestBytes: gib}).rss(0, 20*gib)
	v = w.repeat(time.Second, nil)
	assert.Equal(t, None, v.Level)
	assert.Equal(t, "no judged pod requests memory", v.Reason)
}

func rssOveruseNone(t *testing.T) {
	for what, row := range map[string]struct {
		pod snapshot.Pod
		rss uint64
	}{
		"a healthy busy node":   {snapshot.Pod{MemoryRequestBytes: gib}, 1000 * mib},
		"exactly what it may":   {snapshot.Pod{MemoryRequestBytes: gib}, 1536 * mib},
		"it asks for no memory": {snapshot.Pod{LowQoS: true}, 9 * gib},
		"it is ending already":  {snapshot.Pod{MemoryRequestBytes: gib, Terminating: true}, 9 * gib},
	} {
		t.Run(what, func(t *testing.T) {
			w := overuse(t).pod("a", row.pod).rss(0, row.rss)
			for range 100 {
				v := w.pass()[0]
				require.Equal(t, None, v.Level, v.Reason)
				require.Empty(t, v.Absent)
			}
		})
	}
}

func rssOveruseUnmeasured(t *testing.T) {
	for why, change := range map[string]func(*podNode){
		"no API server is configured": func(w *podNode) { w.standalone = true },
		"not listed yet":              func(w *podNode) { w.pods, w.absent = nil, snapshot.Absent{"pods": "not listed yet"} },
		"no anon": func(w *podNode) {
			w.list[0].RSSBytes, w.list[0].Absent = snapshot.Opt[uint64]{}, snapshot.Absent{"rssBytes": "no anon"}
		},
	} {
		t.Run(why, func(t *testing.T) {
			w := overuse(t).pod("a", snapshot.Pod{MemoryRequestBytes: gib}).rss(0, 9*gib)
			change(w)
			v := w.repeat(100*time.Second, nil)
			assert.Equal(t, None, v.Level)
			assert.Contains(t, v.Absent, why)
			assert.Empty(t, v.Candidates)
		})
	}
}

func rssOveruseModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 9))
	w := overuse(t, func(r *RSSOveruse) { r.For = 20 * time.Second })
	rates := []float64{0, 1.2, 3}
	for i, rate := range rates {
		w.pod(string(rune('a'+i)), snapshot.Pod{MemoryRequestBytes: gib, RSSOveruse: rate})
	}
	above, seen := make([]int, 3), map[bool]int{} // seconds in a row
	for second := range 5000 {
		for i, rate := range rates {
			if rnd.IntN(25) == 0 {
				w.rss(i, uint64(rnd.IntN(4*gib)))
			}
			held, _ := w.list[i].RSSBytes.Get()
			if above[i]++; float64(held) <= cmp.Or(rate, 1.5)*gib {
				above[i] = 0
			}
		}
		v := w.pass()[0]
		for i := range rates {
			want := above[i] > 20
			named := slices.ContainsFunc(v.Candidates, func(c Candidate) bool { return c.PodUID == w.pods[i].UID })
			require.Equal(t, want, named, "second %d, pod %d: %s", second, i, v.Reason)
			seen[want]++
		}
	}
	t.Log(seen)
	require.Greater(t, seen[true], 200)
	require.Greater(t, seen[false], 200)
}

func rssOveruseAfterGap(t *testing.T) {
	w := overuse(t).pod("a", snapshot.Pod{MemoryRequestBytes: gib}).rss(0, 9*gib)
	w.repeat(58*time.Second, nil)
	w.sleep(10 * time.Second)
	assert.Equal(t, None, w.repeat(60*time.Second, nil).Level, "what it held meanwhile is not known")
	assert.Equal(t, Hard, w.repeat(time.Second, nil).Level)
}
