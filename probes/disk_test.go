package probes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func diskNames(s *snapshot.Sample) []string {
	var names []string
	for _, d := range s.Disks {
		names = append(names, d.Name)
	}
	return names
}

func TestDiskListedOnceUsed(t *testing.T) {
	m := recordedMachine(t)
	assert.Equal(t, []string{"vda"}, diskNames(m.sample()))
	m.edit("proc/diskstats", "loop3 0 0 0 0 0", "loop3 1 0 8 0 0")
	m.edit("proc/diskstats", "zram0 0 0 0 0 0", "zram0 0 0 0 0 7")
	assert.Equal(t, []string{"loop3", "vda", "zram0"}, diskNames(m.sample()))
}

func TestDiskPartitionsIgnored(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/diskstats", m.read("proc/diskstats")+" 254       1 vda1 5 0 5 5 5 0 5 5 0 5 5\n")
	m.write("sys/block/vda/vda1/size", "100\n")
	s := m.sample()
	assert.Equal(t, []string{"vda"}, diskNames(s))
	assert.Empty(t, probeError(t, s, "disks"))
}

func TestDiskNameWithSlash(t *testing.T) {
	m := recordedMachine(t)
	m.write("proc/diskstats", m.read("proc/diskstats")+" 104       0 cciss/c0d0 3 0 8 4 5 0 16 6 9 7 8\n")
	m.write("sys/block/cciss!c0d0/size", "2048\n")
	m.write("sys/block/cciss!c0d0/queue/rotational", "0\n")
	d := diskOf(m.sample(), "cciss/c0d0")
	require.NotNil(t, d)
	assert.Equal(t, u64(1<<20), d.SizeBytes)
	assert.Equal(t, snapshot.Some(false), d.Rotational)
	assert.Equal(t, snapshot.DiskCounters{Reads: 3, ReadBytes: 4096, ReadMs: 4, Writes: 5, WrittenBytes: 8192, WriteMs: 6, InFlight: 9, BusyMs: 7, WeightedMs: 8}, d.DiskCounters,
		"the eleven fields of kernels before 4.18 are enough")
}

func TestDiskWithoutSequence(t *testing.T) {
	m := recordedMachine(t)
	m.remove("sys/block/vda/diskseq")
	host, history := m.host(), testHistory()
	s := history.Add(mustSample(t, host))
	assert.True(t, s.Disks[0].Sequence.IsZero())
	assert.Equal(t, "diskseq: no such file or directory", s.Disks[0].Absent["sequence"])
	require.True(t, m.next())
	assert.False(t, history.Add(mustSample(t, host)).Disks[0].Rates.IsZero())
}

func TestDiskOddFactAbsent(t *testing.T) {
	m := recordedMachine(t)
	m.write("sys/block/vda/queue/rotational", "maybe\n")
	m.write("sys/block/vda/size", "36028797018963968\n") // 2^64 bytes: one more than fits
	m.unreadable("sys/block/vda/diskseq")
	d := diskOf(m.sample(), "vda")
	assert.Zero(t, d.Rotational)
	assert.Contains(t, d.Absent["rotational"], `rotational: strconv.ParseBool: parsing "maybe"`)
	assert.Zero(t, d.SizeBytes, "not a small number that wrapped around")
	assert.Contains(t, d.Absent["sizeBytes"], parse.ErrTooLarge.Error())
	assert.Equal(t, "diskseq: invalid argument", d.Absent["sequence"])
}

func TestDiskWithoutLine(t *testing.T) {
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

func TestDiskNone(t *testing.T) {
	m := recordedMachine(t)
	m.remove("sys/block")
	m.write("sys/block/README", "")
	m.remove("sys/block/README")
	m.write("proc/diskstats", "")
	s := m.sample()
	assert.Empty(t, s.Disks)
	assert.Empty(t, probeError(t, s, "disks"))
}

// A time that is below the one before has wrapped, unless the device is another.
func TestDiskTimeWrap(t *testing.T) {
	for name, anew := range map[string]bool{"the same": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			m := recordedMachine(t)
			m.write("proc/diskstats", " 254 0 vda 10 0 80 4294967290 5 0 40 4294967290 0 4294967290 4294967290\n")
			h, history := m.host(), testHistory()
			history.Add(mustSample(t, h))
			if anew {
				m.renew("sys/block/vda")
				m.write("sys/block/vda/diskseq", "10\n")
			}
			m.write("proc/diskstats", " 254 0 vda 12 0 96 10 7 0 56 10 0 10 10\n")
			d := history.Add(mustSample(t, h)).Disks[0]
			if anew {
				assert.Zero(t, d.Rates)
				assert.EqualValues(t, 10, d.ReadMs)
				return
			}
			r, ok := d.Rates.Get()
			require.True(t, ok)
			assert.EqualValues(t, 1<<32+10, d.ReadMs)
			assert.InDelta(t, 0.016, r.QueueLength, 1e-9)
		})
	}
}

func TestDiskUnreadableLine(t *testing.T) {
	for _, odd := range []string{
		" 8 0 sdz 1 2 3", " 8 0 sdz 1 0 8 1 1 0 8 1 0 1 -2", " 8 x sdz 1 0 8 1 1 0 8 1 0 1 2", " 8 0", "x",
		" 8 0 sdz 1 0 36028797018963968 1 1 0 8 1 0 1 2", " 8 0 sdz 1 0 8 1 1 0 36028797018963968 1 0 1 2",
	} {
		m := recordedMachine(t)
		m.write("sys/block/sdz/size", "8\n")
		m.write("proc/diskstats", odd+"\n"+m.read("proc/diskstats"))
		s := m.sample()
		assert.Equal(t, []string{"vda"}, diskNames(s), odd)
		assert.Contains(t, probeError(t, s, "disks"), "line ", odd)
	}
}

func TestDiskFactsEveryThirtyReads(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	looks := 0
	for i := range 91 {
		m.write("sys/block/vda/size", fmt.Sprintln(i+1))
		if diskOf(mustSample(t, h), "vda").SizeBytes == u64(uint64(i+1)*sectorBytes) {
			looks++
		}
	}
	assert.Equal(t, 1+3, looks, "once at first, then once in thirty")

	m.write("sys/block/vda/size", "77\n")
	m.edit("proc/diskstats", " vda 846223 ", " vda 3 ")
	assert.Equal(t, u64(77*sectorBytes), diskOf(mustSample(t, h), "vda").SizeBytes, "and when its counters went back")
	m.write("sys/block/vda/size", "78\n")
	m.edit("proc/diskstats", " 254       0 vda", " 254       16 vda")
	d := diskOf(mustSample(t, h), "vda")
	assert.Equal(t, u64(78*sectorBytes), d.SizeBytes, "and when its number is another")
	assert.Equal(t, "254:16", d.Number)
}

func FuzzDiskLine(f *testing.F) {
	f.Add([]byte("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"))
	f.Add([]byte("8 1"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := parseDiskLine(line)
		if err != nil {
			return
		}
		c, err := l.counters()
		if err != nil {
			return
		}
		again := fmt.Sprintf("%d %d %s %d 0 %d %d %d 0 %d %d %d %d %d", l.major, l.minor, l.name,
			c.Reads, c.ReadBytes/sectorBytes, c.ReadMs, c.Writes, c.WrittenBytes/sectorBytes, c.WriteMs, c.InFlight, c.BusyMs, c.WeightedMs)
		l2, err := parseDiskLine([]byte(again))
		require.NoError(t, err)
		c2, err := l2.counters()
		require.NoError(t, err)
		require.Equal(t, c, c2)
	})
}
