package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/systemd"
)

// manager is a service manager as far as a service knows one: a socket.
func manager(t *testing.T) (heard func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		buf := make([]byte, 4096)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := c.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
}

func TestNotifyStatesTogether(t *testing.T) {
	heard := manager(t)
	require.NoError(t, systemd.Notify(systemd.Ready, systemd.Status("two\nlines"), systemd.Watchdog(90*time.Second)))
	assert.Equal(t, "READY=1\nSTATUS=two lines\nWATCHDOG_USEC=90000000", heard())
	require.NoError(t, systemd.Notify(systemd.Alive))
	assert.Equal(t, "WATCHDOG=1", heard())
	require.NoError(t, systemd.Notify(systemd.Stopping))
	assert.Equal(t, "STOPPING=1", heard())
}

func TestNotifyReloadingTime(t *testing.T) {
	clock := func() int64 {
		var now unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
		return now.Nano() / 1000
	}
	heard := manager(t)
	before := clock()
	reloading, err := systemd.Reloading()
	require.NoError(t, err)
	require.NoError(t, systemd.Notify(reloading))
	said, at, ok := strings.Cut(heard(), "\nMONOTONIC_USEC=")
	require.True(t, ok)
	assert.Equal(t, "RELOADING=1", said)
	µs, err := strconv.ParseInt(at, 10, 64)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, µs, before)
	assert.LessOrEqual(t, µs, clock())
}

func TestNotifyWithoutSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	assert.NoError(t, systemd.Notify(systemd.Ready))
}

func TestNotifySocketGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	assert.ErrorContains(t, systemd.Notify(systemd.Ready), "notify systemd: ")
}

func TestWatchdogOfOtherProcess(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		watched   bool
	}{
		{"", "", false},
		{"60000000", "", true},
		{"60000000", strconv.Itoa(os.Getpid()), true},
		{"60000000", strconv.Itoa(os.Getppid()), false},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		assert.Equal(t, c.watched, systemd.Watched(), c)
	}
}
