package probes

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestHostRecordedValues(t *testing.T) {
	s := recordedMachine(t).sample()
	want := &snapshot.Sample{
		BootID: "b0071d00-0000-4000-8000-000000000000",
		CPU: snapshot.CPU{Online: snapshot.Some(2), Seconds: map[string]float64{
			"user": 3027.45, "nice": 981.59, "system": 867.54, "idle": 5955.49, "iowait": 23.82, "irq": 0, "softirq": 6.94, "steal": 8.5,
		}},
		Memory: snapshot.Memory{
			TotalBytes: u64(24684084 << 10), AvailableBytes: u64(23078680 << 10), FreeBytes: u64(22079192 << 10),
			SwapTotalBytes: u64(0), SwapFreeBytes: u64(0), InactiveFileBytes: u64(427470848),
			ScansDirect: u64(172983), ScansKswapd: u64(8027157), Refaults: u64(10170466), Reclaimed: u64(831316),
			OOMKills: u64(107), SwapIns: u64(0), SwapOuts: u64(0),
		},
		Pressure: snapshot.Pressure{
			CPU:    snapshot.Stall{Some: u64(1238962593)},
			Memory: snapshot.Stall{Some: u64(6370778), Full: u64(3534851)},
			IO:     snapshot.Stall{Some: u64(31169346), Full: u64(13851423)},
		},
		Network: snapshot.Network{TCPSegmentsSent: u64(41744), TCPRetransmits: u64(28), ListenDrops: u64(0), SoftnetSqueezed: u64(0)},
		Disks: []snapshot.Disk{{
			Name: "vda", Number: "254:0", Sequence: u64(9), Rotational: snapshot.Some(true), SizeBytes: u64(256 << 30),
			Kind: "disk", Layer: snapshot.LayerLeaf, Absent: snapshot.Absent{"wwid": "wwid: no such file or directory"},
			DiskCounters: snapshot.DiskCounters{
				Reads: 846223, ReadBytes: 44194083840, ReadMs: 635088,
				Writes: 119500, WrittenBytes: 14736039936, WriteMs: 80399,
				BusyMs: 73448, WeightedMs: 732051,
			},
		}},
		NICs: []snapshot.NIC{
			{
				Name: "eth0", Index: snapshot.Some(4), Address: snapshot.Some("02:00:00:00:00:04"), Physical: true, Kind: "physical", Layer: snapshot.LayerLeaf,
				NICCounters: snapshot.NICCounters{ReceiveBytes: 510291486, ReceivePackets: 23109, TransmitBytes: 1904087, TransmitPackets: 17209},
				Absent:      snapshot.Absent{"speedBytesPerSecond": "speed: unknown to the driver (-1)", "carrier": "carrier: no such file or directory"},
			},
			{Name: "ifb0", Index: snapshot.Some(2), Address: snapshot.Some("02:00:00:00:00:02"), Kind: "virtual", Layer: snapshot.LayerStacked, Absent: noSpeed()},
			{Name: "ifb1", Index: snapshot.Some(3), Address: snapshot.Some("02:00:00:00:00:03"), Kind: "virtual", Layer: snapshot.LayerStacked, Absent: noSpeed()},
			{
				Name: "lo", Index: snapshot.Some(1), Address: snapshot.Some("00:00:00:00:00:00"), Kind: "loopback", Layer: snapshot.LayerStacked, Absent: noSpeed(),
				NICCounters: snapshot.NICCounters{ReceiveBytes: 83579252, ReceivePackets: 24705, TransmitBytes: 83579252, TransmitPackets: 24705},
			},
		},
	}
	assert.Empty(t, cmp.Diff(want, s, measured(), nearly()))
}

func noSpeed() snapshot.Absent {
	return snapshot.Absent{
		"speedBytesPerSecond": "the link is down, or a device of this kind has no speed",
		"carrier":             "carrier: no such file or directory", // was not recorded
	}
}

// nearly equal, since hundredths of seconds are no binary fractions.
func nearly() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
}

// The rates are the differences of the first and the last file, by hand, over
// the ten seconds between them.
func TestHostRecordedRates(t *testing.T) {
	m := recordedMachine(t)
	host, history := m.host(), testHistory()
	last := history.Add(mustSample(t, host))
	for m.next() {
		last = history.Add(mustSample(t, host))
	}
	require.EqualValues(t, 11, last.Sequence)
	require.InDelta(t, 10, last.WindowSeconds, 1e-9)
	r, ok := last.Disks[0].Rates.Get()
	require.True(t, ok)
	assert.InDelta(t, (896309-846223)/10.0, r.ReadsPerSecond, 1e-6)
	assert.InDelta(t, (124258-119500)/10.0, r.WritesPerSecond, 1e-6)
	assert.InDelta(t, (92495706-86316570)*512/10.0, r.ReadBytesPerSecond, 1e-3)
	assert.InDelta(t, (35090904-28781328)*512/10.0, r.WrittenBytesPerSecond, 1e-3)
	assert.InDelta(t, (79004-73448)/10_000.0, r.BusyRatio, 1e-9)
	assert.InDelta(t, (739289-732051)/10_000.0, r.QueueLength, 1e-9)
	await, ok := r.ReadAwaitSeconds.Get()
	require.True(t, ok)
	assert.InDelta(t, (639847-635088)/1000.0/(896309-846223), await, 1e-9)
	await, ok = r.WriteAwaitSeconds.Get()
	require.True(t, ok)
	assert.InDelta(t, (82297-80399)/1000.0/(124258-119500), await, 1e-9)
	kills, ok := last.Memory.MemoryRates.OOMKills.Get()
	require.True(t, ok)
	assert.EqualValues(t, 2, kills)
	busy, ok := last.CPU.BusyRatio.Get()
	require.True(t, ok)
	const before, after = 302745 + 98159 + 86754 + 694 + 850, 303036 + 98972 + 87569 + 756 + 850
	assert.InDelta(t, (after-before)/100.0/(10*2), busy, 1e-9)
}

