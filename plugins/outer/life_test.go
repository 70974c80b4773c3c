package outer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// TestMain also runs as the programs that the tests start.
func TestMain(m *testing.M) {
	switch os.Getenv("PLIMSOLL_TEST_PROGRAM") {
	case "plugin":
		runPlugin(os.Args[1])
	case "watcher":
		runWatcher(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// runPlugin serves at a path until it is killed.
func runPlugin(path string) {
	t := &standaloneTB{}
	newFake("child").serve(t, path)
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

// standaloneTB replaces testing.TB in a program that is no test.
type standaloneTB struct{ testing.TB }

func (*standaloneTB) Helper()                  {}
func (*standaloneTB) Cleanup(func())           {}
func (*standaloneTB) Context() context.Context { return context.Background() }
func (*standaloneTB) FailNow()                 { os.Exit(1) }
func (*standaloneTB) Errorf(f string, a ...any) {
	fmt.Fprintf(os.Stderr, f, a...)
}

// start runs this test program as another, named as its file is, until it has
// said that it serves.
func start(t *testing.T, program, exe string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(exe, args...)
	c.Env = append(os.Environ(), "PLIMSOLL_TEST_PROGRAM="+program)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "serving\n", line)
	return c
}

func TestOuterKilledPluginReturns(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	w := newPluginEnv(t).run()
	for range 5 {
		c := start(t, "plugin", exe, w.path("child.sock"))
		w.waitFor("child")
		w.round()
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		begun := deadline.Start()
		w.waitFor()
		assert.Less(t, begun.Elapsed(), 2*time.Second)
		_ = c.Wait()
		require.FileExists(t, w.path("child.sock"))
	}
}

func TestOuterPluginReturnsOften(t *testing.T) {
	comings := live.Times(60, 1000)
	w := newPluginEnv(t).run()
	f := newFake("p")
	come := func(removes bool) {
		f.serve(t, w.path("p.sock"))
		w.waitFor("p")
		w.round("a")
		f.kill()
		if removes {
			require.NoError(t, os.Remove(w.path("p.sock")))
		}
		w.waitFor()
	}
	for i := range 50 { // what is made once is made
		come(i%2 == 0)
	}
	goroutines, fds, heap := inUse(t)
	f.forget()
	for i := range comings {
		come(i%2 == 0)
	}
	registered := 0
	for _, s := range f.statuses() {
		assert.True(t, s.GetPluginRegistered())
		registered++
	}
	infos := 0
	for _, c := range f.calls() {
		if c == "GetInfo" {
			infos++
		}
	}
	assert.InDelta(t, comings, infos, float64(max(3, comings/100)), "once each time; one that does not answer in time is asked again")
	assert.LessOrEqual(t, registered, comings, "killed before it was told, perhaps")
	assert.GreaterOrEqual(t, registered, comings*9/10)
	f.forget()
	eventually(t, "as few goroutines and files as before", func() bool {
		g, n, _ := inUse(t)
		return g <= goroutines+5 && n <= fds+3
	})
	_, _, after := inUse(t)
	assert.Less(t, int64(after)-int64(heap), int64(4<<20), "bytes of memory that %d plugins left", comings)
	t.Logf("heap %d KiB before, %d KiB after; %d of %d were told", heap>>10, after>>10, registered, comings)
}

func inUse(t *testing.T) (goroutines, fds int, heap uint64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), len(entries), m.HeapAlloc
}

func TestOuterConnectionsEndWithHost(t *testing.T) {
	w := newPluginEnv(t)
	for i := range 5 {
		newFake(fmt.Sprint("p", i)).serve(t, w.path(fmt.Sprint("p", i, ".sock")))
	}
	w.run().waitFor("p0", "p1", "p2", "p3", "p4")
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	assert.Empty(t, w.names())
}

// A user who may write to the directory may delete a socket's name; the plugin
// behind it goes on.
func TestOuterLivesWithConnection(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	registered := w.registry.plugins()[0]
	require.NoError(t, os.Remove(w.path("p.sock")))
	w.lookAgain()
	require.Equal(t, []*plugin{registered}, w.registry.plugins())
	f.forget()
	w.round()
	assert.Contains(t, f.calls(), "ThresholdMet")
	eventually(t, "it alone is listed", func() bool { list := w.Status(time.Now()); return len(list) == 1 && list[0].Up })
	f.kill()
	w.waitFor()
	eventually(t, "forgotten", func() bool { return len(w.Status(time.Now())) == 0 })
}

func TestOuterSocketTakenOverRefused(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	old, next := newFake("p"), newFake("p")
	old.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	next.serve(t, w.path("p.sock")) // the old one still runs
	eventually(t, "told", func() bool { return len(next.statuses()) > 0 })
	assert.Equal(t, `refused: name "p" is taken by the plugin at `+w.path("p.sock"), next.statuses()[0].GetError())
	old.forget()
	w.round()
	assert.NotContains(t, next.calls(), "ThresholdMet")
	assert.Contains(t, old.calls(), "ThresholdMet")
	status := w.Status(time.Now())
	require.Len(t, status, 2, "the one that is asked, and the one at its place")
	assert.True(t, status[0].Up)
	assert.Contains(t, status[1].Problem, "is taken")
	old.kill()
	eventually(t, "registered", next.registered)
	w.waitFor("p")
}

// A new plugin with the name of one that hangs gets the name within the limit of a
// call; one that answers, if only with errors, keeps its name.
func TestNameOfHungPlugin(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	w := newPluginEnv(t, func(c *Config) { c.CallTimeout = time.Second })
	hung := start(t, "plugin", exe, w.path("first.sock"))
	failing := newFake("failing")
	failing.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		return nil, errors.New("broken")
	}
	failing.serve(t, w.path("failing.sock"))
	w.run().waitFor("child", "failing")
	for range failuresToOpen {
		w.round()
	}
	require.NoError(t, hung.Process.Signal(syscall.SIGSTOP))
	heir, taker := newFake("child"), newFake("failing")
	begun, clock := deadline.Start(), time.Now()
	heir.serve(t, w.path("heir.sock"))
	taker.serve(t, w.path("taker.sock"))
	eventually(t, "registered", heir.registered)
	took := begun.Elapsed()
	t.Logf("the name of a plugin that hangs was free after %s (limit of a call: %s)", took.Round(time.Millisecond), w.config.CallTimeout)
	assert.Less(t, took, 2*w.config.CallTimeout)
	assert.GreaterOrEqual(t, time.Since(clock), w.config.CallTimeout*9/10, "one that is slow for a moment keeps its name")
	eventually(t, "told", func() bool { return len(taker.statuses()) > 0 })
	assert.Contains(t, taker.statuses()[0].GetError(), "is taken")
	w.waitFor("child", "failing")
}

// A plugin that begins to hang after another one was refused its name loses it as soon,
// however often that one was refused before.
func TestNameOfPluginThatHangsLater(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Deadline, c.CallTimeout = 100*time.Millisecond, 3*time.Second })
	first := newFake("p")
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	var hangs atomic.Bool
	first.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		if hangs.Load() {
			<-hang
		}
		return hardMet("s"), nil
	}
	first.serve(t, w.path("first.sock"))
	w.run().waitFor("p")
	heir := newSocket(t.Context(), w.Host, w.path("heir.sock"), fileIdentity{})
	_, err := w.registry.take(&plugin{name: "p", socket: heir})
	require.ErrorContains(t, err, "is taken")
	w.registry.mu.Lock()
	w.registry.sockets[heir.path] = heir
	w.registry.mu.Unlock()
	w.round()
	assert.Empty(t, heir.wake)
	hangs.Store(true)
	w.round()
	eventually(t, "woken", func() bool { return len(heir.wake) == 1 })
}

