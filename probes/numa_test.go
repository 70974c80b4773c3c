package probes

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const numaSysfs = "sys/devices/system/node/"

// numaTree gives a recorded machine two NUMA nodes, made up.
func numaTree(t *testing.T) *machineTree {
	t.Helper()
	m := recordedMachine(t)
	m.write(numaSysfs+"has_memory", "0-1\n")
	for id := range 2 {
		m.write(fmt.Sprintf("%snode%d/meminfo", numaSysfs, id), strings.ReplaceAll(numaMeminfoText, "Node N", fmt.Sprintf("Node %d", id)))
	}
	m.write("proc/zoneinfo", zoneinfoText)
	return m
}

const numaMeminfoText = `Node N MemTotal:        1000000 kB
Node N MemFree:          100000 kB
Node N MemUsed:          900000 kB
Node N Active(file):      60000 kB
Node N Inactive(file):    40000 kB
Node N SReclaimable:       1000 kB
Node N KReclaimable:      30000 kB
`

// zoneinfoText has pages of 4 KiB: node 0 keeps min(managed 3840, 16 + 24090) of its
// DMA and 1000 of its Normal zone, node 1 keeps 2000 and 500.
const zoneinfoText = `Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 106992
  pages free     3840
        boost    0
        min      10
        low      13
        high     16
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 3019, 24090, 24090, 24090)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count: 0
              high:  7
              batch: 1
  vm stats threshold: 4
Node 0, zone   Normal
  pages free     3840
        min      500
        low      750
        high     1000
        managed  500000
        protection: (0, 0, 0, 0, 0)
Node 0, zone  Movable
  pages free     0
        min      32
        low      32
        high     32
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 1, zone   Normal
  pages free     3840
        min      500
        low      1500
        high     2000
        managed  500000
        protection: (0, 0, 500, 500)
`

// numaSample reads a tree with NUMA nodes.
func (m *machineTree) numaSample() *snapshot.Sample {
	m.Helper()
	h := m.host()
	h.FollowNUMA(true)
	return mustSample(m.T, h)
}

func TestNUMAMemory(t *testing.T) {
	s := numaTree(t).numaSample()
	require.Empty(t, probeError(t, s, "numa"))
	const page, kib = uint64(4096), uint64(1024)
	reserve := []uint64{(3840 + 1000) * page, 2500 * page}
	low := []uint64{(13 + 750 + 32) * page, 1500 * page}
	require.Len(t, s.NUMANodes, 2)
	for id, n := range s.NUMANodes {
		assert.Equal(t, snapshot.NUMANode{
			ID: id, TotalBytes: u64(1_000_000 * kib), FreeBytes: u64(100_000 * kib), ReserveBytes: u64(reserve[id]),
			AvailableBytes: u64(100_000*kib - reserve[id] + 100_000*kib - low[id] + 30_000*kib - low[id]),
		}, n)
	}
}

