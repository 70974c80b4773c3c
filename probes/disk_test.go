package probes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func diskNames(s *Sample) []string {
	var names []string
	for _, d := range s.Disks {
		names = append(names, d.Name)
	}
	return names
}

func TestLoopRAMAndZramDevicesCountOnceSomebodyUsedThem(t *testing.T) {
	m := recordedMachine(t)
	assert.Equal(t, []string{"vda"}, diskNames(m.sample()))
	m.edit("proc/diskstats", "loop3 0 0 0 0 0", "loop3 1 0 8 0 0")
	m.edit("proc/diskstats", "zram0 0 0 0 0 0", "zram0 0 0 0 0 7")
	assert.Equal(t, []string{"loop3", "vda", "zram0"}, diskNames(m.sample()))
}

func TestPartitionsAreNoDisks(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/diskstats", m.read("proc/diskstats")+" 254       1 vda1 5 0 5 5 5 0 5 5 0 5 5\n")
	m.write("sys/block/vda/vda1/size", "100\n")
	s := m.sample()
	assert.Equal(t, []string{"vda"}, diskNames(s))
	assert.Empty(t, probeError(t, s, "disks"))
}

func TestADiskWithASlashInItsNameIsFoundInSysfs(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/diskstats", m.read("proc/diskstats")+" 104       0 cciss/c0d0 3 0 8 4 5 0 16 6 0 7 8\n")
	m.write("sys/block/cciss!c0d0/size", "2048\n")
	m.write("sys/block/cciss!c0d0/queue/rotational", "0\n")
	d := m.sample().disk("cciss/c0d0")
	require.NotNil(t, d)
	assert.Equal(t, u64(1<<20), d.SizeBytes)
	assert.Equal(t, Some(false), d.Rotational)
	assert.Equal(t, DiskCounters{Reads: 3, ReadBytes: 4096, ReadMs: 4, Writes: 5, WrittenBytes: 8192, WriteMs: 6, BusyMs: 7, WeightedMs: 8}, d.DiskCounters,
		"the eleven fields of kernels before 4.18 are enough")
}

func TestBefore515ADiskHasNoSequenceAndIsStillTheSame(t *testing.T) {
	m := recordedMachine(t)
	m.remove("sys/block/vda/diskseq")
	host, history := m.host(), testHistory()
	s := history.Add(mustSample(t, host))
	assert.True(t, s.Disks[0].Sequence.IsZero())
	assert.Equal(t, "diskseq: no such file or directory", s.Disks[0].Absent["sequence"])
	require.True(t, m.next())
	assert.False(t, history.Add(mustSample(t, host)).Disks[0].Rates.IsZero())
}

func TestAnOddFactOfADiskIsAbsentWithItsFileNamed(t *testing.T) {
	m := recordedMachine(t)
	m.write("sys/block/vda/queue/rotational", "maybe\n")
	m.write("sys/block/vda/size", "36028797018963968\n") // 2^64 bytes: one more than fits
	m.unreadable("sys/block/vda/diskseq")
	d := m.sample().disk("vda")
	assert.Zero(t, d.Rotational)
	assert.Contains(t, d.Absent["rotational"], `rotational: strconv.ParseBool: parsing "maybe"`)
	assert.Zero(t, d.SizeBytes, "not a small number that wrapped around")
	assert.Contains(t, d.Absent["sizeBytes"], errTooLarge.Error())
	assert.Equal(t, "diskseq: invalid argument", d.Absent["sequence"])
}

func TestADiskWithoutALineIsLeftOutAndNoLinesAtAllAreAnError(t *testing.T) {
	m := recordedMachine(t)
	var lines []string
	for line := range strings.Lines(m.read("proc/diskstats")) {
		if !strings.Contains(line, "vda") {
			lines = append(lines, line)
		}
	}
	m.write("proc/diskstats", strings.Join(lines, ""))
	s := m.sample()
	assert.Empty(t, s.Disks, "a hidden path of NVMe multipath looks so")
	assert.Empty(t, probeError(t, s, "disks"))

	m.write("proc/diskstats", "")
	assert.Equal(t, errNoDiskstats.Error(), probeError(t, m.sample(), "disks"))
}

func TestAMachineWithoutDisksIsNoError(t *testing.T) {
	m := recordedMachine(t)
	m.remove("sys/block")
	m.write("sys/block/README", "")
	m.remove("sys/block/README")
	m.write("proc/diskstats", "")
	s := m.sample()
	assert.Empty(t, s.Disks)
	assert.Empty(t, probeError(t, s, "disks"))
}