// A plugin that answers GetInfo with an error answers.
func TestNameOfPluginThatRefusesInfo(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.CallTimeout = time.Second })
	f := newFake("p")
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	p := w.registry.plugins()[0]
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable, codes.Internal, codes.DeadlineExceeded} {
		f.refuseInfo.Store(status.New(code, "not now"))
		assert.False(t, p.isDead(t.Context(), time.Minute), code)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, p.isDead(ended, time.Minute), "it was not asked")
	f.kill()
	w.waitFor()
	assert.True(t, p.isDead(t.Context(), time.Minute))
}

func TestOuterConfigRemovesPlugin(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Config){
		"by name":      func(c *Config) { c.Names = []string{"other"} },
		"by user":      func(c *Config) { c.Uids = []string{"4711"} },
		"by directory": func(c *Config) { c.Dirs = []string{"/nowhere"} },
		"by token":     func(c *Config) { c.Strict, c.TokenDir = true, "/nowhere" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t)
			var config atomic.Pointer[Config]
			config.Store(&w.config)
			w.Settings = func() Config { return *config.Load() }
			f := newFake("p")
			f.serve(t, w.path("p.sock"))
			w.run().waitFor("p")
			changed := w.config
			change(&changed)
			config.Store(&changed)
			require.NoError(t, os.WriteFile(w.path("touch"), nil, 0o600)) // a walk
			w.waitFor()
			assert.Empty(t, w.round())
		})
	}
}

