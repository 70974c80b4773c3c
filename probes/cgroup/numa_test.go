package cgroup

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// numaStatV2 and numaStatV1 are made up: of v2 12288 + 4096 + 8192 bytes on node 0, of v1
// three pages and one on node 8.
const (
	numaStatV2 = "anon N0=12288 N8=0\nfile N0=999424 N8=4096\nkernel_stack N0=0 N8=0\nshmem N0=4096 N8=0\ninactive_file N0=8 N8=8\nactive_file N0=8192 N8=4096\n"
	numaStatV1 = "total=9 N0=9 N8=0\nanon=7 N0=7 N8=0\nhierarchical_total=90 N0=45 N8=45\nhierarchical_file=5 N0=5 N8=0\nhierarchical_anon=3 N0=2 N8=1\nhierarchical_unevictable=1 N0=1 N8=0\n"
)

func TestNUMAStatParsed(t *testing.T) {
	got, err := parseNUMAStat([]byte(numaStatV2), false)
	require.NoError(t, err)
	assert.Equal(t, numaSums{{Node: 0, Bytes: 24576}, {Node: 8, Bytes: 4096}}, got)
	got, err = parseNUMAStat([]byte(numaStatV1), true)
	require.NoError(t, err)
	page := uint64(os.Getpagesize())
	assert.Equal(t, numaSums{{Node: 0, Bytes: 3 * page}, {Node: 8, Bytes: page}}, got)

	for text, why := range map[string]string{
		"":                               "none of the lines that are used",
		"anon N0\n":                      "not a NUMA node with a number",
		"anon 0=5\n":                     "not a NUMA node with a number",
		"anon N2000=5\n":                 "not a NUMA node with a number",
		"anon N0=x\n":                    "not a decimal number",
		"anon N0=18446744073709551615\n": "number above",
		"anon N0=1 N1=2\nshmem N1=3\n":   "in another order",
		"anon N0=1 N0=2\n":               "duplicate entry",
	} {
		_, err := parseNUMAStat([]byte(text), false)
		assert.ErrorContains(t, err, why, text)
	}
}

// podIn is the made-up pod.
func podIn(t *testing.T, c *Reader) snapshot.Workload {
	t.Helper()
	list := mustRead(t, c)
	i := slices.IndexFunc(list, func(w snapshot.Workload) bool { return w.Kind == snapshot.KindPod })
	require.GreaterOrEqual(t, i, 0)
	return list[i]
}

func TestNUMAStatRead(t *testing.T) {
	files := madeUpV2()
	const pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f7c1c9e_3f0a.slice/"
	files[pod+"memory.numa_stat"] = numaStatV2
	c := mustFind(t, cgroupTree(t, files))
	assert.Empty(t, podIn(t, c).NUMA, "it is off by default")
	c.NUMA = true
	w := podIn(t, c)
	assert.Equal(t, []snapshot.WorkloadNUMA{{Node: 0, Bytes: 24576}, {Node: 8, Bytes: 4096}}, w.NUMA, "%v", w.Absent)
	c.NUMA = false
	assert.Empty(t, podIn(t, c).NUMA, "a configuration without it forgets it")

	delete(files, pod+"memory.numa_stat")
	c = mustFind(t, cgroupTree(t, files))
	c.NUMA = true
	w = podIn(t, c)
	assert.Empty(t, w.NUMA)
	assert.Contains(t, w.Absent["numaMemory"], "memory.numa_stat: no such file")
}

// FuzzNUMAStat: no file makes it panic, and each NUMA node is named once.
func FuzzNUMAStat(f *testing.F) {
	f.Add(numaStatV2, false)
	f.Add(numaStatV1, true)
	f.Add("anon N0=1 N0=2\n", false)
	f.Fuzz(func(t *testing.T, text string, v1 bool) {
		list, err := parseNUMAStat([]byte(text), v1)
		if err != nil {
			require.Empty(t, list)
			return
		}
		seen := map[int]bool{}
		for _, n := range list {
			require.False(t, seen[n.Node], "%d twice", n.Node)
			seen[n.Node] = true
		}
	})
}
