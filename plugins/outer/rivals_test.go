package outer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// process adds a process to a made-up /proc, with its mounts and file
// descriptors, all of them inotify's.
func process(t *testing.T, procfs, pid, name, mountinfo string, fdinfo ...string) {
	t.Helper()
	dir := filepath.Join(procfs, pid)
	for _, sub := range []string{"fdinfo", "fd", "ns"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	for file, text := range map[string]string{"comm": name + "\n", "mountinfo": mountinfo, "cgroup": "1:name=systemd:/v1\n0::/of/" + pid + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("mnt:["+pid+"]", filepath.Join(dir, "ns/mnt")))
	for fd, text := range fdinfo {
		require.NoError(t, os.Symlink("anon_inode:inotify", filepath.Join(dir, "fd", fmt.Sprint(fd))))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "fdinfo", fmt.Sprint(fd)), []byte(text), 0o600))
	}
}

func locationOf(t *testing.T, dir string) location {
	t.Helper()
	list, err := locationsOf([]string{dir})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func none(string) bool { return false }

// search has the time that a busy machine needs.
func search(procfs string, dirs ...string) map[string][]Rival {
	s := newSearch(procfs)
	s.look(context.Background(), discover(dirs).dirs, time.Minute)
	return s.found
}

func newSearch(procfs string) *rivalSearch { return &rivalSearch{procfs: procfs, skip: none} }

// again looks once more, for at most so long, and returns the rivals.
func (s *rivalSearch) again(t *testing.T, dir string, limit time.Duration) map[string][]Rival {
	t.Helper()
	s.look(t.Context(), []string{dir}, limit)
	return s.found
}

// watching is the fdinfo of a watch on a directory.
func watching(t *testing.T, p location) string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Close(fd)) }()
	_, err = unix.InotifyAddWatch(fd, p.dir, unix.IN_CREATE)
	require.NoError(t, err)
	text, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", fd))
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("ino:%x ", p.inode))
	return string(text)
}

func TestRivals(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	p := locationOf(t, dir)
	watch := watching(t, p)
	elsewhere := strings.Replace(watch, "sdev:", "sdev:f", 1)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	given := fmt.Sprintf("1 0 0:99 / / rw - overlay x rw\n2 1 %s %s /the\\040plugins rw - x x rw\n", p.device, p.within)
	pod := fmt.Sprintf("1 0 0:99 / / rw - overlay x rw\n2 1 %s %s-of-a-pod /data rw - x x rw\n3 1 0:98 / /tmp rw - tmpfs x rw\n", p.device, p.within)
	for what, c := range map[string]struct {
		name, mounts, fdinfo string
		rival                bool
	}{
		"on the host":                         {"katalyst-agent", host, watch, true},
		"in a pod that was given it":          {"katalyst-agent", given, watch, true},
		"whatever its name":                   {"another", host, watch, true},
		"without a watch":                     {"katalyst-agent", host, "pos:\t0\n", false},
		"the inode of another filesystem":     {"katalyst-agent", host, elsewhere, false},
		"another inode":                       {"katalyst-agent", host, strings.Replace(watch, " ino:", " ino:f", 1), false},
		"a line that is no watch":             {"katalyst-agent", host, strings.Replace(watch, "inotify", "fanotify", 1), false},
		"in a pod, whatever it watches":       {"katalyst-agent", pod, watch, false},
		"whose mounts cannot be read":         {"katalyst-agent", "", watch, false},
		"another filesystem at the same path": {"katalyst-agent", strings.ReplaceAll(given, p.device, "0:97"), watch, false},
	} {
		t.Run(what, func(t *testing.T) {
			procfs := t.TempDir()
			process(t, procfs, "1", "init", host, "pos:\t0\n")
			process(t, procfs, "17", c.name, c.mounts, "pos:\t0\n", c.fdinfo)
			found := search(procfs, "/nowhere", dir)
			if !c.rival {
				assert.Empty(t, found)
				return
			}
			want := Rival{Dir: dir, PID: 17, Command: c.name, Cgroup: "/of/17"}
			assert.Equal(t, map[string][]Rival{dir: {want}}, found)
			assert.Equal(t, "process 17 ("+c.name+", cgroup /of/17) watches the plugin directory "+dir, want.String())
			assert.Empty(t, FindRivals(procfs, []string{dir}, func(process string) bool { return filepath.Base(process) == "17" }), "it is skipped")
		})
	}
}

