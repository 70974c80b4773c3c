package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

func patient(t *testing.T) Examination {
	return Examination{
		Paths:     probes.Paths{Procfs: "/proc", Sysfs: "/sys"},
		Socket:    filepath.Join(t.TempDir(), "s", "plimsoll.sock"),
		Addresses: []string{"127.0.0.1:0"},
		StateDir:  filepath.Join(t.TempDir(), "state"),
		Disk:      new(state.Writer),
	}
}

func row(t *testing.T, rows []Row, check string) Row {
	t.Helper()
	for _, r := range rows {
		if r.Check == check {
			return r
		}
	}
	require.Failf(t, "no such row", "%s in %v", check, rows)
	return Row{}
}

func TestDoctorOnThisMachine(t *testing.T) {
	before := openCgroupFiles(t) // the Go runtime has its own
	rows := patient(t).Examine(t.Context())
	for _, r := range rows {
		assert.NotEmpty(t, r.Finding, r.Check)
		assert.NotContains(t, r.Finding, "\n", r.Check)
	}
	assert.Equal(t, Pass, row(t, rows, "kernel").Result)
	assert.Equal(t, Pass, row(t, rows, "probe memory").Result)
	assert.Equal(t, Pass, row(t, rows, "local socket").Result)
	assert.Equal(t, Pass, row(t, rows, "web address").Result)
	assert.Equal(t, before, openCgroupFiles(t), "an agent is asked again and again")
}

// openCgroupFiles are those of this process.
func openCgroupFiles(t *testing.T) (open []string) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range list {
		if path, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(path, "/sys/fs/cgroup/") {
			open = append(open, path)
		}
	}
	return open
}

// The disk of the state directory hangs: an examination says so, and the next one does not wait
// for it again.
func TestDoctorDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, hangs := Examination{StateDir: t.TempDir(), Disk: new(state.Writer)}, make(chan struct{})
		require.ErrorIs(t, p.Disk.Do(0, func() error { <-hangs; return nil }), state.ErrTimeout)
		synctest.Wait() // it has begun
		for _, waited := range []time.Duration{diskTimeout, 0} {
			start := time.Now()
			rows := p.stateDir(false)
			require.Len(t, rows, 1)
			assert.Equal(t, Fail, rows[0].Result)
			assert.Equal(t, "state directory", rows[0].Check)
			assert.Contains(t, rows[0].Finding, "its disk does not answer within 3s")
			assert.Equal(t, waited, time.Since(start))
		}
		close(hangs)
		synctest.Wait()
		assert.Len(t, p.stateDir(false), 2, "it answers again")
	})
}

func TestDoctorConfigErrorsOneRowEach(t *testing.T) {
	p := patient(t)
	p.ConfigFile, p.ConfigErrors = "a.yaml", []string{"a.yaml:3: tick: x", "a.yaml:4: window: y"}
	rows := p.config()
	assert.Equal(t, []Row{{Fail, "configuration", "a.yaml:3: tick: x"}, {Fail, "configuration", "a.yaml:4: window: y"}}, rows)
	assert.True(t, Failed(rows))
	p.ConfigErrors = nil
	assert.False(t, Failed(p.config()))
}

func TestDoctorWithoutPSI(t *testing.T) {
	proc := t.TempDir()
	for _, f := range []string{"stat", "meminfo", "vmstat", "diskstats", "1/net/dev", "net/softnet_stat"} {
		b, err := os.ReadFile(filepath.Join("/proc", f))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(proc, f)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, f), b, 0o644))
	}
	p := patient(t)
	p.Paths.Procfs = proc
	r := row(t, p.Examine(t.Context()), "probe pressure")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "CONFIG_PSI")
}

func TestDoctorLinkSpeedUnknown(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		proc + "/stat": "cpu 1 2 3 4\n", proc + "/1/net/dev": "1\n2\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
		sys + "/class/net/eth0/speed": "-1\n", sys + "/class/net/eth0/device/vendor": "1\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	p := patient(t)
	p.Paths.Procfs, p.Paths.Sysfs = proc, sys
	p.Filesystems = probes.FilesystemConfig{}
	r := row(t, p.Examine(t.Context()), "link speed")
	assert.Equal(t, Warn, r.Result)
	assert.Equal(t, "unknown for eth0: full links are not detected (set the speed in network.devices)", r.Finding)
	p.Network.Devices = []probes.NetworkDevice{{Name: "eth0", Speed: 1000}}
	for _, r := range p.Examine(t.Context()) {
		assert.NotEqual(t, "link speed", r.Check)
	}
}

