package kit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// The test program is a plugin too, as a vendor's would be.
func TestMain(m *testing.M) {
	if os.Getenv("KIT_TEST_PLUGIN") != "" {
		kit.Main("full", watcher{})
		return
	}
	os.Exit(m.Run())
}

func TestKitEndsOnSIGTERM(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := t.TempDir()
		cmd, log := start(t, dir)
		answersAt(t, filepath.Join(dir, "full.sock"))
		require.NoError(t, cmd.Process.Signal(sig))
		said := <-log
		require.NoError(t, cmd.Wait(), said)
		assert.Contains(t, said, "msg=stopped plugin=full")
		assert.Empty(t, left(t, dir))
	}
}

func TestKitReplacesStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "full.sock")
	for range 3 {
		cmd, _ := start(t, dir)
		answersAt(t, path)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.Equal(t, []string{"full.sock"}, left(t, dir))
	}
	serve(t, &kit.Server{Name: "full", Plugin: watcher{}, Dir: dir})
	answersAt(t, path)
}

func TestKitKeepsLiveSocket(t *testing.T) {
	dir := t.TempDir()
	serve(t, &kit.Server{Name: "full", Plugin: watcher{}, Dir: dir})
	second := kit.Server{Name: "full", Plugin: watcher{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
	soon, cancel := deadline.Context(t.Context(), 30*time.Second)
	defer cancel()
	require.EqualError(t, second.Run(soon),
		"listen: "+filepath.Join(dir, "full.sock")+": another process listens on this socket")
	answersAt(t, filepath.Join(dir, "full.sock"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600))
	other := kit.Server{Name: "file", Plugin: watcher{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
	require.ErrorContains(t, other.Run(t.Context()), "the file exists and is not a socket")
}

// Two plugins of one name start at the same moment, repeatedly: one serves, the
// other reports why not.
func TestKitTwoStartAtOnce(t *testing.T) {
	dir := t.TempDir()
	for range 20 {
		ctx, cancel := deadline.Context(t.Context(), 30*time.Second)
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				s := kit.Server{Name: "full", Plugin: watcher{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
				ended <- s.Run(ctx)
			}()
		}
		require.ErrorContains(t, <-ended, "another process listens on this socket")
		answersAt(t, filepath.Join(dir, "full.sock"))
		cancel()
		require.NoError(t, <-ended)
		require.Empty(t, left(t, dir))
	}
}

// A host that sees the name can connect: the name never exists without a
// listener.
func TestKitSocketAppearsWhenReady(t *testing.T) {
	dir := t.TempDir()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(watch)) })
	_, err = unix.InotifyAddWatch(watch, dir, unix.IN_CREATE|unix.IN_MOVED_TO)
	require.NoError(t, err)
	serve(t, &kit.Server{Name: "full", Plugin: watcher{}, Dir: dir})
	buf := make([]byte, 4096)
	n, err := unix.Read(watch, buf)
	require.NoError(t, err)
	events := string(buf[:n])
	assert.Less(t, strings.Index(events, ".full.sock"), strings.LastIndex(events, "full.sock"))
	assert.Equal(t, 1, strings.Count(strings.ReplaceAll(events, ".full.sock", ""), "full.sock"), "%q", events)
}

// Leftovers of a plugin that was killed while it started.
func TestKitReplacesHiddenSocket(t *testing.T) {
	dir := t.TempDir()
	abandoned(t, filepath.Join(dir, ".full.sock"))
	abandoned(t, filepath.Join(dir, "full.sock"))
	serve(t, &kit.Server{Name: "full", Plugin: watcher{}, Dir: dir})
	answersAt(t, filepath.Join(dir, "full.sock"))
	assert.Equal(t, []string{"full.sock"}, left(t, dir))
}

func TestKitSocketPathTooLong(t *testing.T) {
	dir := t.TempDir()
	for _, more := range []int{0, 1} {
		name := strings.Repeat("n", 106-len(dir)-len("/.sock")+more)
		s := kit.Server{Name: name, Plugin: watcher{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.Run(ended)
		if more == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "socket path too long: limit 106 bytes, this one has 107")
	}
}

func TestKitLeavesReplacedSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "full.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&kit.Server{Name: "full", Plugin: watcher{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	deadline.Eventually(t, func() bool { _, err := os.Lstat(path); return err == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, os.Remove(path))
	other, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer other.Close()
	cancel()
	require.NoError(t, <-done)
	assert.FileExists(t, path)
}

func TestKitUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--plugins.dir /nowhere/at/all":            "exit status 1: full: listen: open /nowhere/at/all: no such file or directory\n",
		"--token-file /nowhere --plugins.dir /tmp": "exit status 1: full: stat /nowhere: no such file or directory\n",
		"--name=a/b --plugins.dir " + t.TempDir():  "exit status 1: full: name \"a/b\": want letters, digits, '.', '_' and '-'\n",
		"extra": "exit status 2: full: unexpected argument \"extra\"; see --help\n",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), "KIT_TEST_PLUGIN=1")
		_, err := cmd.Output()
		var failed *exec.ExitError
		require.True(t, errors.As(err, &failed), args)
		assert.Equal(t, want, fmt.Sprintf("%v: %s", err, failed.Stderr))
	}
}

// start runs the plugin as a process; log has all that it wrote when it ends.
func start(t *testing.T, dir string) (*exec.Cmd, <-chan string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--plugins.dir", dir)
	cmd.Env = append(os.Environ(), "KIT_TEST_PLUGIN=1")
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	log := make(chan string, 1)
	go func() {
		var said strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
		}
		log <- said.String()
	}()
	return cmd, log
}

// answersAt waits until the plugin behind a socket answers GetInfo.
func answersAt(t *testing.T, path string) {
	t.Helper()
	deadline.Eventually(t, func() bool {
		info, err := registration.NewRegistrationClient(dial(t, path)).GetInfo(t.Context(), &registration.InfoRequest{})
		return err == nil && info.GetName() == "full"
	}, 10*time.Second, 5*time.Millisecond)
}

// abandoned is a socket without a listener.
func abandoned(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