// Descriptors of a process in a pod are not read: reading this one would never
// end.
func TestRivalSearchSkipsPods(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	process(t, procfs, "1", "katalyst-agent", "1 0 0:99 / / rw - overlay x rw\n")
	require.NoError(t, os.Symlink("anon_inode:inotify", filepath.Join(procfs, "1", "fd", "3")))
	require.NoError(t, unix.Mkfifo(filepath.Join(procfs, "1", "fdinfo", "3"), 0o600))
	looked := make(chan []Rival, 1)
	go func() { looked <- FindRivals(procfs, []string{dir}, none) }()
	select {
	case found := <-looked:
		assert.Empty(t, found)
	case <-deadline.After(5 * time.Second):
		require.Fail(t, "it is looked into")
	}
}

func TestRivalSearchIsBounded(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	p := locationOf(t, dir)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	full := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.WriteFile(full, bytes.Repeat([]byte("inotify wd:1 ino:1 sdev:1 mask:1\n"), 20_000), 0o600))
	process(t, procfs, "1", "many-descriptors", host)
	for fd := range rivalFdBatch {
		require.NoError(t, os.Symlink("anon_inode:inotify", filepath.Join(procfs, "1", "fd", fmt.Sprint(fd))))
		require.NoError(t, os.Symlink(full, filepath.Join(procfs, "1", "fdinfo", fmt.Sprint(fd))))
	}
	mounts := filepath.Join(t.TempDir(), "mounts")
	require.NoError(t, os.WriteFile(mounts, bytes.Repeat([]byte("1 0 0:99 / / rw - overlay x rw\n"), 30_000), 0o600))
	for pid := range 300 {
		dir := filepath.Join(procfs, fmt.Sprint(pid+2))
		process(t, procfs, fmt.Sprint(pid+2), "pod", "")
		require.NoError(t, os.Remove(filepath.Join(dir, "mountinfo")))
		require.NoError(t, os.Symlink(mounts, filepath.Join(dir, "mountinfo")))
	}
	process(t, procfs, "1000", "rival", host, watching(t, p))
	known := map[string][]Rival{dir: {{Dir: dir, PID: 1000, Command: "rival", Cgroup: "/of/1000"}}}
	s := newSearch(procfs)
	s.found = known
	for range 10 {
		begun := deadline.Start()
		assert.Equal(t, known, s.again(t, dir, rivalTime), "it is looked at first")
		assert.Less(t, begun.Elapsed(), 10*rivalTime)
	}
	require.NoError(t, os.WriteFile(filepath.Join(procfs, "1000", "fdinfo", "0"), nil, 0o600))
	begun := deadline.Start()
	assert.Empty(t, s.again(t, dir, rivalTime), "it watches no more")
	assert.Less(t, begun.Elapsed(), 10*rivalTime)
}

func TestRivalsOfADirectoryAreFew(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	p := locationOf(t, dir)
	for pid := range 3 * maxRivals {
		process(t, procfs, fmt.Sprint(pid+1), "many", fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device), watching(t, p))
	}
	assert.Len(t, search(procfs, dir)[dir], maxRivals)
}

func TestRivalsStayTheSame(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	p := locationOf(t, dir)
	for pid := range 5 {
		process(t, procfs, fmt.Sprint(pid+1), "rival", fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device), watching(t, p))
	}
	s := newSearch(procfs)
	found := s.again(t, dir, time.Minute)
	for range 20 {
		require.Equal(t, found, s.again(t, dir, time.Minute), "else each look would be a change")
	}
}

