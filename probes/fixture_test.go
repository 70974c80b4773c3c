package probes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// machineTree is a recorded machine's proc and sys, extracted to be read and
// spoiled.
type machineTree struct {
	*testing.T
	dir     string
	archive *txtar.Archive
	at      int // the sample that the files are of
}

// recordedMachine extracts the first sample of a machine that
// ./recordfixture recorded: a VM with an idle network, on whose disk dd wrote
// and read past the page cache.
func recordedMachine(t *testing.T) *machineTree {
	t.Helper()
	a, err := txtar.ParseFile("testdata/machines/vm-linux-6.18-direct-io.txtar")
	require.NoError(t, err)
	m := &machineTree{T: t, dir: t.TempDir(), archive: a, at: -1}
	m.next()
	for line := range strings.Lines(string(a.Comment)) {
		if path, ok := strings.CutPrefix(line, "unreadable "); ok {
			path, ok = strings.CutSuffix(path, ": invalid argument\n")
			require.True(t, ok, line)
			m.unreadable(path)
		}
	}
	return m
}

// next puts the next sample's files in place, as long as there are some.
func (m *machineTree) next() bool {
	m.Helper()
	m.at++
	some := false
	for _, f := range m.archive.Files {
		if path, ok := strings.CutPrefix(f.Name, fmt.Sprintf("%d/", m.at)); ok {
			m.write(path, string(f.Data))
			some = true
		}
	}
	return some
}

func (m *machineTree) path(path string) string { return filepath.Join(m.dir, path) }

func (m *machineTree) write(path, content string) {
	m.Helper()
	require.NoError(m, os.MkdirAll(filepath.Dir(m.path(path)), 0o755))
	_ = os.Remove(m.path(path)) // it may be a link to what cannot be written
	require.NoError(m, os.WriteFile(m.path(path), []byte(content), 0o644))
}

func (m *machineTree) read(path string) string {
	m.Helper()
	b, err := os.ReadFile(m.path(path))
	require.NoError(m, err)
	return string(b)
}

// edit replaces what must be there.
func (m *machineTree) edit(path, old, now string) {
	m.Helper()
	content := m.read(path)
	require.Contains(m, content, old, path)
	m.write(path, strings.Replace(content, old, now, 1))
}

func (m *machineTree) remove(path string) {
	m.Helper()
	require.NoError(m, os.RemoveAll(m.path(path)))
}

// renew makes a device of sysfs anew under its name.
func (m *machineTree) renew(path string) {
	m.Helper()
	require.NoError(m, madeAnew(m.path(path)))
}

// madeAnew re-creates a directory: its files are the same, its inode is not.
func madeAnew(dir string) error {
	old := dir + ".old"
	return errors.Join(os.Rename(dir, old), os.CopyFS(dir, os.DirFS(old)), os.RemoveAll(old))
}

// unreadable creates a file that exists and fails to be read with EINVAL, which
// only a kernel file can: the speed of every machine's lo.
func (m *machineTree) unreadable(path string) {
	m.Helper()
	const lo = "/sys/class/net/lo/speed"
	_, err := os.ReadFile(lo)
	require.ErrorIs(m, err, unix.EINVAL, "this test needs sysfs")
	_ = os.Remove(m.path(path))
	require.NoError(m, os.Symlink(lo, m.path(path)))
}

// files are all but those that nothing reads.
func (m *machineTree) files() []string {
	var files []string
	for _, f := range m.archive.Files {
		if path, ok := strings.CutPrefix(f.Name, "0/"); ok && filepath.Base(path) != "device" {
			files = append(files, path)
		}
	}
	return files
}

// host reads the tree; its clocks move by one tick a read.
func (m *machineTree) host() *Host {
	m.Helper()
	h, err := NewHost(Paths{Procfs: m.path("proc"), Sysfs: m.path("sys")}, nil)
	require.NoError(m, err)
	h.clock = func(int32) (time.Duration, error) { return time.Hour + time.Duration(h.reads)*testTick, nil }
	return h
}

func (m *machineTree) sample() *snapshot.Sample {
	m.Helper()
	return mustSample(m.T, m.host())
}

func mustSample(t *testing.T, h *Host) *snapshot.Sample {
	t.Helper()
	s, err := h.Read()
	require.NoError(t, err)
	return s
}

// probeError is a probe's error, empty if it succeeded.
func probeError(t *testing.T, s *snapshot.Sample, name string) string {
	t.Helper()
	for _, p := range s.Probes {
		if p.Name == name {
			return p.Error
		}
	}
	require.Fail(t, "no such probe", name)
	return ""
}

// sameSamples compares Samples and Snapshots without the private links of a
// History.
func sameSamples() cmp.Options {
	return cmp.Options{
		cmp.Exporter(func(t reflect.Type) bool { return strings.HasPrefix(t.Name(), "Opt[") }),
		cmpopts.IgnoreFields(snapshot.Disk{}, "series"), cmpopts.IgnoreFields(snapshot.NIC{}, "series"),
		cmpopts.IgnoreFields(snapshot.Workload{}, "series"), cmpopts.IgnoreFields(snapshot.WorkloadState{}, "throttles"),
		cmpopts.IgnoreFields(snapshot.Snapshot{}, "points", "columns", "ended", "from"), cmpopts.IgnoreFields(snapshot.Cluster{}, "byUID"),
		cmpopts.EquateEmpty(),
	}
}

// measured is a Sample without what differs from read to read.
func measured() cmp.Options {
	return cmp.Options{
		sameSamples(), cmpopts.IgnoreFields(snapshot.Sample{}, "Time", "Monotonic", "Boottime", "Probes"),
	}
}

const testTick = time.Second

func testHistory() *snapshot.History {
	return &snapshot.History{Window: 10 * testTick, Keep: 2 * time.Minute, MaxGap: 3 * testTick}
}

func u64(n uint64) snapshot.Opt[uint64] { return snapshot.Some(n) }

func twoPods() []snapshot.Pod {
	return []snapshot.Pod{{UID: "u1"}, {UID: "u2"}}
}