// A plugin that was refused is asked again as soon as the configuration has changed,
// however long it would have waited.
func TestOuterConfigAdmitsPlugin(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	s := newSocket(t.Context(), w.Host, w.path("p.sock"), fileIdentity{})
	scan := func() {
		w.registry.sockets = map[string]*socket{s.path: s}
		w.scan(t.Context(), nil, new(sync.WaitGroup))
	}
	scan()
	for len(s.wake) > 0 {
		<-s.wake
	}
	scan()
	require.Empty(t, s.wake, "nothing has changed")
	w.config.Uids = append(slices.Clone(w.config.Uids), "4711")
	scan()
	assert.Len(t, s.wake, 1)
}

// What a plugin may do follows the configuration and its rivals, also when it has ended.
func TestStandingOfPlugin(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	before := w.config
	link := &connection{peer: &unix.Ucred{}}
	p := &plugin{host: w.Host, name: "p", socket: &socket{host: w.Host, path: w.path("p.sock")}, link: link, endpoint: link}
	w.registry.registered = map[string]*plugin{"p": p}
	searched := map[string]bool{w.dir: true}
	w.rivals.newest.Store(&knownRivals{searched: searched})
	standing := func(name string) string {
		s := w.Standing(name)
		assert.Equal(t, name == "q", s.Unknown)
		return fmt.Sprintf("%q %q", s.Beside, s.Excluded)
	}
	for _, what := range []string{"registered", "ended"} {
		if what == "ended" {
			delete(w.registry.registered, "p")
			w.registry.counts.unregistered(p.remains(), time.Now())
		}
		assert.Equal(t, `"" ""`, standing("p"), what)
		w.config.Uids = []string{"4711"}
		assert.Equal(t, `"" "user 0 is not in plugins.uids"`, standing("p"), what)
		w.config = before
		w.config.Strict = true
		assert.Equal(t, `"" "plugins.strict wants a token, and it presented none"`, standing("p"), what)
		w.config = before
		w.config.Beside = BesideMark
		w.rivals.newest.Store(&knownRivals{searched: searched, byDir: map[string][]Rival{w.dir: {{Dir: w.dir, PID: 1 << 30}}}})
		assert.Equal(t, `"mark" ""`, standing("p"), what)
		w.config = before
		assert.Contains(t, standing("p"), "may ask this plugin, too", what)
		w.rivals.newest.Store(&knownRivals{}) // as a directory that is made anew
		assert.Equal(t, Standing{Beside: plugins.BesideReport, Unknown: true}, w.Standing("p"), what)
		w.config.Beside = BesideAct
		assert.Equal(t, Standing{}, w.Standing("p"), what)
		w.config = before
		w.rivals.newest.Store(&knownRivals{searched: searched})
	}
	assert.Equal(t, `"" "no plugin of this name has registered since the agent started"`, standing("q"))
}