// Each look may examine one process and no more: its context ends with the first that it
// examines, whatever the clock.
func TestRivalSearchInManyLooks(t *testing.T) {
	t.Parallel()
	dir, later, procfs := socketDir(t), socketDir(t), t.TempDir()
	p := locationOf(t, dir)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	const processes = 7
	for pid := range processes - 1 {
		process(t, procfs, fmt.Sprint(pid+1), "other", host, "pos:\t0\n")
	}
	process(t, procfs, "9", "rival", host, watching(t, p))
	s := newSearch(procfs)
	examined := []string{}
	look := func(dirs ...string) (searched []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.skip = func(process string) bool {
			examined = append(examined, filepath.Base(process))
			cancel()
			return false
		}
		s.look(ctx, dirs, time.Minute)
		for _, p := range s.searched {
			searched = append(searched, p.dir)
		}
		return searched
	}
	for range processes - 1 {
		require.Empty(t, look(dir), "not all are examined: %v", examined)
	}
	assert.Equal(t, []string{dir}, look(dir), "all are examined, each once: %v", examined)
	assert.Len(t, examined, processes)
	assert.Len(t, s.found[dir], 1, "the rival, wherever in the pass it comes")

	t.Run("a pass is of the directories that there were", func(t *testing.T) {
		all := s
		defer func() { s = all }()
		s = newSearch(procfs)
		require.Empty(t, look(dir))
		s.skip = none
		s.look(t.Context(), []string{dir, later}, time.Minute)
		require.Len(t, s.searched, 1)
		assert.Equal(t, dir, s.searched[0].dir)
	})
	t.Run("a directory that is new is not searched yet", func(t *testing.T) {
		for range processes { // the rival that is known is examined first, and is all of the look
			require.Equal(t, []string{dir}, look(dir, later))
		}
		s.skip = none
		s.look(t.Context(), []string{dir, later}, time.Minute)
		s.look(t.Context(), []string{dir, later}, time.Minute) // the pass that began with it
		assert.Len(t, s.searched, 2)
	})
	t.Run("nor is one that was made anew", func(t *testing.T) {
		require.NoError(t, os.Rename(later, later+".old"))
		require.NoError(t, os.Mkdir(later, 0o700))
		t.Cleanup(func() { _ = os.RemoveAll(later + ".old") })
		s.look(t.Context(), []string{dir, later}, -1)
		require.Len(t, s.searched, 1)
		assert.Equal(t, dir, s.searched[0].dir)
	})
	t.Run("nor is any that is away", func(t *testing.T) {
		s.look(t.Context(), []string{"/nowhere"}, time.Minute)
		assert.Empty(t, s.searched)
		assert.Empty(t, s.found)
	})
}

// Until all processes were examined there may be a rival, so the plugins report.
func TestBesideAnUnfinishedSearch(t *testing.T) {
	t.Parallel()
	for beside, want := range map[string]plugins.Beside{
		BesideExclusive: plugins.BesideReport, BesideReport: plugins.BesideReport, BesideMark: plugins.BesideMark, BesideAct: "",
	} {
		t.Run(beside, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t, func(c *Config) { c.Beside = beside })
			s := &socket{host: w.Host, path: w.path("p.sock")}
			p := &plugin{host: w.Host, socket: s, listener: listener{pid: 1 << 30}}
			w.Host.updateRivals(t.Context(), -1)
			assert.Equal(t, want, p.beside())
			left := w.rivals.known().leave(w.config.Beside, s.path, p.listener)
			if beside == BesideExclusive {
				require.ErrorIs(t, left, errSearching, "it may be a rival's")
				assert.ErrorContains(t, left, "more processes than one look can examine")
			} else {
				assert.NoError(t, left)
			}
			w.registry.counts.keep("p")
			w.registry.counts.unregistered(was("p", s.path, p.listener), time.Now())
			assert.False(t, w.Host.Counts()["p"].LeftToRival, "no rival is known")
			w.Host.updateRivals(t.Context(), time.Minute)
			assert.Empty(t, p.beside(), "it may act")
			assert.NoError(t, w.rivals.known().leave(w.config.Beside, s.path, p.listener))
		})
	}
}

func TestRivalSearchWithoutTime(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	p := locationOf(t, dir)
	for _, pid := range []string{"1", "2"} {
		process(t, procfs, pid, "rival", fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device), watching(t, p))
	}
	s := newSearch(procfs)
	assert.Empty(t, s.again(t, dir, -1))
	both := s.again(t, dir, time.Minute)
	require.Len(t, both[dir], 2)
	assert.Equal(t, both, s.again(t, dir, -1), "a node under pressure forgets no rival")
}

