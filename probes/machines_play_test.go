package probes

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// player extracts a machine that ./recordfixture recorded, sample after sample,
// below a directory. As in the kernel a file stays the same one while its
// content changes.
type player struct {
	*testing.T
	dir     string
	comment string
	samples [][]txtar.File
	at      int           // the sample that the files are of
	clock   time.Duration // CLOCK_MONOTONIC of that machine
}

func playMachine(t *testing.T, name string) *player {
	t.Helper()
	f, err := os.Open("testdata/machines/" + name + ".txtar.gz")
	require.NoError(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(packed)
	require.NoError(t, err)
	a := txtar.Parse(text)
	p := &player{T: t, dir: t.TempDir(), comment: string(a.Comment), at: -1}
	for _, file := range a.Files {
		number, path, ok := strings.Cut(file.Name, "/")
		n, err := strconv.Atoi(number)
		require.True(t, ok && err == nil && n <= len(p.samples), file.Name)
		if n == len(p.samples) {
			p.samples = append(p.samples, nil)
		}
		p.samples[n] = append(p.samples[n], txtar.File{Name: path, Data: file.Data})
	}
	require.True(t, p.next())
	return p
}

// next puts the next sample's files in place, as long as there are some.
func (p *player) next() bool {
	p.Helper()
	p.at++
	if p.at >= len(p.samples) {
		return false
	}
	for _, f := range p.samples[p.at] {
		switch path, link := strings.CutSuffix(f.Name, "@"); {
		case f.Name == "monotonic":
			ns, err := strconv.ParseInt(strings.TrimSpace(string(f.Data)), 10, 64)
			require.NoError(p, err)
			p.clock = time.Duration(ns)
		case f.Name == "removed":
			for gone := range strings.Lines(string(f.Data)) {
				p.remove(strings.TrimSuffix(strings.TrimSpace(gone), "@"))
			}
		case f.Name == "unreadable":
			for line := range strings.Lines(string(f.Data)) {
				p.unreadable(strings.TrimSpace(line))
			}
		case link:
			p.link(path, strings.TrimSpace(string(f.Data)))
		default:
			p.write(f.Name, f.Data)
		}
	}
	return true
}

func (p *player) path(path string) string { return filepath.Join(p.dir, path) }

func (p *player) write(path string, data []byte) {
	p.Helper()
	require.NoError(p, os.MkdirAll(filepath.Dir(p.path(path)), 0o755))
	if _, err := os.Readlink(p.path(path)); err == nil { // it could not be read until now
		require.NoError(p, os.Remove(p.path(path)))
	}
	require.NoError(p, os.WriteFile(p.path(path), data, 0o644))
}

// link makes a link that leads nowhere here, but for a namespace: that one is a
// file, for which namespace it is its inode tells.
func (p *player) link(path, target string) {
	p.Helper()
	if strings.HasPrefix(target, "net:[") {
		p.write("namespaces/"+target, nil)
		target = p.path("namespaces/" + target)
	}
	require.NoError(p, os.MkdirAll(filepath.Dir(p.path(path)), 0o755))
	_ = os.Remove(p.path(path)) // it may have led elsewhere
	require.NoError(p, os.Symlink(target, p.path(path)))
}

// remove removes a file, and its directory when that was the last one in it.
func (p *player) remove(path string) {
	p.Helper()
	require.NoError(p, os.Remove(p.path(path)))
	for err := error(nil); err == nil; {
		path = filepath.Dir(path)
		err = os.Remove(p.path(path))
	}
}

// unreadable creates a file that fails to be read with EINVAL, which only a
// kernel file can: the speed of every machine's lo. Files with other errors are
// left out.
func (p *player) unreadable(line string) {
	p.Helper()
	const lo = "/sys/class/net/lo/speed"
	for _, why := range []unix.Errno{unix.EOPNOTSUPP, unix.EACCES, unix.ENOENT} {
		if strings.HasSuffix(line, ": "+why.Error()) {
			return
		}
	}
	path, ok := strings.CutSuffix(line, ": "+unix.EINVAL.Error())
	require.True(p, ok, line)
	_, err := os.ReadFile(lo)
	require.ErrorIs(p, err, unix.EINVAL, "this test needs sysfs")
	require.NoError(p, os.MkdirAll(filepath.Dir(p.path(path)), 0o755))
	require.NoError(p, os.Symlink(lo, p.path(path)))
}

// play reads every sample with one Host and gives the snapshots, of a window
// of ten seconds. each, if any, is given the samples as they are read.
func (p *player) play(each func(*snapshot.Sample)) []*snapshot.Snapshot {
	p.Helper()
	h, err := NewHost(Paths{Procfs: p.path("proc"), Sysfs: p.path("sys"), Cgroupfs: p.path("sys/fs/cgroup")}, nil)
	require.NoError(p, err)
	h.clock = func(int32) (time.Duration, error) { return p.clock, nil }
	h.FollowNUMA(true)
	recent := history()
	var all []*snapshot.Snapshot
	for more := true; more; more = p.next() {
		s, err := h.Read()
		require.NoError(p, err)
		if each != nil {
			each(s)
		}
		all = append(all, recent.Add(s))
	}
	return all
}

func history() *snapshot.History {
	return &snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
}

// median is the median over all snapshots with a whole window, and their
// number.
func median(all []*snapshot.Snapshot, of func(*snapshot.Snapshot) snapshot.Opt[float64]) (value float64, said int) {
	var values []float64
	for _, s := range all {
		if v, ok := of(s).Get(); ok && s.WindowSeconds > 9 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, 0
	}
	slices.Sort(values)
	return values[len(values)/2], len(values)
}

// wantSteady compares a rate with the machine's load.
func wantSteady(t *testing.T, all []*snapshot.Snapshot, what string, want, tolerance float64, of func(*snapshot.Snapshot) snapshot.Opt[float64]) {
	t.Helper()
	v, said := median(all, of)
	assert.GreaterOrEqual(t, said, 30, "%s: how many snapshots have it", what)
	assert.InEpsilon(t, want, v, tolerance, what)
	t.Logf("%-40s %12.3f of %.3f, %d times", what, v, want, said)
}

// diskRate is one of a disk's rates.
func diskRate(name string, of func(snapshot.DiskRates) float64) func(*snapshot.Snapshot) snapshot.Opt[float64] {
	return func(s *snapshot.Snapshot) snapshot.Opt[float64] {
		i := slices.IndexFunc(s.Disks, func(d snapshot.DiskState) bool { return d.Name == name })
		if i < 0 {
			return snapshot.Opt[float64]{}
		}
		r, ok := s.Disks[i].Rates.Get()
		if !ok {
			return snapshot.Opt[float64]{}
		}
		return snapshot.Some(of(r))
	}
}

func writtenMiB(r snapshot.DiskRates) float64 { return r.WrittenBytesPerSecond / (1 << 20) }
func readMiB(r snapshot.DiskRates) float64    { return r.ReadBytesPerSecond / (1 << 20) }

// workloadRate is one of the rates of the workload whose cgroup holds part.
func workloadRate(part string, of func(snapshot.WorkloadRates) snapshot.Opt[float64]) func(*snapshot.Snapshot) snapshot.Opt[float64] {
	return func(s *snapshot.Snapshot) snapshot.Opt[float64] {
		i := slices.IndexFunc(s.Workloads, func(w snapshot.WorkloadState) bool { return strings.Contains(w.Cgroup, part) })
		if i < 0 {
			return snapshot.Opt[float64]{}
		}
		r, ok := s.Workloads[i].Rates.Get()
		if !ok {
			return snapshot.Opt[float64]{}
		}
		return of(r)
	}
}

// ioRate is one of the IO rates of a workload on the device of that number.
func ioRate(part, number string, of func(snapshot.WorkloadIORates) float64) func(*snapshot.Snapshot) snapshot.Opt[float64] {
	return workloadRate(part, func(r snapshot.WorkloadRates) snapshot.Opt[float64] {
		for _, io := range r.IO {
			if io.Number == number {
				return snapshot.Some(of(io))
			}
		}
		return snapshot.Opt[float64]{}
	})
}

func cores(r snapshot.WorkloadRates) snapshot.Opt[float64] { return r.CPUCores }
func ioWrittenMiB(r snapshot.WorkloadIORates) float64      { return r.WrittenBytesPerSecond / (1 << 20) }

func ioReadMiB(r snapshot.WorkloadIORates) float64 { return r.ReadBytesPerSecond / (1 << 20) }

// wantNoErrors has the probes succeed in every sample, but those named.
func wantNoErrors(t *testing.T, all []*snapshot.Snapshot, named map[string]string) {
	t.Helper()
	for i, s := range all {
		for _, p := range s.Probes {
			if p.Name == "filesystems" {
				continue // a table of mounts is not recorded
			}
			if !assert.Equal(t, named[p.Name], p.Error, "sample %d: %s", i, p.Name) {
				return
			}
		}
	}
}

// wantMonotone has no counter of one device, workload or host go back.
func wantMonotone(t *testing.T, all []*snapshot.Snapshot) {
	t.Helper()
	last := map[string]uint64{}
	follow := func(name string, v uint64) {
		assert.GreaterOrEqual(t, v, last[name], name)
		last[name] = v
	}
	for _, s := range all {
		for name, v := range hostCounters(s) {
			follow(name, v)
		}
		for i := range s.Disks {
			d := &s.Disks[i]
			id := fmt.Sprintf("%s %v ", d.Name, d.Sequence)
			follow(id+"reads", d.Reads)
			follow(id+"written", d.WrittenBytes)
			follow(id+"read ms", d.ReadMs)
			follow(id+"weighted", d.WeightedMs)
		}
		for i := range s.NICs {
			n := &s.NICs[i]
			id := fmt.Sprintf("%s %v ", n.Name, n.Index)
			follow(id+"received", n.ReceiveBytes)
			follow(id+"sent", n.TransmitPackets)
		}
		for i := range s.Workloads {
			w := &s.Workloads[i].Workload
			for name, v := range workloadCounters(w) {
				follow(fmt.Sprintf("%s %d %s", w.Cgroup, w.Inode, name), v)
			}
		}
	}
	require.NotEmpty(t, last)
}

func hostCounters(s *snapshot.Snapshot) map[string]uint64 {
	all := map[string]snapshot.Opt[uint64]{
		"scans": s.Memory.ScansKswapd, "refaults": s.Memory.Refaults, "kills": s.Memory.Memory.OOMKills,
		"cpu some": s.Pressure.Totals.CPU.Some, "memory full": s.Pressure.Totals.Memory.Full, "io full": s.Pressure.Totals.IO.Full,
		"segments": s.Network.TCPSegmentsSent, "squeezed": s.Network.SoftnetSqueezed,
	}
	there := map[string]uint64{"busy": uint64(1000 * (s.CPU.Seconds["user"] + s.CPU.Seconds["system"]))}
	for name, o := range all {
		if v, ok := o.Get(); ok {
			there[name] = v
		}
	}
	return there
}

func workloadCounters(w *snapshot.Workload) map[string]uint64 {
	all := map[string]snapshot.Opt[uint64]{
		"cpu": w.CPUMicroseconds, "throttled": w.ThrottledMicroseconds, "hits": w.LimitHits, "kills": w.OOMKills,
		"cpu some": w.Pressure.CPU.Some, "memory some": w.Pressure.Memory.Some, "io full": w.Pressure.IO.Full,
	}
	there := map[string]uint64{}
	for name, o := range all {
		if v, ok := o.Get(); ok {
			there[name] = v
		}
	}
	for _, io := range w.IO {
		there[io.Number+" writes"], there[io.Number+" read"] = io.Writes, io.ReadBytes
	}
	if n, ok := w.Network.Get(); ok {
		there[fmt.Sprintf("%d received", n.Namespace)] = n.ReceiveBytes
	}
	return there
}

// pods of a snapshot, by UID.
func podsOf(s *snapshot.Snapshot) []snapshot.WorkloadState {
	var pods []snapshot.WorkloadState
	for _, w := range s.Workloads {
		if w.Kind == snapshot.KindPod {
			pods = append(pods, w)
		}
	}
	slices.SortFunc(pods, func(a, b snapshot.WorkloadState) int { return cmp.Compare(a.PodUID, b.PodUID) })
	return pods
}
