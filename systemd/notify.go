// Package systemd implements a service's side of systemd: readiness, watchdog,
// reload and status (sd_notify(3)), passed sockets (sd_listen_fds(3)), and
// structured logging to the journal (systemd.journal-fields(7)). Without systemd
// all of it does nothing. The unit files are beside it.
//
// # Concurrency
//
// Everything may be called from any goroutine. Notify may block until systemd
// reads, so nothing that must not block calls it.
package systemd

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// States of a service, for [Notify].
const (
	Ready    = daemon.SdNotifyReady    // startup or reload is complete
	Stopping = daemon.SdNotifyStopping // shutdown has begun
	Alive    = daemon.SdNotifyWatchdog // feeds the watchdog
)

// Notify sends states to the service manager in one message. Without one it does
// nothing.
func Notify(states ...string) error {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// Listens tells whether a service manager is there for [Notify].
func Listens() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Status is a line for people, shown by systemctl status.
func Status(text string) string {
	return "STATUS=" + strings.ReplaceAll(text, "\n", " ")
}

// Reloading says that the service reloads its configuration until it is Ready
// again. By the time, of CLOCK_MONOTONIC, systemd matches Ready to this reload.
func Reloading() (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "", fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)), nil
}

// Watchdog sets the watchdog timeout, which replaces the unit's WatchdogSec.
func Watchdog(d time.Duration) string {
	return "WATCHDOG_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Watched tells whether the unit has a watchdog for this process.
func Watched() bool {
	of := os.Getenv("WATCHDOG_PID")
	return os.Getenv("WATCHDOG_USEC") != "" && (of == "" || of == strconv.Itoa(os.Getpid()))
}
