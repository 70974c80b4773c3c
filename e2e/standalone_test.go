package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestAgentStandalone(t *testing.T) {
	t.Parallel()
	for sig, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 0} {
		t.Run(sig.String(), func(t *testing.T) {
			// A trigger would wake samples between two ticks.
			a := startAgent(t, "--config", configFile(t, "triggers: {enabled: false}\n")).ticked(3)
			s := a.snapshot()
			assert.False(t, s.Memory.TotalBytes.IsZero())
			assert.False(t, s.CPU.BusyRatio.IsZero())
			assert.GreaterOrEqual(t, s.WindowSeconds, 1.0, "of two samples a second apart at least")
			p := a.pressure()
			assert.Equal(t, p.memory(t).Level.String(), p.Levels["memory"])
			assert.Contains(t, a.mustGet("/api/v1/plugins"), `"memory-stall"`)
			assert.Contains(t, a.mustGet("/api/v1/decisions"), `"decisions"`)
			assert.Contains(t, a.mustGet("/"), "<html")
			assert.Contains(t, a.mustGet("/metrics"), "plimsoll_memory_available_bytes ")
			assert.Equal(t, "ok\n", a.mustGet("/-/ready"))
			assert.Equal(t, "ok\n", a.mustGet("/-/healthy"))
			assert.NotEmpty(t, a.stdout.String(), "without a terminal there is a line per change")

			assert.Equal(t, status, a.end(sig))
			assert.NoFileExists(t, a.socket)
			_, _, err := a.get("/")
			require.Error(t, err)
		})
	}
}

func TestAgentMemoryTotalMatchesKernel(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(2)
	b, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	var total uint64
	_, err = fmt.Sscanf(string(b), "MemTotal: %d kB", &total)
	require.NoError(t, err)
	got, ok := a.snapshot().Memory.TotalBytes.Get()
	require.True(t, ok)
	assert.Equal(t, total*1024, got)
}

func TestLocalSocketAloneReloads(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(1)
	resp, err := http.Post(a.url+"/-/reload", "", http.NoBody)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)

	status, body, err := a.local(http.MethodPost, "/-/reload")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status, body)
	info, err := os.Stat(a.socket)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o660), info.Mode().Perm())
}

func TestAgentPublicAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config string
		page   int
	}{{"web: {open: false}", http.StatusNotFound}, {"web: {open: true}", http.StatusOK}} {
		t.Run(c.config, func(t *testing.T) {
			a := prepare(t, "--config", configFile(t, c.config))
			a.cmd.Args = append(a.cmd.Args, "--web.listen-address", "0.0.0.0:0")
			a.start().ticked(1)
			var other string
			eventually(t, "the second address is told", func() error {
				_, after, ok := strings.Cut(a.stderr.String(), "url=http://[::]:")
				if !ok {
					_, after, ok = strings.Cut(a.stderr.String(), "url=http://0.0.0.0:")
				}
				if !ok {
					return errors.New(a.stderr.String())
				}
				other = "http://127.0.0.1:" + strings.SplitN(after, "/", 2)[0]
				return nil
			})
			for path, want := range map[string]int{"/metrics": 200, "/-/healthy": 200, "/": c.page, "/api/v1/snapshot": c.page} {
				status, _, err := get(http.DefaultClient, other+path)
				require.NoError(t, err)
				assert.Equal(t, want, status, path)
			}
		})
	}
}

func TestAgentKilledStaleSocket(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(1)
	a.end(syscall.SIGKILL)
	require.FileExists(t, a.socket)
	b := prepare(t)
	b.cmd.Args = append(b.cmd.Args, "--api.socket", a.socket)
	b.start().ticked(1)
	assert.Zero(t, b.end(syscall.SIGTERM))
}