func TestDiscoverLaterDirectory(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Dirs = append(c.Dirs, filepath.Join(c.Dirs[0]+"-later", "plugins")) })
	t.Cleanup(func() { _ = os.RemoveAll(w.dir + "-later") })
	w.run()
	require.NoError(t, os.MkdirAll(w.config.Dirs[1], 0o755))
	f := newFake("p")
	f.serve(t, filepath.Join(w.config.Dirs[1], "p.sock"))
	w.waitFor("p")
}

func TestOuterDenseNodePodsFit(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	r := Round{Time: time.Now(), Graces: noGrace{}, MaxAge: time.Minute}
	for i := range 250 {
		r.Pods = append(r.Pods, katalyst.Pod{UID: fmt.Sprint(i), Wire: append(podBytes(t, fmt.Sprint(i)), padding(16<<10)...)})
	}
	assert.Empty(t, verdict(t, w.Ask(t.Context(), r), "s").Absent)
	r.Pods[0].Wire = append(podBytes(t, "0"), padding(1<<20)...)
	assert.Contains(t, verdict(t, w.Ask(t.Context(), r), "s").Absent, "ResourceExhausted", "the plugin's own limit, which the pods are fitted to")
}

// padding is a field that no pod has, of about so many bytes.
func padding(n int) []byte {
	field := []byte{0x92, 0x3e, byte(n&0x7f | 0x80), byte(n >> 7 & 0x7f), 0}
	field[3] |= 0x80
	field[4] = byte(n >> 14)
	return append(field, make([]byte, n)...)
}

// runWatcher watches a directory by inotify, as Katalyst's agent does.
func runWatcher(dir string) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(dir)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// showRival gives the host a /proc of two processes: this one, and a child in another cgroup.
// In one cgroup with this one, which serves the plugins, a child counts as a part of them.
func (w *pluginEnv) showRival(pid int) (process string) {
	w.t.Helper()
	w.Procfs = w.t.TempDir()
	own := fmt.Sprint(os.Getpid())
	require.NoError(w.t, os.Symlink(own, filepath.Join(w.Procfs, "self")))
	require.NoError(w.t, os.Symlink("/proc/"+own, filepath.Join(w.Procfs, own)))
	process = filepath.Join(w.Procfs, fmt.Sprint(pid))
	require.NoError(w.t, os.Mkdir(process, 0o700))
	for _, name := range []string{"comm", "fd", "fdinfo", "mountinfo", "ns"} {
		require.NoError(w.t, os.Symlink(fmt.Sprintf("/proc/%d/%s", pid, name), filepath.Join(process, name)))
	}
	require.NoError(w.t, os.WriteFile(filepath.Join(process, "cgroup"), []byte("0::/rival\n"), 0o600))
	return process
}

