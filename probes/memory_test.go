package probes

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryRefaultsSummed(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/vmstat", "workingset_refault_anon 0\n", "workingset_refault_anon 5\n")
	m.edit("proc/vmstat", "workingset_refault_file 10170466\n", "workingset_refault_file 70\n")
	assert.Equal(t, u64(75), m.sample().Memory.Refaults)
}

func TestMemoryRefaultsOneName(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/vmstat", "workingset_refault_anon 0\n", "")
	m.edit("proc/vmstat", "workingset_refault_file 10170466\n", "workingset_refault 33\n")
	s := m.sample()
	assert.Equal(t, u64(33), s.Memory.Refaults)
	assert.Empty(t, s.Memory.Absent)
}

// A sum with one part missing for a tick would decrease and increase again by
// millions, which looks like a storm of refaults.
func TestMemoryRefaultsHalfAbsent(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/vmstat", "workingset_refault_file 10170466\n", "workingset_refault_file x\n")
	s := m.sample()
	assert.Zero(t, s.Memory.Refaults)
	assert.Contains(t, s.Memory.Absent["refaultsTotal"], "no workingset_refault_anon and workingset_refault_file")
	assert.Contains(t, probeError(t, s, "vmstat"), `line "workingset_refault_file x"`)
	assert.Equal(t, u64(172983), s.Memory.ScansDirect, "the others stay")
}

func TestMemoryVmstatNameAbsent(t *testing.T) {
	for name, key := range map[string]string{
		"oomKillsTotal": "oom_kill 107\n", "swapInsTotal": "pswpin 0\n", "swapOutsTotal": "pswpout 0\n",
		"scansDirectTotal": "pgscan_direct 172983\n", "scansKswapdTotal": "pgscan_kswapd 8027157\n",
	} {
		m := recordedMachine(t)
		m.edit("proc/vmstat", key, "")
		s := m.sample()
		assert.Len(t, s.Memory.Absent, 1)
		assert.Contains(t, s.Memory.Absent[name], strings.Fields(key)[0])
		assert.Empty(t, probeError(t, s, "vmstat"), "one name less is another kernel")
	}
}

func TestMemoryVmstatWithoutReclaim(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/vmstat", "nr_free_pages 5\n")
	s := m.sample()
	assert.Equal(t, errNoScans.Error(), probeError(t, s, "vmstat"))
	assert.Equal(t, errNoScans.Error(), s.Memory.Absent["vmstat"])
}

func TestMemoryVmstatTruncated(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/vmstat", "pgscan_direct 7\npgscan_kswapd 8\noom_kill 1")
	s := m.sample()
	assert.Equal(t, u64(7), s.Memory.ScansDirect)
	assert.Zero(t, s.Memory.OOMKills, "it may have been 107")
	assert.Equal(t, errTruncatedFile.Error(), probeError(t, s, "vmstat"))
}

func TestAvailableMemory(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	available, err := h.AvailableMemory()
	require.NoError(t, err)
	assert.EqualValues(t, 23078680<<10, available)
	m.edit("proc/meminfo", "MemAvailable:   23078680 kB\n", "")
	_, err = h.AvailableMemory()
	require.EqualError(t, err, "MemAvailable of /proc/meminfo: not in /proc/meminfo")
	m.remove("proc/meminfo")
	_, err = h.AvailableMemory()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestMemoryMeminfoAbsent(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/meminfo", "MemAvailable:   23078680 kB\n", "")
	s := m.sample()
	assert.Zero(t, s.Memory.AvailableBytes)
	assert.Equal(t, "not in /proc/meminfo", s.Memory.Absent["availableBytes"])
	assert.Equal(t, u64(22079192<<10), s.Memory.FreeBytes)
	assert.Empty(t, probeError(t, s, "memory"))
}

func TestMemoryHugePages(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/meminfo", "MemAvailable:", "Hugetlb: 1048576 kB\nMemAvailable:")
	s := m.sample()
	total, _ := s.Memory.TotalBytes.Get()
	assert.Equal(t, u64(total-1<<30), s.Memory.OrdinaryBytes())
}

// A thousandth of the available memory would evict pods.
func TestMemoryMeminfoWithoutUnit(t *testing.T) {
	m := recordedMachine(t)
	m.edit("proc/meminfo", "23078680 kB\n", "23078680\n")
	s := m.sample()
	assert.Zero(t, s.Memory.AvailableBytes)
	assert.Equal(t, "without the unit kB in /proc/meminfo", s.Memory.Absent["availableBytes"])
}

func TestMemoryNoSwapIsZero(t *testing.T) {
	s := recordedMachine(t).sample()
	assert.Equal(t, u64(0), s.Memory.SwapTotalBytes)
	assert.NotContains(t, s.Memory.Absent, "swapTotalBytes")
}