// looks returns the directories that are searched after so many looks.
func (s *rivalSearch) looks(t *testing.T, n int, dir string) (searched []string) {
	t.Helper()
	for range n {
		s.again(t, dir, time.Minute)
	}
	for _, p := range s.searched {
		searched = append(searched, p.dir)
	}
	return searched
}

func TestRivalSearchIncomplete(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	p := locationOf(t, dir)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	rival := func(t *testing.T) (s *rivalSearch, at string) {
		t.Helper()
		s = newSearch(t.TempDir())
		process(t, s.procfs, "1", "rival", host, watching(t, p))
		return s, filepath.Join(s.procfs, "1")
	}
	// A file in the place of a directory, and a directory in the place of a file,
	// cannot be read, whoever reads.
	swap := func(t *testing.T, path string) {
		t.Helper()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Rename(path, path+".old"))
		if info.IsDir() {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			return
		}
		require.NoError(t, os.Mkdir(path, 0o700))
	}
	restore := func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Rename(path+".old", path))
	}
	for _, file := range []string{"mountinfo", "fd", "fdinfo/0"} {
		t.Run("a process whose "+file+" cannot be read is left", func(t *testing.T) {
			t.Parallel()
			s, at := rival(t)
			swap(t, filepath.Join(at, file))
			require.Empty(t, s.looks(t, 1, dir))
			assert.Contains(t, s.unfinished(), "process 1: ")
			restore(t, filepath.Join(at, file))
			require.Equal(t, []string{dir}, s.looks(t, 1, dir))
			require.Len(t, s.found[dir], 1)
			swap(t, filepath.Join(at, file))
			s.looks(t, 2, dir)
			assert.Len(t, s.found[dir], 1, "one that is known stays")
			require.NoError(t, os.RemoveAll(at))
			process(t, s.procfs, "2", "other", host)
			s.looks(t, 1, dir)
			assert.Empty(t, s.found, "until it has gone")
		})
	}
	t.Run("one that can never be examined holds back nothing for ever", func(t *testing.T) {
		t.Parallel()
		s, at := rival(t)
		swap(t, filepath.Join(at, "fd"))
		require.Empty(t, s.looks(t, maxRivalTries-1, dir))
		require.Equal(t, []string{dir}, s.looks(t, 1, dir))
		pid, why := s.unexamined()
		assert.Equal(t, 1, pid)
		assert.Error(t, why)
		restore(t, filepath.Join(at, "fd"))
		s.looks(t, 1, dir)
		assert.Len(t, s.found[dir], 1, "it is examined in each pass all the same")
		_, why = s.unexamined()
		assert.NoError(t, why)
	})
	t.Run("time is over", func(t *testing.T) {
		t.Parallel()
		s, at := rival(t)
		_, err := watchedBy(at, []location{p}, time.Now().Add(-1))
		require.ErrorIs(t, err, errRivalTime)
		_, err = mountedBy{spaces: map[string][]location{}}.of(at, time.Now().Add(-1))
		require.ErrorIs(t, err, errRivalTime)
		assert.Equal(t, []string{dir}, s.looks(t, 1, dir))
	})
	t.Run("processes that cannot be listed", func(t *testing.T) {
		t.Parallel()
		s, at := rival(t)
		good := s.procfs
		for _, bad := range []string{filepath.Join(at, "comm"), t.TempDir(), "/nowhere"} {
			s.procfs = bad
			require.Empty(t, s.looks(t, 2*maxRivalTries, dir))
			assert.Contains(t, s.unfinished(), bad)
		}
		s.procfs = good
		assert.Equal(t, []string{dir}, s.looks(t, 1, dir))
	})
	t.Run("more descriptors than one batch", func(t *testing.T) {
		t.Parallel()
		s := newSearch(t.TempDir())
		process(t, s.procfs, "1", "rival", host)
		at := filepath.Join(s.procfs, "1")
		for fd := range rivalFdBatch + 20 {
			require.NoError(t, os.Symlink("anon_inode:inotify", filepath.Join(at, "fd", fmt.Sprint(fd))))
		}
		names, err := os.Open(filepath.Join(at, "fd"))
		require.NoError(t, err)
		defer names.Close()
		all, err := names.Readdirnames(-1)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(at, "fdinfo", all[len(all)-1]), []byte(watching(t, p)), 0o600))
		found, err := watchedBy(at, []location{p}, time.Now().Add(time.Minute))
		require.NoError(t, err)
		assert.Equal(t, []location{p}, found)
	})
	t.Run("no mounts seen say nothing about the mount namespace", func(t *testing.T) {
		t.Parallel()
		s, at := rival(t)
		process(t, s.procfs, "0", "in-a-chroot", "") // examined first
		for _, pid := range []string{at, filepath.Join(s.procfs, "0")} {
			require.NoError(t, os.Remove(filepath.Join(pid, "ns/mnt")))
			require.NoError(t, os.Symlink("mnt:[1]", filepath.Join(pid, "ns/mnt")))
		}
		assert.Equal(t, []string{dir}, s.looks(t, 1, dir))
		assert.Len(t, s.found[dir], 1)
	})
}

