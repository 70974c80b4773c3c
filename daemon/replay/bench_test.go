package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// crowd is a busy node's sample with so many pods, a second after the one
// before.
func crowd(n *node, pods int) *snapshot.Sample {
	n.samples = n.samples[:0]
	s := n.seconds(1, 0.01).samples[0]
	s.Workloads = s.Workloads[:0]
	total := uint64(n.at.Microseconds())
	for i := range pods {
		w := snapshot.Workload{
			Cgroup: fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%08x_0000_4000_8000_000000000000.slice", i),
			Inode:  uint64(i + 10), Kind: snapshot.KindPod, Name: fmt.Sprintf("pod %08x", i), PodUID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i),
			At: n.at, DetailAt: n.at, ThrottledAt: n.at,
			MemoryBytes: snapshot.Some(total * 7 % (1 << 32)), InactiveFileBytes: snapshot.Some(total % (1 << 26)), MemoryLimitBytes: snapshot.Some(uint64(1 << 32)),
			LimitHits: snapshot.Some(uint64(0)), OOMKills: snapshot.Some(uint64(0)), SwapBytes: snapshot.Some(uint64(0)), Reclaimed: snapshot.Some(total / 50),
			CPUMicroseconds: snapshot.Some(total * uint64(i+1) / 100), ThrottledMicroseconds: snapshot.Some(total / 1000),
			IO: []snapshot.WorkloadIO{{Number: "259:0", Reads: total / 900, Writes: total / 800, ReadBytes: total * 4, WrittenBytes: total * 5}},
		}
		for _, stall := range []*snapshot.Stall{&w.Pressure.CPU, &w.Pressure.Memory, &w.Pressure.IO} {
			*stall = snapshot.Stall{Some: snapshot.Some(total / 200), Full: snapshot.Some(total / 300)}
		}
		s.Workloads = append(s.Workloads, w)
	}
	s.Disks = []snapshot.Disk{{Name: "nvme0n1", Number: "259:0", Layer: snapshot.LayerLeaf, Kind: "nvme", DiskCounters: snapshot.DiskCounters{
		Reads: total / 90, Writes: total / 80, ReadBytes: total * 40, WrittenBytes: total * 50, ReadMs: total / 9000, WriteMs: total / 9000,
	}}}
	return s
}

// BenchmarkReplay is a recording from its file to the report; one operation is
// one sample.
func BenchmarkReplay(b *testing.B) {
	for _, pods := range []int{10, 250} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "r")
			r, err := probes.CreateRecording(file, "v0.1.0", "")
			require.NoError(b, err)
			n := newNode()
			for range b.N {
				require.NoError(b, r.Add(crowd(n, pods)))
			}
			require.NoError(b, r.Close())
			info, err := os.Stat(file)
			require.NoError(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			p := player(nil)
			require.NoError(b, p.Files(b.Context(), []string{file}, strings.NewReader("")))
			p.Report()
			b.ReportMetric(float64(info.Size())/float64(b.N), "file-B/op")
		})
	}
}

// BenchmarkChain is the same without reading: what is derived and judged.
func BenchmarkChain(b *testing.B) {
	n := newNode()
	var samples []*snapshot.Sample
	for range 300 {
		samples = append(samples, crowd(n, 250))
	}
	b.ReportAllocs()
	b.ResetTimer()
	p := player(nil)
	for i := range b.N {
		if i%len(samples) == 0 {
			p = player(nil)
		}
		p.Add(samples[i%len(samples)])
	}
}
