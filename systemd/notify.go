// Package systemd speaks with systemd where that has started this program:
// whether it is ready, lives, reloads and ends (sd_notify(3)), the sockets it was
// handed (sd_listen_fds(3)), and a log whose facts are fields of the journal
// (systemd.journal-fields(7)). Elsewhere all of it is silence. Beside it lie the
// units themselves.
//
// # Concurrency
//
// Everything may be called from any goroutine. A call of Notify waits for
// systemd to read, so nothing that must go on makes one.
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

// What a service says of itself, for [Notify].
const (
	Ready    = daemon.SdNotifyReady    // it has started, or has reloaded
	Stopping = daemon.SdNotifyStopping // it ends
	Alive    = daemon.SdNotifyWatchdog // it lives: the watchdog's time starts anew
)

// Notify tells the service manager all of this at once. Where none listens it
// does nothing.
func Notify(said ...string) error {
	if _, err := daemon.SdNotify(false, strings.Join(said, "\n")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// Status is how it is, in a line for people.
func Status(text string) string {
	return "STATUS=" + strings.ReplaceAll(text, "\n", " ")
}

// Reloading says that the service reads its configuration until it is Ready
// again. The time is that of CLOCK_MONOTONIC: systemd takes a Ready for the end
// of this reload by it.
func Reloading() (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "", fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)), nil
}

// Watchdog is after how long without Alive the service counts as dead; the
// unit's own WatchdogSec then no longer counts.
func Watchdog(d time.Duration) string {
	return "WATCHDOG_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
}

// Watched says whether the unit has a watchdog for this process.
func Watched() bool {
	of := os.Getenv("WATCHDOG_PID")
	return os.Getenv("WATCHDOG_USEC") != "" && (of == "" || of == strconv.Itoa(os.Getpid()))
}