func TestAgentSecondOnSameSocket(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(1)
	status, _, stderr := run(t, "agent", "--standalone", "--state.dir", filepath.Join(t.TempDir(), "state"), "--api.socket", a.socket, "--web.listen-address", "127.0.0.1:0")
	assert.Equal(t, 1, status)
	assert.Equal(t, "plimsoll: agent: api: socket "+a.socket+": another agent is listening on it\n", stderr)
	status, _, err := a.local(http.MethodGet, "/api/v1/snapshot")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
}

func TestTopWithAndWithoutAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "--node", "ship").ticked(2)
	for socket, mode := range map[string]string{a.socket: "standalone", filepath.Join(t.TempDir(), "none.sock"): "no agent answers; sampled by plimsoll top"} {
		status, stdout, stderr := run(t, "top", "--once", "-o", "json", "--api.socket", socket)
		require.Zero(t, status, stderr)
		var look struct {
			Pressure struct {
				Agent struct{ Mode string }
			}
			Snapshot snapshot.Snapshot
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &look))
		assert.Equal(t, mode, look.Pressure.Agent.Mode)
		assert.Positive(t, look.Snapshot.WindowSeconds, "there are rates at the first look")

		status, stdout, stderr = run(t, "top", "--once", "--api.socket", socket)
		require.Zero(t, status, stderr)
		assert.Contains(t, stdout, "memory-stall")
		assert.NotContains(t, stdout, "\x1b", "no terminal, no escapes")
	}
}

func TestAgentAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	a := prepare(t)
	// The test's own directory is closed to others.
	dir, err := os.MkdirTemp("", "plimsoll-user-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chown(dir, 65534, 65534))
	a.socket = filepath.Join(dir, "plimsoll.sock")
	// In a container that sees the host's processes, this user cannot read which root they have.
	a.cmd.Args = append(a.cmd.Args, "--api.socket", a.socket, "--path.rootfs", "/")
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	a.start().ticked(3)
	s := a.snapshot()
	assert.False(t, s.Memory.TotalBytes.IsZero())
	assert.Contains(t, a.mustGet("/api/v1/pressure"), "not root: values that this user may not read are absent")
	for _, p := range s.Probes {
		assert.Empty(t, p.Error, p.Name)
	}
	assert.Zero(t, a.end(syscall.SIGTERM))
}

func TestAgentConfigReload(t *testing.T) {
	t.Parallel()
	file := configFile(t, "tick: 200ms\nwindow: 2s\n")
	a := startAgent(t, "--config", file).ticked(2)
	tick := func() float64 {
		var p struct{ Agent struct{ TickSeconds float64 } }
		require.NoError(t, json.Unmarshal([]byte(a.mustGet("/api/v1/pressure")), &p))
		return p.Agent.TickSeconds
	}
	require.InDelta(t, 0.2, tick(), 0)

	text := func(tick string) []byte {
		return []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\ntick: " + tick + "\nwindow: 2s\n")
	}
	require.NoError(t, os.WriteFile(file, text("300ms"), 0o644))
	eventually(t, "the file's change is followed", func() error {
		if got := tick(); got != 0.3 {
			return fmt.Errorf("tick %v", got)
		}
		return nil
	})

	require.NoError(t, os.WriteFile(file, text("fast"), 0o644))
	status, body, err := a.local(http.MethodPost, "/-/reload")
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, body, file+":3: tick: ")
	eventually(t, "the page and the metrics say so", func() error {
		if m := a.mustGet("/metrics"); !strings.Contains(m, "plimsoll_config_last_reload_successful 0") {
			return errors.New("still successful")
		}
		return nil
	})
	assert.InDelta(t, 0.3, tick(), 0, "the last good one stays in force")

	require.NoError(t, os.WriteFile(file, text("400ms"), 0o644))
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "a hangup reloads", func() error {
		if got := tick(); got != 0.4 {
			return fmt.Errorf("tick %v", got)
		}
		return nil
	})
	assert.Contains(t, a.mustGet("/metrics"), "plimsoll_config_last_reload_successful 1")
}