// Another process watches one of two plugin directories, as katalyst-agent does.
func TestBesideARival(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	for beside, want := range map[string]plugins.Beside{
		BesideExclusive: "", BesideReport: plugins.BesideReport, BesideMark: plugins.BesideMark, BesideAct: "",
	} {
		t.Run(beside, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t, func(c *Config) { c.Beside = beside })
			own := filepath.Join(w.dir, "own")
			require.NoError(t, os.Mkdir(own, 0o700))
			shared, ours := newFake("shared"), newFake("ours")
			shared.threshold, ours.threshold = thresholdOf(hardMet("s")), thresholdOf(hardMet("s"))
			shared.serve(t, w.path("shared.sock"))
			ours.serve(t, filepath.Join(own, "ours.sock"))
			rival := start(t, "watcher", exe, w.dir)
			shown := w.showRival(rival.Process.Pid)
			w.run()
			eventually(t, "seen", func() bool { return len(w.Rivals()) == 1 })
			assert.Equal(t, rival.Process.Pid, w.Rivals()[0].PID)
			if beside == BesideExclusive {
				w.leavesToRival(shared, rival.Process.Pid)
			} else {
				w.waitFor("ours", "shared")
				eventually(t, "all processes are examined", func() bool {
					return maps.Equal(map[string]plugins.Beside{"shared": want, "ours": ""}, w.beside())
				})
			}
			require.NoError(t, rival.Process.Kill())
			require.NoError(t, os.RemoveAll(shown))
			eventually(t, "seen to have ended", func() bool {
				rivals := w.Rivals()
				return len(rivals) == 1 && !rivals[0].Ended.IsZero()
			})
			if beside == BesideExclusive {
				assert.Equal(t, []string{"ours"}, w.names(), "it may be starting anew")
				assert.Empty(t, shared.calls())
			} else {
				assert.Equal(t, map[string]plugins.Beside{"shared": want, "ours": ""}, w.beside())
			}
		})
	}
}

// A rival that ends counts as there until it has been away for a time.
func TestBesideARivalThatEnded(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.Procfs = t.TempDir()
	place := locationOf(t, w.dir)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", place.device)
	process(t, w.Procfs, "1", "init", host)
	process(t, w.Procfs, "17", "katalyst-agent", host, watching(t, place))
	s := newSocket(t.Context(), w.Host, w.path("p.sock"), fileIdentity{})
	w.registry.sockets = map[string]*socket{s.path: s}
	p := &plugin{host: w.Host, socket: s, listener: listener{pid: 1 << 30}}
	leave := func(beside string) error { return w.rivals.known().leave(beside, s.path, p.listener) }
	w.Host.updateRivals(t.Context(), time.Minute)
	require.ErrorContains(t, leave(BesideExclusive), "watches the plugin directory")
	require.NoError(t, os.RemoveAll(filepath.Join(w.Procfs, "17")))

	w.Host.updateRivals(t.Context(), time.Minute)
	list := w.Rivals()
	require.Len(t, list, 1)
	assert.Equal(t, rivalReturn, list[0].Until.Sub(list[0].Ended))
	require.ErrorIs(t, leave(BesideExclusive), errRefused)
	assert.EqualError(t, leave(BesideExclusive), fmt.Sprintf("refused: process 17 (katalyst-agent, cgroup /of/17) does not watch the plugin directory %s any more; "+
		"it may be starting anew, so it counts as there until %s at least; wait, or set plugins.beside", w.dir, list[0].Until.UTC().Format("15:04:05 UTC")))
	for beside, want := range map[string]plugins.Beside{BesideReport: plugins.BesideReport, BesideMark: plugins.BesideMark, BesideAct: ""} {
		assert.Equal(t, want, w.rivals.known().beside(beside, s.path, p.listener), beside)
		assert.NoError(t, leave(beside))
	}
	w.Host.updateRivals(t.Context(), time.Minute)
	assert.Equal(t, list, w.Rivals(), "it counts from the look that first missed it")

	for len(s.wake) > 0 {
		<-s.wake
	}
	known := w.rivals.known()
	known.byDir = map[string][]Rival{w.dir: {list[0]}}
	known.byDir[w.dir][0].Until = time.Now()
	w.rivals.newest.Store(&known)
	w.Host.updateRivals(t.Context(), time.Minute)
	assert.Empty(t, w.Rivals())
	assert.NoError(t, leave(BesideExclusive))
	assert.Empty(t, p.beside())
	assert.Len(t, s.wake, 1, "the socket that was left to it")
	assert.Equal(t, 3, strings.Count(log.String(), "\n"), log.String()) // it watches, it has ended, none is there any more
}

