package outer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// process adds a process to a made-up /proc, with its mounts and file
// descriptors.
func process(t *testing.T, procfs, pid, name, mountinfo string, fdinfo ...string) {
	t.Helper()
	dir := filepath.Join(procfs, pid)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "fdinfo"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(name+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mountinfo), 0o600))
	for fd, text := range fdinfo {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "fdinfo", fmt.Sprint(fd)), []byte(text), 0o600))
	}
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

func TestWhoWatchesTheDirectoryIsTheRivalIfItHasItAmongItsMounts(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	p := locationsOf([]string{dir})[0]
	watch := watching(t, p)
	elsewhere := strings.Replace(watch, "sdev:", "sdev:f", 1)
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	given := fmt.Sprintf("1 0 0:99 / / rw - overlay x rw\n2 1 %s %s /the\\040plugins rw - x x rw\n", p.device, p.within)
	pod := fmt.Sprintf("1 0 0:99 / / rw - overlay x rw\n2 1 %s %s-of-a-pod /data rw - x x rw\n3 1 0:98 / /tmp rw - tmpfs x rw\n", p.device, p.within)
	for what, c := range map[string]struct {
		name, mounts, fdinfo string
		rival                bool
	}{
		"on the host":                         {otherHostName, host, watch, true},
		"in a pod that was given it":          {otherHostName, given, watch, true},
		"of another name":                     {"another", host, watch, false},
		"without a watch":                     {otherHostName, host, "pos:\t0\n", false},
		"the inode of another filesystem":     {otherHostName, host, elsewhere, false},
		"another inode":                       {otherHostName, host, strings.Replace(watch, " ino:", " ino:f", 1), false},
		"a line that is no watch":             {otherHostName, host, strings.Replace(watch, "inotify", "fanotify", 1), false},
		"in a pod, whatever it watches":       {otherHostName, pod, watch, false},
		"whose mounts cannot be read":         {otherHostName, "", watch, false},
		"another filesystem at the same path": {otherHostName, strings.ReplaceAll(given, p.device, "0:97"), watch, false},
	} {
		t.Run(what, func(t *testing.T) {
			procfs := t.TempDir()
			process(t, procfs, "1", "init", host, watch)
			process(t, procfs, "17", c.name, c.mounts, "pos:\t0\n", c.fdinfo)
			want := ""
			if c.rival {
				want = "katalyst-agent (pid 17) watches the plugin directory " + dir
			}
			assert.Equal(t, want, FindOtherHost(procfs, []string{"/nowhere", dir}))
		})
	}
}

// Descriptors of a process in a pod are not read: reading this one would never
// end.
func TestAProcessOfAPodThatIsCalledKatalystsAgentIsNotLookedInto(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	process(t, procfs, "1", otherHostName, "1 0 0:99 / / rw - overlay x rw\n")
	require.NoError(t, unix.Mkfifo(filepath.Join(procfs, "1", "fdinfo", "3"), 0o600))
	looked := make(chan string, 1)
	go func() { looked <- FindOtherHost(procfs, []string{dir}) }()
	select {
	case rival := <-looked:
		assert.Empty(t, rival)
	case <-deadline.After(5 * time.Second):
		require.Fail(t, "it is looked into")
	}
}

func TestALookForARivalIsBoundedAndForgetsNoneThatIsStillThere(t *testing.T) {
	t.Parallel()
	dir, procfs := socketDir(t), t.TempDir()
	p := locationsOf([]string{dir})[0]
	host := fmt.Sprintf("1 0 %s / / rw - x x rw\n", p.device)
	full := filepath.Join(t.TempDir(), "full")
	require.NoError(t, os.WriteFile(full, bytes.Repeat([]byte("inotify wd:1 ino:1 sdev:1 mask:1\n"), 20_000), 0o600))
	process(t, procfs, "1", otherHostName, host)
	for fd := range maxOtherHostFds {
		require.NoError(t, os.Symlink(full, filepath.Join(procfs, "1", "fdinfo", fmt.Sprint(fd))))
	}
	mounts := filepath.Join(t.TempDir(), "mounts")
	require.NoError(t, os.WriteFile(mounts, bytes.Repeat([]byte("1 0 0:99 / / rw - overlay x rw\n"), 30_000), 0o600))
	for pid := range 300 {
		dir := filepath.Join(procfs, fmt.Sprint(pid+2))
		process(t, procfs, fmt.Sprint(pid+2), otherHostName, "")
		require.NoError(t, os.Remove(filepath.Join(dir, "mountinfo")))
		require.NoError(t, os.Symlink(mounts, filepath.Join(dir, "mountinfo")))
	}
	process(t, procfs, "1000", otherHostName, host, watching(t, p))
	known := "katalyst-agent (pid 1000) watches the plugin directory " + dir
	for range 10 {
		begun := deadline.Start()
		assert.Equal(t, known, findOtherHost(procfs, []string{dir}, known), "it is looked at first")
		assert.Less(t, begun.Elapsed(), 10*otherHostTime)
	}
	require.NoError(t, os.WriteFile(filepath.Join(procfs, "1000", "fdinfo", "0"), nil, 0o600))
	begun := deadline.Start()
	assert.Empty(t, findOtherHost(procfs, []string{dir}, known), "it is not forgotten alone while others are there")
	assert.Less(t, begun.Elapsed(), 10*otherHostTime)
	begun = deadline.Start()
	assert.Empty(t, findOtherHost(procfs, []string{dir}, otherHostPrefix("1")), "one with many descriptors")
	assert.Less(t, begun.Elapsed(), 10*otherHostTime)
}
