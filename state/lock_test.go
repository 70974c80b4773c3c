package state

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lockUntilKilled is the program of the test below: it locks a directory, says
// so, and lives, with a child.
func lockUntilKilled(dir string) {
	if _, err := Acquire(dir, time.Now(), "by a test"); err != nil {
		panic(err)
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("locked\n")
	select {}
}

// otherAgent locks a directory in another process, which has a child.
func otherAgent(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), "PLIMSOLL_TEST_LOCK="+dir)
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = unix.Kill(-c.Process.Pid, unix.SIGKILL) }) // the child, too
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)
	return c
}

func TestLockOneAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "made", "yet")
	other := otherAgent(t, dir)
	_, err := Acquire(dir, time.Now(), "systemd")
	require.ErrorIs(t, err, ErrLocked)
	assert.Regexp(t, `^state: `+dir+`: in use by another agent \(pid [0-9]+, started by a test at .* UTC\)$`, err)
	was, locked, err := Peek(dir)
	require.NoError(t, err)
	assert.True(t, locked)
	assert.Equal(t, other.Process.Pid, was.PID)

	require.NoError(t, other.Process.Kill())
	require.Error(t, other.Wait())
	_, locked, err = Peek(dir)
	require.NoError(t, err)
	assert.False(t, locked, "its child does not hold it")
	l, err := Acquire(dir, time.Now(), "systemd")
	require.NoError(t, err)
	assert.Equal(t, was.ID, l.ID, "the state is the same")
	l.Release()
}

func TestLockByAnyPath(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	l, err := Acquire(link, time.Now(), "pod")
	require.NoError(t, err)
	_, err = Acquire(dir, time.Now(), "systemd")
	require.ErrorIs(t, err, ErrLocked)
	_, locked, err := Peek(dir)
	require.NoError(t, err)
	assert.True(t, locked, "also in the same process")
	l.Release()
	l, err = Acquire(dir, time.Now(), "systemd")
	require.NoError(t, err)
	l.Release()
}

func TestLockFileOfAnyText(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "?", `{"id":"short"}`, `{"id":1}`, string(make([]byte, 1<<20))} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), []byte(text), 0o600))
		l, err := Acquire(dir, time.Now(), "command")
		require.NoError(t, err)
		assert.Len(t, l.ID, 2*idBytes)
		was, _, err := Peek(dir)
		require.NoError(t, err)
		assert.Equal(t, l.ID, was.ID)
		l.Release()
	}
	_, locked, err := Peek(t.TempDir())
	require.NoError(t, err)
	assert.False(t, locked)
}

// A disk without space takes no lock away.
func TestLockOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, lockName)))
	l, err := Acquire(dir, time.Now(), "command")
	require.NoError(t, err)
	defer l.Release()
	require.ErrorIs(t, l.Unwritten, unix.ENOSPC)
	assert.Len(t, l.ID, 2*idBytes)
	_, locked, err := Peek(dir)
	require.NoError(t, err)
	assert.True(t, locked)
	_, err = Acquire(dir, time.Now(), "command")
	require.ErrorIs(t, err, ErrLocked)
}

func TestLockImpossibleIsNoOtherAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Acquire(file, time.Now(), "command")
	require.ErrorContains(t, err, "not a directory")
	require.NotErrorIs(t, err, ErrLocked)
}