func TestDoctorProcNotMounted(t *testing.T) {
	p := patient(t)
	p.Paths.Procfs = t.TempDir()
	r := row(t, p.Examine(t.Context()), "kernel files")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "is it mounted?")
}

func TestDoctorPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := patient(t)
	p.Addresses = []string{l.Addr().String()}
	r := row(t, p.Examine(t.Context()), "web address")
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "in use by another program")
	assert.Equal(t, Pass, address(t.Context(), l.Addr().String(), true).Result, "unless it is our own agent's")
}

func TestDoctorSocketCannotBeMade(t *testing.T) {
	p := patient(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.Socket = filepath.Join(file, "plimsoll.sock")
	r := p.socket(notThere(t, p))
	assert.Equal(t, Fail, r.Result)
	assert.Contains(t, r.Finding, "not a directory")
}

func notThere(t *testing.T, p Examination) error {
	t.Helper()
	err := client(p).Ping(t.Context())
	require.Error(t, err)
	return err
}

func TestDoctorSocketAnswersNonsense(t *testing.T) {
	p := patient(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(p.Socket), 0o755))
	l, err := net.Listen("unix", p.Socket)
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail\r\n")) // whatever becomes of it
			_ = c.Close()
		}
	}()
	assert.Equal(t, Fail, p.socket(notThere(t, p)).Result)
}

func TestDoctorProbeNoteWarns(t *testing.T) {
	probe := snapshot.Probe{Name: "workloads", Duration: 30 * time.Millisecond}
	assert.Equal(t, Row{Pass, "probe workloads", "read in 30ms"}, probeRow(probe, &snapshot.Sample{}))
	probe.Note = "read every 3rd tick: it costs 3 % of a core"
	assert.Equal(t, Row{Warn, "probe workloads", "read in 30ms: read every 3rd tick: it costs 3 % of a core"}, probeRow(probe, &snapshot.Sample{}))
	probe.Error = "no cgroup layout"
	assert.Equal(t, Row{Warn, "probe workloads", "no cgroup layout"}, probeRow(probe, &snapshot.Sample{}), "the error counts for more")
}

func TestDoctorUnknownSpeedNICs(t *testing.T) {
	assert.Equal(t, []string{"eth0"}, unknownSpeed([]snapshot.NIC{
		{Name: "eth0", Physical: true},
		{Name: "eth1", Physical: true, SpeedBytesPerSecond: snapshot.Some(uint64(1))},
		{Name: "veth0"},
	}))
}

func TestDoctorKernelRelease(t *testing.T) {
	for release, want := range map[string][2]int{
		"6.1.0-28-amd64": {6, 1}, "5.4": {5, 4}, "4.18.0-553.el8.x86_64": {4, 18}, "6.12-rc1": {6, 12},
	} {
		major, minor, ok := kernelVersion(release)
		assert.True(t, ok, release)
		assert.Equal(t, want, [2]int{major, minor}, release)
	}
	for _, release := range []string{"", "6", "six.one"} {
		_, _, ok := kernelVersion(release)
		assert.False(t, ok, release)
	}
}

func TestDoctorProbeFailOrWarn(t *testing.T) {
	s := &snapshot.Sample{}
	assert.Equal(t, Fail, probeRow(snapshot.Probe{Name: "vmstat", Error: "x"}, s).Result)
	assert.Equal(t, Fail, probeRow(snapshot.Probe{Name: "pressure", Error: "x"}, s).Result)
	s.Pressure.Memory.Full = snapshot.Some(uint64(1))
	assert.Equal(t, Warn, probeRow(snapshot.Probe{Name: "pressure", Error: "io: x"}, s).Result)
	assert.Equal(t, Warn, probeRow(snapshot.Probe{Name: "nics", Error: "x"}, s).Result)
	assert.True(t, strings.HasPrefix(probeRow(snapshot.Probe{Name: "nics"}, s).Finding, "read in"))
}
