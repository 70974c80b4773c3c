package process

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// systemdHears is a service manager as far as a program knows one: a socket.
func systemdHears(t *testing.T) (next func() string) {
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
		return strings.ReplaceAll(string(buf[:n]), "\n", " ")
	}
}

func TestNotifyReadyOnceThenWatchdog(t *testing.T) {
	next := systemdHears(t)
	t.Setenv("WATCHDOG_USEC", "60000000")
	s := &Service{Log: slog.New(slog.DiscardHandler)}
	s.Alive("one", time.Minute)
	assert.Equal(t, "STATUS=one WATCHDOG_USEC=60000000 WATCHDOG=1 READY=1", next())
	s.Alive("two", time.Minute)
	assert.Equal(t, "STATUS=two WATCHDOG=1", next())
	s.Alive("three", time.Second)
	assert.Equal(t, "STATUS=three WATCHDOG_USEC=1000000 WATCHDOG=1", next(), "another configuration")
}

func TestNotifyWithoutWatchdog(t *testing.T) {
	next := systemdHears(t)
	t.Setenv("WATCHDOG_USEC", "")
	s := &Service{Log: slog.New(slog.DiscardHandler)}
	s.Alive("one", time.Minute)
	assert.Equal(t, "STATUS=one READY=1", next())
}

func TestNotifyReload(t *testing.T) {
	next := systemdHears(t)
	s := &Service{Log: slog.New(slog.DiscardHandler)}
	reloads := 0
	s.reload(func() error { reloads++; return nil })
	s.Alive("one", 0)
	assert.Equal(t, "STATUS=one READY=1", next(), "of a reload before the start has ended nothing is told")
	for _, result := range []error{nil, errors.New("a bad file leaves the last good one in force")} {
		s.reload(func() error {
			reloads++
			assert.Regexp(t, `^RELOADING=1 MONOTONIC_USEC=\d+$`, next())
			return result
		})
		assert.Equal(t, "READY=1", next())
	}
	assert.Equal(t, 3, reloads)
}

func TestHangupReloads(t *testing.T) {
	next := systemdHears(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &Service{Log: slog.New(slog.DiscardHandler)}
	s.Alive("up", 0)
	next()
	reloaded, ended := make(chan struct{}, 1), make(chan error, 2)
	go func() { ended <- s.ReloadOnHangup(ctx, func() error { reloaded <- struct{}{}; return nil }) }()
	go func() { ended <- s.NotifyStopping(ctx) }()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // or one that comes too early would end this process
	deadline.Eventually(t, func() bool {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
		select {
		case <-reloaded:
			return true
		default:
			return false
		}
	}, 10*time.Second, 10*time.Millisecond)
	assert.Contains(t, next(), "RELOADING=1")
	cancel()
	for said := ""; said != "STOPPING=1"; { // after what else was told meanwhile
		said = next()
	}
	assert.NoError(t, <-ended)
	assert.NoError(t, <-ended)
}

func TestNotifyFailureLoggedOnce(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	var said bytes.Buffer
	s := &Service{Log: slog.New(slog.NewTextHandler(&said, nil))}
	for range 3 {
		s.Alive("one", 0)
	}
	assert.Equal(t, 1, strings.Count(said.String(), "sd_notify failed"), said.String())
	next := systemdHears(t)
	s.Alive("back", 0)
	assert.Equal(t, "STATUS=back READY=1", next(), "what was not heard is said again")
}