func TestRecordingReadBack(t *testing.T) {
	t.Parallel()
	f, err := os.Open(killedRecording(t))
	require.NoError(t, err)
	defer f.Close()
	h := snapshot.History{Window: time.Second, Keep: time.Minute, MaxGap: time.Minute}
	n := 0
	header, err := probes.Play(f, func(s *snapshot.Sample) error {
		n++
		h.Add(s)
		return nil
	})
	if err != nil {
		require.ErrorIs(t, err, probes.ErrTruncated)
	}
	assert.GreaterOrEqual(t, n, 11, "a kill loses no sample that was published a tick before")
	assert.Contains(t, header.Command, "plimsoll agent")
}

// A peer's defect: one hung file makes the first scrape endless. Here a probe
// hangs for good, and whoever asks is still answered.
func TestAgentHungKernelFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	proc := filepath.Join(root, "proc")
	copyProc(t, proc)
	a := startAgent(t, "--config", configFile(t, "tick: 100ms\nwindow: 1s\nwatchdog: 2s\npaths: {procfs: "+proc+"}\n")).ticked(2)
	vmstat, hung := filepath.Join(proc, "vmstat"), filepath.Join(root, "hung")
	require.NoError(t, syscall.Mkfifo(hung, 0o644)) // opening it waits for a writer that never comes
	require.NoError(t, os.Rename(linked(t, hung), vmstat))
	failing := func(path string) func() error {
		return func() error {
			status, body, err := a.get(path)
			if err != nil || status == http.StatusServiceUnavailable && strings.Contains(body, "sample: ") {
				return err
			}
			return fmt.Errorf("%d %s", status, body)
		}
	}
	within(t, patience, "not ready, and the part is named", failing("/-/ready"))
	assert.Contains(t, a.mustGet("/metrics"), "plimsoll_memory_available_bytes")
	assert.Contains(t, a.mustGet("/"), "<html")
	within(t, patience, "not healthy after the watchdog's time", failing("/-/healthy"))
	assert.Contains(t, a.mustGet("/metrics"), "plimsoll_memory_available_bytes")

	// The file answers at last, when nobody can open it again.
	copyFile(t, "/proc/vmstat", filepath.Join(root, "vmstat"))
	require.NoError(t, os.Rename(filepath.Join(root, "vmstat"), vmstat))
	w, err := os.OpenFile(hung, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	eventually(t, "ready again by itself", func() error {
		if status, body, err := a.get("/-/ready"); err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %s %w", status, body, err)
		}
		return nil
	})

	require.NoError(t, os.Rename(linked(t, hung), vmstat))
	eventually(t, "it reads the file again, which has nothing to read", func() (err error) {
		w, err = os.OpenFile(hung, os.O_WRONLY|syscall.O_NONBLOCK, 0) // opens only while it is opened for reading
		return err
	})
	defer w.Close()
	start := deadline.Start()
	assert.Equal(t, 1, a.end(syscall.SIGTERM), "it ends all the same")
	t.Logf("ended %s after SIGTERM (bound 10s)", start.Passed().Round(time.Millisecond))
	assert.Less(t, start.Elapsed(), 10*time.Second)
	assert.Contains(t, a.stderr.String(), "plimsoll: agent: shutdown timed out after 5s")
}

// linked is another name of a file, to be renamed over one that is read.
func linked(t *testing.T, file string) string {
	t.Helper()
	require.NoError(t, os.Link(file, file+".link"))
	return file + ".link"
}