func TestWithEnded(t *testing.T) {
	now := time.Now()
	const dir = "/p"
	rival := Rival{Dir: dir, PID: 17, Cgroup: "/pods/rival"}
	ended := rival
	ended.Ended, ended.Until = now, now.Add(rivalReturn)
	other := Rival{Dir: dir, PID: 18, Cgroup: "/pods/other"}
	anew := Rival{Dir: dir, PID: 18, Cgroup: "/pods/rival"}
	of := func(list ...Rival) map[string][]Rival { return map[string][]Rival{dir: list} }
	for what, c := range map[string]struct {
		found, before []Rival
		complete      time.Duration // when the pass began
		want          []Rival
	}{
		"one that has ended":         {nil, []Rival{rival}, 0, []Rival{ended}},
		"one that ended earlier":     {nil, []Rival{ended}, rivalReturn - 1, []Rival{ended}},
		"one that ended long ago":    {nil, []Rival{ended}, rivalReturn, nil},
		"it is there again":          {[]Rival{rival}, []Rival{ended}, 0, []Rival{rival}},
		"its program is there again": {[]Rival{anew}, []Rival{ended}, 0, []Rival{anew}},
		"another is there":           {[]Rival{other}, []Rival{rival}, 0, []Rival{other, ended}},
	} {
		t.Run(what, func(t *testing.T) {
			got := withEnded(of(c.found...), of(c.before...), now, now.Add(c.complete))
			assert.Equal(t, c.want, got[dir])
		})
	}
	many := []Rival{}
	for pid := range 10 * maxRivals {
		many = append(many, Rival{Dir: dir, PID: pid + 100})
	}
	assert.Len(t, withEnded(map[string][]Rival{}, of(many...), now, now)[dir], maxRivals)
}

// leavesToRival: the plugin is not asked, and not told either, since it is registered
// with the rival.
func (w *pluginEnv) leavesToRival(shared *fake, rival int) {
	w.t.Helper()
	w.waitFor("ours")
	assert.Empty(w.t, shared.calls(), "some of its answers come once only")
	assert.Empty(w.t, shared.statuses())
	eventually(w.t, "said", func() bool {
		return slices.ContainsFunc(w.Status(time.Now()), func(s Status) bool {
			return strings.Contains(s.Problem, fmt.Sprintf("process %d (", rival)) && strings.HasSuffix(s.Problem, "stop it, or set plugins.beside")
		})
	})
}

// beside is, by plugin, what the verdicts of a round are good for.
func (w *pluginEnv) beside() map[string]plugins.Beside {
	all := map[string]plugins.Beside{}
	for _, v := range w.round() {
		all[v.Plugin] = v.Beside
	}
	return all
}

func TestOuterReconnects(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Beside = BesideAct }) // its first connection is that of the plugin
	f := newFake("p")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.path("p.sock"))
	require.NoError(t, err)
	cut := &cutting{Listener: l, conns: make(chan net.Conn, 10)}
	f.serveOn(t, cut)
	w.run().waitFor("p")
	before, graces := w.registry.plugins()[0], &recorder{}
	round := Round{Time: time.Now(), Graces: graces, MaxAge: time.Minute}
	w.Ask(t.Context(), round)
	require.NoError(t, (<-cut.conns).Close())
	eventually(t, "registered anew", func() bool { list := w.registry.plugins(); return len(list) == 1 && list[0] != before })
	w.Ask(t.Context(), round)
	require.Len(t, graces.processes, 4, graces.all())
	assert.Equal(t, slices.Repeat(graces.processes[:1], 4), graces.processes, "its grace period goes on")
	assert.NotEmpty(t, graces.processes[0])
}

// cutting hands out its connections.
type cutting struct {
	net.Listener
	conns chan net.Conn
}

func (c *cutting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.conns <- conn
	}
	return conn, err
}