func TestNUMAHugePages(t *testing.T) {
	m := numaTree(t)
	m.write(numaSysfs+"node1/hugepages/hugepages-2048kB/nr_hugepages", "10\n")
	m.write(numaSysfs+"node1/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
	s := m.numaSample()
	assert.Zero(t, s.NUMANodes[0].HugetlbBytes)
	assert.Equal(t, u64((1_000_000-20480)<<10), s.NUMANodes[1].OrdinaryBytes())
}

func TestNUMANotMeasured(t *testing.T) {
	m := numaTree(t)
	s := m.sample()
	assert.Empty(t, s.NUMANodes, "it is off by default")
	for what, change := range map[string]func(){
		"a kernel without NUMA":        func() { m.remove(numaSysfs + "has_memory") },
		"one NUMA node":                func() { m.write(numaSysfs+"has_memory", "0\n") },
		"one of them has no memory":    func() { m.write(numaSysfs+"has_memory", "1\n") },
		"one, and nothing of it reads": func() { m.write(numaSysfs+"has_memory", "7\n") },
	} {
		change()
		s := m.numaSample()
		assert.Empty(t, s.NUMANodes, what)
		assert.Empty(t, probeError(t, s, "numa"), what)
	}
}

func TestNUMAUnreadable(t *testing.T) {
	for what, row := range map[string]struct {
		spoil  func(*machineTree)
		probe  string
		nodes  int
		absent snapshot.Absent // of node 1
	}{
		"no list": {
			func(m *machineTree) { m.write(numaSysfs+"has_memory", "1-0\n") }, `has_memory: line "1-0": not a list of NUMA nodes`, 0, nil,
		},
		"meminfo is gone": {
			func(m *machineTree) { m.remove(numaSysfs + "node1/meminfo") }, "node1/meminfo: no such file", 2, snapshot.Absent{"meminfo": "no such file"},
		},
		"no unit": {
			func(m *machineTree) {
				m.edit(numaSysfs+"node1/meminfo", "Node 1 MemFree:          100000 kB", "Node 1 MemFree:          100000")
			},
			"node1/meminfo: line", 2,
			snapshot.Absent{"meminfo": "without the unit kB"},
		},
		"truncated": {
			func(m *machineTree) { m.write(numaSysfs+"node1/meminfo", "Node 1 MemTotal:  10 kB") },
			"without the unit kB", 2,
			snapshot.Absent{"meminfo": "without the unit kB"},
		},
		"a line is missing": {
			func(m *machineTree) { m.edit(numaSysfs+"node1/meminfo", "Node 1 Active(file):      60000 kB\n", "") },
			"", 2,
			snapshot.Absent{"availableBytes": "no MemFree, Active(file)"},
		},
		"no zone of one": {
			func(m *machineTree) { m.edit("proc/zoneinfo", "Node 1, zone", "Node 5, zone") }, "", 2, snapshot.Absent{"availableBytes": "has no zone"},
		},
		"no zones": {
			func(m *machineTree) { m.remove("proc/zoneinfo") }, "zoneinfo: no such file", 2, snapshot.Absent{"availableBytes": "no such file"},
		},
		"a watermark is no number": {
			func(m *machineTree) { m.edit("proc/zoneinfo", "high     2000", "high     -1") }, `zoneinfo: line "        high     -1"`, 2, snapshot.Absent{"availableBytes": "zoneinfo"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := numaTree(t)
			row.spoil(m)
			s := m.numaSample()
			if row.probe == "" {
				assert.Empty(t, probeError(t, s, "numa"))
			} else {
				assert.Contains(t, probeError(t, s, "numa"), row.probe)
			}
			require.Len(t, s.NUMANodes, row.nodes)
			if row.nodes == 0 {
				return
			}
			n := s.NUMANodes[1]
			assert.True(t, n.AvailableBytes.IsZero(), "absent is not zero")
			for key, why := range row.absent {
				assert.Contains(t, n.Absent[key], why)
			}
		})
	}
}

// The printed watermarks contain a boost that soon ends.
func TestNUMABoost(t *testing.T) {
	m := numaTree(t)
	want := m.numaSample().NUMANodes
	m.edit("proc/zoneinfo", "boost    0\n        min      10\n        low      13\n        high     16", "boost    90\n        min      100\n        low      103\n        high     106")
	m.edit("proc/zoneinfo", "min      500\n        low      1500\n        high     2000", "boost    3000\n        min      3500\n        low      4500\n        high     5000")
	assert.Equal(t, want, m.numaSample().NUMANodes)
	m.edit("proc/zoneinfo", "boost    3000", "boost    9000")
	reserve, _ := m.numaSample().NUMANodes[1].ReserveBytes.Get()
	assert.EqualValues(t, 500*4096, reserve, "a boost above the watermark, as of two moments, is no negative one")
}

// Before 4.20 the kernel did not print KReclaimable.
func TestNUMAOldKernel(t *testing.T) {
	m := numaTree(t)
	whole, _ := m.numaSample().NUMANodes[1].AvailableBytes.Get()
	m.edit(numaSysfs+"node1/meminfo", "Node 1 KReclaimable:      30000 kB\n", "")
	old, ok := m.numaSample().NUMANodes[1].AvailableBytes.Get()
	require.True(t, ok)
	const low = 1500 * 4096
	assert.Equal(t, whole-(30_000<<10-low)+(1000<<10)/2, old)
}

// What seldom changes is read once a minute; a host that changed it is seen then.
func TestNUMAReread(t *testing.T) {
	m := numaTree(t)
	h := m.host()
	h.FollowNUMA(true)
	now := time.Hour
	h.clock = func(int32) (time.Duration, error) { return now, nil }
	reserve := func() uint64 {
		n, _ := mustSample(t, h).NUMANodes[1].ReserveBytes.Get()
		return n / 4096
	}
	require.EqualValues(t, 2500, reserve())
	m.edit("proc/zoneinfo", "high     2000", "high     9000")
	now += numaReread - 1
	require.EqualValues(t, 2500, reserve())
	now++
	require.EqualValues(t, 9500, reserve())
	h.FollowNUMA(false)
	require.Empty(t, mustSample(t, h).NUMANodes)
}

func TestNUMAIDList(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-2": {0, 1, 2}, "0,8": {0, 8}, "0-1,4,6-7": {0, 1, 4, 6, 7}} {
		got, err := idList(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "a", "0-", "-1", "2-1", "0,0", "3,1", "0-1024", "0-4294967295", "1 "} {
		_, err := idList(text)
		assert.ErrorIs(t, err, errNoIDList, text)
	}
}

// FuzzNUMA: no file makes the parsers panic, or more memory available than there is in
// its parts.
func FuzzNUMA(f *testing.F) {
	f.Add(numaMeminfoText, zoneinfoText, "0-1")
	f.Add("Node 0 MemFree: 18446744073709551615 kB\n", "Node 0, zone DMA\n high 18446744073709551615\n", "0-1023")
	f.Add("Node 0 MemFree: 1 kB\nNode 0 Active(file): 1 kB\nNode 0 Inactive(file): 1 kB\nNode 0 SReclaimable: 1 kB", "protection: (,)", ",")
	f.Fuzz(func(t *testing.T, meminfo, zoneinfo, list string) {
		if ids, err := idList(list); err == nil {
			require.NotEmpty(t, ids)
			require.LessOrEqual(t, len(ids), maxNUMANodes)
		}
		zones, err := zonesOf([]byte(zoneinfo), 4096)
		if err != nil {
			zones = map[int]numaZones{}
		}
		m, err := numaMeminfo([]byte(meminfo))
		if err != nil {
			return
		}
		parts := uint64(0)
		for v := range maps.Values(m) {
			n, _ := v.Get()
			parts += n
		}
		for _, z := range zones {
			if available, ok := m.available(z).Get(); ok {
				require.LessOrEqual(t, available, parts)
			}
		}
	})
}
