package probes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Our parsers are compared with the library on files of real kernels.
func TestDeviceParsersMatchLibrary(t *testing.T) {
	m := recordedMachine(t)
	h := m.host()
	for more := true; more; more = m.next() {
		s := mustSample(t, h)
		block, err := blockdevice.NewFS(m.path("proc"), m.path("sys"))
		require.NoError(t, err)
		disks, err := block.ProcDiskstats()
		require.NoError(t, err)
		compared := 0
		for _, d := range disks {
			if ours := diskOf(s, d.DeviceName); ours != nil {
				compared++
				assert.Equal(t, snapshot.DiskCounters{
					Reads: d.ReadIOs, ReadBytes: d.ReadSectors * sectorBytes, ReadMs: d.ReadTicks, Writes: d.WriteIOs,
					WrittenBytes: d.WriteSectors * sectorBytes, WriteMs: d.WriteTicks, InFlight: d.IOsInProgress, BusyMs: d.IOsTotalTicks, WeightedMs: d.WeightedIOTicks,
				}, ours.DiskCounters)
			}
		}
		assert.Equal(t, len(s.Disks), compared)
		p, err := h.proc.Proc(1)
		require.NoError(t, err)
		nics, err := p.NetDev()
		require.NoError(t, err)
		require.Len(t, s.NICs, len(nics))
		for name, n := range nics {
			assert.Equal(t, snapshot.NICCounters{
				ReceiveBytes: n.RxBytes, ReceivePackets: n.RxPackets, ReceiveErrors: n.RxErrors, ReceiveDrops: n.RxDropped,
				TransmitBytes: n.TxBytes, TransmitPackets: n.TxPackets, TransmitErrors: n.TxErrors, TransmitDrops: n.TxDropped,
			}, nicOf(s, name).NICCounters)
		}
	}
}

// largeMachine has the devices of a node with 250 pods and 100 disks, made up.
func largeMachine(tb testing.TB) (*Host, string) {
	tb.Helper()
	m := &machineTree{T: &testing.T{}, dir: tb.TempDir()}
	m.write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n")
	var nics, disks strings.Builder
	nics.WriteString("Inter-| Receive\n face |bytes\n")
	for i := range 250 {
		name := fmt.Sprintf("veth%08x", i)
		fmt.Fprintf(&nics, "%s: 83579252   24705    0    0    0     0          0         0 83579252   24705    0    0    0     0       0          0\n", name)
		for file, content := range map[string]string{"ifindex": fmt.Sprintln(i + 10), "iflink": "2\n", "type": "1\n", "address": "02:00:00:00:00:01\n", "carrier": "1\n"} {
			m.write("sys/class/net/"+name+"/"+file, content)
		}
	}
	for i := range 100 {
		name := fmt.Sprintf("sd%03d", i)
		fmt.Fprintf(&disks, " 8 %d %s 5354716 490700 1141758138 7669229 1992395 909389 292926632 2782529 0 910956 10714352 2103708 495 565726104 252488 83391 10104\n", i*16, name)
		fmt.Fprintf(&disks, " 8 %d %s1 5354716 490700 1141758138 7669229 1992395 909389 292926632 2782529 0 910956 10714352 2103708 495 565726104 252488 83391 10104\n", i*16+1, name)
		for file, content := range map[string]string{"size": "2048\n", "diskseq": fmt.Sprintln(i + 1), "queue/rotational": "0\n"} {
			m.write("sys/block/"+name+"/"+file, content)
		}
	}
	m.write("proc/1/net/dev", nics.String())
	m.write("proc/diskstats", disks.String())
	h, err := NewHost(Paths{Procfs: m.path("proc"), Sysfs: m.path("sys")}, nil)
	require.NoError(tb, err)
	return h, m.dir
}

// The counters of devices cost no allocation each: only the list allocates, and
// the looks that are due.
func TestDeviceReadAllocatesLittle(t *testing.T) {
	h, _ := largeMachine(t)
	read := func(read func(*snapshot.Sample) error) float64 {
		require.NoError(t, read(&snapshot.Sample{}))
		return testing.AllocsPerRun(factsEvery, func() {
			if err := read(&snapshot.Sample{}); err != nil {
				panic(err)
			}
		})
	}
	assert.Less(t, read(h.nics.read), 60.0, "of 250 NICs")
	assert.Less(t, read(h.disks.read), 120.0, "of 100 disks")
}

func BenchmarkReadNICs(b *testing.B) {
	h, dir := largeMachine(b)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := h.nics.read(&snapshot.Sample{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("procfs, without facts", func(b *testing.B) {
		fs, err := procfs.NewFS(filepath.Join(dir, "proc"))
		require.NoError(b, err)
		p, err := fs.Proc(1)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.NetDev(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReadDisks(b *testing.B) {
	h, dir := largeMachine(b)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := h.disks.read(&snapshot.Sample{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("procfs, without facts", func(b *testing.B) {
		fs, err := blockdevice.NewFS(filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fs.ProcDiskstats(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
