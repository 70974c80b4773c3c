package vm_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	name := "-" + strings.ToLower(rand.Text()[:6])
	if kept, _ := recordings(); kept != "" {
		name = "" // the archive is the same whoever makes it
	}
	w := newPods(t, name)
	steady, recorder := w.program("./e2e/vm/steady"), w.program("./probes/recordfixture")
	const burstable, guaranteed = "burstable/pod11111111-2222-4333-8444-555555555555", "podaaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	w.set("memory", burstable, "memory.limit_in_bytes", fmt.Sprint(96<<20))
	w.set("cpu", guaranteed+"/c0ffee02", "cpu.cfs_quota_us", "10000")
	w.counted(burstable + "/c0ffee01")
	w.start(burstable+"/c0ffee01", steady, "-file", w.file(), "-write", "8", "-read", "4", "-cpu", "150", "-memory", "48")
	w.start(guaranteed+"/c0ffee02", steady, "-cpu", "300")
	w.start("besteffort/pod99999999-8888-4777-8666-555544443333/c0ffee03", steady, "-memory", "8")
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
	t       *testing.T
	top     string
	dir     string
	running []*exec.Cmd
}

func hierarchies() []string { return []string{"memory", "cpu", "cpuacct", "blkio", "unified"} }

// newPods are below a cgroup of that name, or of a random one.
func newPods(t *testing.T, name string) *pods {
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
	p := &pods{t: t, top: "/plimsoll-recorded" + name, dir: dir}
	t.Cleanup(p.remove)
	t.Cleanup(p.stop)
	return p
}

func (p *pods) program(pkg string) string {
	p.t.Helper()
	binary := filepath.Join(p.dir, "program-"+filepath.Base(pkg))
	build(p.t, pkg, binary)
	return binary
}

func (p *pods) file() string { return filepath.Join(p.dir, "work") }

// set writes a file of a cgroup below kubepods, and makes it.
func (p *pods) set(hierarchy, cgroup, file, content string) {
	p.t.Helper()
	cgroup = filepath.Join(p.top, "kubepods", cgroup)
	for _, h := range hierarchies() {
		require.NoError(p.t, os.MkdirAll(filepath.Join(v1, h, cgroup), 0o755))
	}
	require.NoError(p.t, os.WriteFile(filepath.Join(v1, hierarchy, cgroup, file), []byte(content), 0o600))
}

// counted gives a container a rule of blk-throttle which limits nothing: without one the
// kernel does not count IO.
func (p *pods) counted(container string) {
	p.t.Helper()
	p.set("blkio", container, "blkio.throttle.write_bps_device", p.disk()+" 1000000000000")
}

// start runs a program in a container of a pod below kubepods, or beside them if that is
// empty.
func (p *pods) start(container string, program string, args ...string) *exec.Cmd {
	p.t.Helper()
	cgroup := filepath.Join(p.top, "kubepods", container)
	if container == "" {
		cgroup = filepath.Join(p.top, "system")
	}
	// It enters by itself, so that nothing of it is counted elsewhere.
	var enter strings.Builder
	for _, h := range hierarchies() {
		dir := filepath.Join(v1, h, cgroup)
		require.NoError(p.t, os.MkdirAll(dir, 0o755))
		fmt.Fprintf(&enter, "echo $$ >%s/cgroup.procs && ", dir)
	}
	cmd := exec.Command("sh", append([]string{"-c", enter.String() + `exec "$0" "$@"`, program}, args...)...)
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(p.t, cmd.Start())
	p.running = append(p.running, cmd)
	deadline.Eventually(p.t, func() bool {
		b, err := os.ReadFile(filepath.Join(v1, "unified", cgroup, "cgroup.procs"))
		return err == nil && slices.Contains(strings.Fields(string(b)), fmt.Sprint(cmd.Process.Pid))
	}, 10*time.Second, 10*time.Millisecond)
	return cmd
}

// stop ends what was started, each with all that it started.
func (p *pods) stop() {
	for _, cmd := range p.running {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
	}
	p.running = nil
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