func TestAgentStdoutBlocked(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	fd := int(w.Fd())
	require.NoError(t, syscall.SetNonblock(fd, true))
	for err == nil { // until the pipe is full
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	require.NoError(t, syscall.SetNonblock(fd, false))
	a := prepare(t)
	a.cmd.Stdout = w
	a.start().ticked(3)
	assert.Equal(t, "ok\n", a.mustGet("/-/ready"))
	start := deadline.Start()
	assert.Zero(t, a.end(syscall.SIGTERM))
	assert.Less(t, start.Elapsed(), 10*time.Second)
}

func TestAgentWithoutPSI(t *testing.T) {
	t.Parallel()
	proc := filepath.Join(t.TempDir(), "proc")
	copyProc(t, proc)
	require.NoError(t, os.RemoveAll(filepath.Join(proc, "pressure")))
	a := startAgent(t, "--path.procfs", proc).ticked(3)
	var said []string
	for line := range strings.Lines(a.stdout.String()) {
		if strings.Contains(line, "no PSI (") && !strings.Contains(line, " not judged: ") {
			said = append(said, line)
		}
	}
	require.Len(t, said, 1, a.stdout.String())
	assert.Contains(t, said[0], "cpu, memory, io: no PSI (kernel built without CONFIG_PSI")
	assert.True(t, a.snapshot().Pressure.Memory.Full.IsZero())
	assert.Equal(t, plugins.None, a.pressure().memory(t).Level)
	assert.Contains(t, a.pressure().memory(t).Absent, "PSI")
	assert.NotContains(t, a.mustGet("/metrics"), "plimsoll_pressure_ratio{resource=\"memory\"")
}

// copyProc makes a procfs of plain files out of the real one.
func copyProc(t *testing.T, to string) {
	t.Helper()
	for _, f := range []string{
		"stat", "meminfo", "vmstat", "diskstats", "net/softnet_stat", "sys/kernel/random/boot_id",
		"pressure/cpu", "pressure/memory", "pressure/io", "1/net/dev", "1/net/snmp", "1/net/netstat", "1/mountinfo", "self/mountinfo", "filesystems",
	} {
		copyFile(t, filepath.Join("/proc", f), filepath.Join(to, f))
	}
	require.NoError(t, os.Mkdir(filepath.Join(to, "1/fd"), 0o700)) // it watches nothing
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	write(t, to, string(b))
}

func TestBadInputOneLine(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	unknown := configFile(t, "plugins:\n  memoryStall:\n    soft:\n      stallFul: 0.2\n")
	unit := configFile(t, "tick: 10\n")
	fifo := filepath.Join(t.TempDir(), "s")
	write(t, fifo, "no socket")
	socket := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"unknown key", []string{"agent", "--standalone", "--config", unknown}, 1, `plimsoll: config: ` + unknown + `:6: plugins.memoryStall.soft.stallFul: unknown key (did you mean "stallFull"?)`},
		{"wrong unit", []string{"agent", "--standalone", "--config", unit}, 1, `plimsoll: config: ` + unit + `:3: tick: `},
		{"wrong unit, checked", []string{"config", "check", unit}, 1, `plimsoll: config: ` + unit + `:3: tick: `},
		{"no such file", []string{"config", "check", "/none.yaml"}, 1, "plimsoll: config: stat /none.yaml: no such file or directory"},
		{"no proc", []string{"agent", "--standalone", "--path.procfs", "/none"}, 1, "plimsoll: agent: procfs /none: "},
		{"not mounted proc", []string{"agent", "--standalone", "--path.procfs", t.TempDir()}, 1, "(is it mounted?)"},
		{"port in use", []string{"agent", "--standalone", "--api.socket", socket, "--web.listen-address", taken.Addr().String()}, 1, "plimsoll: agent: web: listen on " + taken.Addr().String() + ": address already in use"},
		{"no socket", []string{"agent", "--standalone", "--api.socket", fifo}, 1, "plimsoll: agent: api: socket " + fifo + ": it exists and is not a socket"},
		{"bad address", []string{"agent", "--standalone", "--web.listen-address", "here"}, 1, "web.listenAddresses"},
		{"no cluster", []string{"agent", "--api.socket", socket}, 2, "plimsoll: agent: no kubeconfig: set --kubeconfig, or --standalone to run without a cluster"},
		{"a cluster, standalone", []string{"agent", "--standalone", "--kubeconfig", "/none/config"}, 2, "plimsoll: agent: --standalone and --kubeconfig exclude each other"},
		{"no kubeconfig", []string{"agent", "--api.socket", socket, "--kubeconfig", "/none/config"}, 1, "plimsoll: agent: kubeconfig: stat /none/config: no such file"},
		{"bad kubeconfig", []string{"agent", "--api.socket", socket, "--kubeconfig", unit}, 1, "plimsoll: agent: kubeconfig: "},
		{"unknown command", []string{"sail"}, 2, "plimsoll: unknown command \"sail\"; see plimsoll --help"},
		{"unknown flag", []string{"agent", "--sail"}, 2, "plimsoll: agent: unknown flag: --sail; see plimsoll agent --help"},
		{"bad output", []string{"top", "--once", "-o", "xml"}, 2, `plimsoll: -o "xml": want text, json or yaml`},
		{"no recording is named", []string{"replay"}, 2, "plimsoll: replay: missing argument: plimsoll replay RECORDING..."},
		{"bad form of a replay", []string{"replay", "-o", "xml", unit}, 2, `plimsoll: replay: -o "xml": want table, json or svg`},
		{"no such recording", []string{"replay", "/none.rec"}, 1, "plimsoll: replay: open /none.rec: no such file or directory"},
		{"no recording", []string{"replay", unit}, 1, "plimsoll: replay: " + unit + ": recording: damaged, or no recording: gzip: invalid header"},
		{"a directory for a recording", []string{"replay", filepath.Dir(unit)}, 1, "plimsoll: replay: " + filepath.Dir(unit) + ": no segments of a recording in it (files such as 0000000001-20260301T120000Z.rec)"},
		{"bad configuration of a replay", []string{"replay", "--config", unit, "/none.rec"}, 1, `plimsoll: config: ` + unit + `:3: tick: `},
		{"missing argument", []string{"config", "check"}, 2, "plimsoll: config check: missing argument: plimsoll config check FILE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.args[0] == "agent" { // another one may run on this machine
				c.args = append(c.args, "--state.dir", filepath.Join(t.TempDir(), "state"))
			}
			status, _, stderr := run(t, c.args...)
			assert.Equal(t, c.status, status, stderr)
			assert.Contains(t, stderr, c.says)
			var said []string
			for line := range strings.Lines(stderr) {
				if !strings.Contains(line, "level=") {
					said = append(said, line)
				}
			}
			assert.Len(t, said, 1, stderr)
		})
	}
}

func TestConfigPrintIsAccepted(t *testing.T) {
	t.Parallel()
	_, printed, _ := run(t, "config", "print")
	file := write(t, filepath.Join(t.TempDir(), "agent.yaml"), printed)
	status, stdout, stderr := run(t, "config", "check", file)
	assert.Zero(t, status, stderr)
	assert.Equal(t, file+": ok\n", stdout)
}

func TestDoctorWithoutAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s", "plimsoll.sock")
	status, stdout, stderr := run(t, "doctor", "--api.socket", socket, "--web.listen-address", "127.0.0.1:0")
	assert.Zero(t, status, stdout)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "PASS  probe pressure")

	bad := configFile(t, "tick: 10\nwindo: 3s\n")
	status, stdout, _ = run(t, "doctor", "-o", "json", "--config", bad, "--api.socket", socket, "--web.listen-address", "127.0.0.1:0")
	assert.Equal(t, 1, status)
	var rows []struct{ Result, Check, Finding string }
	decode(t, stdout, &rows)
	assert.Equal(t, "FAIL", rows[0].Result)
	assert.Contains(t, rows[0].Finding, bad+":3: tick: ")
	assert.Contains(t, rows[1].Finding, bad+":4: windo: ")
}