// With exclusive, a plugin is not even registered before the search is complete, and
// then at once.
func TestExclusiveWaitsForTheSearch(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	good := t.TempDir()
	w.Procfs = filepath.Join(good, "proc") // there is none yet
	f := newFake("p")
	f.serve(t, w.path("p.sock"))
	w.run()
	eventually(t, "refused", func() bool {
		all := w.Status(time.Now())
		return len(all) == 1 && strings.Contains(all[0].Problem, "not all processes are examined yet") && strings.Contains(all[0].Problem, w.Procfs)
	})
	assert.Empty(t, f.calls(), "its answers are those of a rival that may be found")
	process(t, filepath.Join(good, "new"), "1", "init", "")
	require.NoError(t, os.Rename(filepath.Join(good, "new"), w.Procfs))
	begun := deadline.Start()
	w.waitFor("p")
	assert.Less(t, begun.Elapsed(), scanEvery, "the next look is soon")

	t.Run("a directory made later", func(t *testing.T) {
		dir := w.path("later")
		require.NoError(t, os.Mkdir(dir, 0o700))
		later := newFake("q")
		later.serve(t, filepath.Join(dir, "q.sock"))
		begun := deadline.Start()
		w.waitFor("p", "q")
		assert.Less(t, begun.Elapsed(), scanEvery)
	})
	t.Run("a registered plugin outlives its directory", func(t *testing.T) {
		require.NoError(t, os.Rename(w.path("later"), w.path(".later")))
		w.rivals.newest.Store(&knownRivals{})
		for _, p := range w.registry.plugins() {
			assert.NoError(t, p.allowed(w.config))
		}
	})
}

// While there is no socket no process is examined at the ticks; before the first plugin is
// asked they are, so that it is left to a rival that began meanwhile.
func TestFirstSocketAfterASearch(t *testing.T) {
	t.Parallel()
	for _, during := range []string{"a while after the first search", "between the first search and the first scan"} {
		t.Run(during, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t)
			w.Procfs = t.TempDir()
			p := locationOf(t, w.dir)
			host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
			process(t, w.Procfs, "1", "init", host)
			f := newFake("p")
			searched := func() bool { return !w.rivals.known().unsearched([]string{w.dir}) }
			appear := sync.OnceFunc(func() {
				process(t, w.Procfs, "17", "katalyst-agent", host, watching(t, p))
				f.serve(t, w.path("p.sock"))
			})
			settings, atScan := w.Settings, strings.HasPrefix(during, "between")
			w.Settings = func() Config { // the scan asks for them first of all
				if atScan && searched() {
					appear()
				}
				return settings()
			}
			w.run()
			eventually(t, "searched", searched)
			if !atScan {
				appear()
			}
			eventually(t, "left to the rival", func() bool {
				all := w.Status(time.Now())
				return len(all) == 1 && strings.Contains(all[0].Problem, "katalyst-agent")
			})
			assert.False(t, f.registered())
			assert.Empty(t, f.calls())
		})
	}
}

