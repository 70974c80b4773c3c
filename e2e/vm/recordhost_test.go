package vm_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// v1 is where distributions mount the controllers of cgroup v1.
const v1 = "/sys/fs/cgroup"

// TestHostRecordingCgroupV1 records this host, when its cgroups are of v1
// with v2 beside them: pods made as the kubelet's cgroupfs driver makes them,
// with the kernel's counting of IO switched on.
func TestHostRecordingCgroupV1(t *testing.T) {
	w := newPods(t)
	steady, recorder := w.program("./e2e/vm/steady"), w.program("./probes/recordfixture")
	w.start("burstable/pod11111111-2222-4333-8444-555555555555/c0ffee01", true, steady, "-file", w.file(), "-write", "8", "-read", "4", "-cpu", "150", "-memory", "48")
	w.start("podaaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee/c0ffee02", false, steady, "-cpu", "300")
	w.start("besteffort/pod99999999-8888-4777-8666-555544443333/c0ffee03", false, steady, "-memory", "8")
	dir, samples := recordings()
	if dir == "" {
		dir = t.TempDir()
	}
	m := machine{
		name: "host-hybrid",
		load: "cgroup v1 with v2 beside it, pods as of the cgroupfs driver: a burstable one runs steady -write 8 -read 4 -cpu 150 -memory 48" +
			" (its IO is counted), a guaranteed one with a quota of 100 ms runs steady -cpu 300, one of best effort runs steady -memory 8",
		cgroups: w.top + "/kubepods", want: "c0ffee01/memory.stat",
	}
	file := filepath.Join(dir, m.name+".txtar.gz")
	out, err := os.Create(file)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), recorder, "-samples", fmt.Sprint(samples), "-cgroups", m.cgroups, "-note", m.load)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	require.NoError(t, cmd.Run())
	require.NoError(t, out.Close())
	a := readArchive(t, file)
	checkArchive(t, a, m, samples)
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool {
		return strings.HasPrefix(f.Name, "0/") && strings.HasSuffix(f.Name, "c0ffee01/blkio.throttle.io_serviced_recursive")
	})
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, string(a.Files[i].Data), "Write", "its IO is counted")
}

// pods are cgroups of this host, below one of an own name.
type pods struct {
	t   *testing.T
	top string
	dir string
}

func hierarchies() []string { return []string{"memory", "cpu", "cpuacct", "blkio", "unified"} }

func newPods(t *testing.T) *pods {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	for _, h := range hierarchies() {
		if _, err := os.Stat(filepath.Join(v1, h, "cgroup.procs")); err != nil {
			t.Skipf("needs a host with cgroup v1 and v2 beside it: %v", err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "plimsoll-recorded-") //nolint:usetesting // direct IO needs a real disk, which /tmp may not be
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	p := &pods{t: t, top: "/plimsoll-recorded-" + strings.ToLower(rand.Text()[:6]), dir: dir}
	if kept, _ := recordings(); kept != "" {
		p.top = "/plimsoll-recorded" // the archive is the same whoever makes it
	}
	t.Cleanup(p.remove)
	return p
}

func (p *pods) program(pkg string) string {
	p.t.Helper()
	binary := filepath.Join(p.dir, filepath.Base(pkg))
	build(p.t, pkg, binary)
	return binary
}

func (p *pods) file() string { return filepath.Join(p.dir, "work") }

// start runs a program in a container of a pod below kubepods. counted gives
// that a rule of blk-throttle which limits nothing: without one the kernel does
// not count IO.
func (p *pods) start(container string, counted bool, program string, args ...string) {
	p.t.Helper()
	cgroup := filepath.Join(p.top, "kubepods", container)
	for _, h := range hierarchies() {
		require.NoError(p.t, os.MkdirAll(filepath.Join(v1, h, cgroup), 0o755))
	}
	if counted {
		p.write("blkio", cgroup, "blkio.throttle.write_bps_device", p.disk()+" 1000000000000")
		p.write("memory", filepath.Dir(cgroup), "memory.limit_in_bytes", fmt.Sprint(96<<20))
	}
	if !strings.HasPrefix(container, "b") { // guaranteed
		p.write("cpu", cgroup, "cpu.cfs_quota_us", "10000")
	}
	// It enters by itself, so that nothing of it is counted elsewhere.
	var enter strings.Builder
	for _, h := range hierarchies() {
		fmt.Fprintf(&enter, "echo $$ >%s && ", filepath.Join(v1, h, cgroup, "cgroup.procs"))
	}
	cmd := exec.Command("sh", append([]string{"-c", enter.String() + `exec "$0" "$@"`, program}, args...)...)
	require.NoError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	deadline.Eventually(p.t, func() bool {
		b, err := os.ReadFile(filepath.Join(v1, "unified", cgroup, "cgroup.procs"))
		return err == nil && strings.TrimSpace(string(b)) == fmt.Sprint(cmd.Process.Pid)
	}, 10*time.Second, 10*time.Millisecond)
}

func (p *pods) write(hierarchy, cgroup, file, content string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(v1, hierarchy, cgroup, file), []byte(content), 0o600))
}

// disk is the device that the directory is on.
func (p *pods) disk() string {
	p.t.Helper()
	var st unix.Stat_t
	require.NoError(p.t, unix.Stat(p.dir, &st))
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// remove removes the cgroups, the deepest first, once the kernel lets go.
func (p *pods) remove() {
	for _, h := range hierarchies() {
		top := filepath.Join(v1, h, p.top)
		deadline.Eventually(p.t, func() bool {
			var dirs []string
			_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, d := range slices.Backward(dirs) {
				_ = os.Remove(d)
			}
			return len(dirs) == 0
		}, 20*time.Second, 10*time.Millisecond, "remove %s", top)
	}
}