// Some peers add what they read to what they had: a second read of files that
// did not change must give the same.
func TestHostReadTwice(t *testing.T) {
	h := recordedMachine(t).host()
	first, second := mustSample(t, h), mustSample(t, h)
	assert.Empty(t, cmp.Diff(first, second, measured()))
}

func TestHostProcfsMissing(t *testing.T) {
	empty := t.TempDir()
	_, err := NewHost(Paths{Procfs: empty, Sysfs: empty}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Contains(t, err.Error(), "is it mounted?")
	assert.NotContains(t, err.Error(), "\n")

	_, err = NewHost(Paths{Procfs: "/nowhere", Sysfs: empty}, nil)
	require.ErrorContains(t, err, "procfs /nowhere")
	_, err = NewHost(Paths{Procfs: recordedMachine(t).path("proc"), Sysfs: "/nowhere"}, nil)
	require.ErrorContains(t, err, "sysfs /nowhere")
}

func TestHostClockError(t *testing.T) {
	for _, broken := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME} {
		h := recordedMachine(t).host()
		h.clock = func(id int32) (time.Duration, error) {
			if id == broken {
				return 0, unix.EINVAL
			}
			return time.Second, nil
		}
		_, err := h.Read()
		require.ErrorIs(t, err, unix.EINVAL)
		assert.ErrorContains(t, err, "read CLOCK_")
	}
}

func TestKernelClocksAdvance(t *testing.T) {
	before, err := kernelClock(unix.CLOCK_BOOTTIME)
	require.NoError(t, err)
	after, err := kernelClock(unix.CLOCK_BOOTTIME)
	require.NoError(t, err)
	assert.Positive(t, before)
	assert.GreaterOrEqual(t, after, before)
	_, err = kernelClock(-9999)
	assert.ErrorIs(t, err, unix.EINVAL)
}

func TestProbePanicIsItsError(t *testing.T) {
	s := &snapshot.Sample{}
	observe(s, "odd", func(*snapshot.Sample) error {
		var columns []string
		return errors.New(columns[3])
	})
	observe(s, "well", func(*snapshot.Sample) error { return nil })
	assert.Contains(t, probeError(t, s, "odd"), "panic: runtime error: index out of range")
	assert.Empty(t, probeError(t, s, "well"))
}

func TestProbeErrorsOneLine(t *testing.T) {
	assert.NoError(t, oneLine(nil))
	assert.EqualError(t, oneLine([]error{errors.New("a"), fmt.Errorf("b: %w", os.ErrNotExist)}), "a; b: file does not exist")
}

func TestHostCgroupFlavour(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	_, err := h.CgroupFlavour()
	require.Error(t, err)

	m.write("cgroup/cgroup.controllers", "memory\n")
	m.write("cgroup/cgroup.procs", "")
	m.write("cgroup/a/cgroup.procs", "1\n")
	h.paths.Cgroupfs = m.path("cgroup")
	h.FollowRoots(nil)
	flavour, err := h.CgroupFlavour()
	require.NoError(t, err)
	assert.Equal(t, "v2", flavour)
	assert.Empty(t, probeError(t, mustSample(t, h), "workloads"))
}

// A reload of the configuration finds the layout again. What is known of the workloads stays
// where it is as before, and where it cannot be found for the moment.
func TestHostReloadKeepsWorkloads(t *testing.T) {
	m := recordedMachine(t)
	m.write("cgroup/cgroup.controllers", "memory\n")
	m.write("cgroup/cgroup.procs", "")
	m.write("cgroup/a/cgroup.procs", "1\n")
	h := m.host()
	h.paths.Cgroupfs = m.path("cgroup")
	h.FollowRoots(nil)
	reader := h.cgroups
	require.Len(t, mustSample(t, h).Workloads, 1)

	h.FollowRoots(nil)
	assert.Same(t, reader, h.cgroups)
	h.paths.Cgroupfs = m.path("away")
	h.FollowRoots(nil)
	assert.Same(t, reader, h.cgroups)
	assert.Len(t, mustSample(t, h).Workloads, 1)

	h.FollowRoots([]string{"/b"})
	assert.Contains(t, probeError(t, mustSample(t, h), "workloads"), "find cgroups")
	h.paths.Cgroupfs = m.path("cgroup")
	assert.Empty(t, probeError(t, mustSample(t, h), "workloads"), "it is tried again")
	assert.NotSame(t, reader, h.cgroups)
}

// This machine's own kernel: every probe but cgroups must work on any Linux.
func TestHostOnThisMachine(t *testing.T) {
	h, err := NewHost(Paths{Procfs: "/proc", Sysfs: "/sys"}, nil)
	require.NoError(t, err)
	s := mustSample(t, h)
	assert.Empty(t, probeError(t, s, "cpu"))
	assert.Empty(t, probeError(t, s, "memory"))
	assert.Empty(t, probeError(t, s, "vmstat"))
	assert.Empty(t, probeError(t, s, "nics"))
	assert.NotEmpty(t, s.BootID)
	total, ok := s.Memory.TotalBytes.Get()
	require.True(t, ok)
	var info unix.Sysinfo_t
	require.NoError(t, unix.Sysinfo(&info))
	assert.EqualValues(t, info.Totalram*uint64(info.Unit), total)
	assert.NotNil(t, nicOf(s, "lo"))
}