// A change of what is searched wakes the sockets, as one of the rivals does.
func TestSearchWakesSockets(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	s := newSocket(t.Context(), w.Host, w.path("p.sock"), fileIdentity{})
	w.registry.sockets = map[string]*socket{s.path: s}
	w.Host.updateRivals(t.Context(), -1)
	assert.Empty(t, s.wake)
	w.Host.updateRivals(t.Context(), time.Minute)
	assert.Len(t, s.wake, 1)
	<-s.wake
	w.Host.updateRivals(t.Context(), time.Minute)
	assert.Empty(t, s.wake)
}

func TestSearchLogged(t *testing.T) {
	t.Parallel()
	for beside, want := range map[string]string{
		BesideExclusive: "are not registered", BesideReport: "only report",
		BesideMark: "mark the node and evict no pod", BesideAct: "act as any other",
	} {
		t.Run(beside, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t, func(c *Config) { c.Beside = beside })
			var out bytes.Buffer
			w.Log = slog.New(slog.NewTextHandler(&out, nil))
			w.Procfs = filepath.Join(t.TempDir(), "none")
			w.Host.updateRivals(t.Context(), time.Minute)
			require.Empty(t, out.String(), "no plugin is there for which it matters")
			newFake("p").serve(t, w.path("p.sock"))
			w.Host.updateRivals(t.Context(), time.Minute)
			first := out.String()
			assert.Contains(t, first, want)
			assert.Contains(t, first, "beside="+beside)
			assert.Contains(t, first, w.Procfs+": no such file", "the cause")
			w.Host.updateRivals(t.Context(), time.Minute)
			assert.Equal(t, first, out.String(), "once")

			process(t, w.Procfs, "1", "init", "")
			require.NoError(t, os.Remove(filepath.Join(w.Procfs, "1", "mountinfo")))
			require.NoError(t, os.Mkdir(filepath.Join(w.Procfs, "1", "mountinfo"), 0o700))
			for range maxRivalTries + 3 {
				w.Host.updateRivals(t.Context(), time.Minute)
			}
			assert.Contains(t, out.String(), "process 1: ")
			assert.Contains(t, out.String(), "all processes are examined")
			assert.Equal(t, 1, strings.Count(out.String(), "a process cannot be examined"))

			require.NoError(t, os.Remove(w.path("p.sock")))
			said := out.String()
			w.Host.rivals.unexaminedLogged = false
			w.Host.updateRivals(t.Context(), time.Minute)
			assert.Equal(t, said, out.String(), "the plugin has ended")
		})
	}
}

// A plugin may watch its own directory.
func TestPluginIsNoRivalOfItself(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.Procfs = t.TempDir()
	p := locationOf(t, w.dir)
	process(t, w.Procfs, fmt.Sprint(os.Getpid()), "plugin", fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device), watching(t, p))
	assert.Len(t, FindRivals(w.Procfs, w.config.Dirs, none), 1, "no socket is there")
	newFake("p").serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	assert.Empty(t, w.Rivals())
	assert.Empty(t, FindRivals(w.Procfs, w.config.Dirs, none))
	require.NoError(t, os.Remove(w.path("p.sock")))
	w.lookAgain()
	assert.Empty(t, w.Rivals(), "its file was removed, it is still registered")
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	assert.NotContains(t, log.String(), "another process watches")

	own, other := listener{pid: os.Getpid()}, listener{pid: 4711}
	for what, row := range map[string]struct {
		listeners []listener
		rivals    int
	}{
		"none is known": {nil, 1}, "its own": {[]listener{own, own}, 0}, "another's": {[]listener{other}, 1}, "both": {[]listener{own, other}, 1},
	} {
		list := func(dir string) []Rival {
			known := knownRivals{byDir: w.rivals.known().byDir, heard: &heard{}}
			for i, by := range row.listeners {
				known.heard.add(filepath.Join(dir, fmt.Sprint(i)), by, time.Now())
			}
			return known.list()
		}
		assert.Len(t, list(w.dir), row.rivals, what)
		assert.Len(t, list("/elsewhere"), 1, what)
	}
}
