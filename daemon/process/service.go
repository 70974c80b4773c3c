package process

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/systemd"
)

// Service notifies systemd (sd_notify), if systemd started this program.
type Service struct {
	Log   *slog.Logger
	Ready atomic.Bool // READY=1 was sent

	// Owned by the caller of alive.
	watchdog      time.Duration // that was sent
	notifyFailing bool          // notifications fail, and that is logged
}

// Alive sends the status and feeds the watchdog; the first call sends READY=1.
// Without another call within watchdog (0: the unit's own) systemd restarts the
// program.
func (s *Service) Alive(status string, watchdog time.Duration) {
	said := []string{systemd.Status(status)}
	if systemd.Watched() {
		if watchdog != s.watchdog {
			said, s.watchdog = append(said, systemd.Watchdog(watchdog)), watchdog
		}
		said = append(said, systemd.Alive)
	}
	if !s.Ready.Load() {
		said = append(said, systemd.Ready)
	}
	err := systemd.Notify(said...)
	if err != nil && !s.notifyFailing {
		s.Log.Warn("sd_notify failed", "error", err)
	}
	s.notifyFailing = err != nil
	s.Ready.Store(err == nil)
}

// reload runs do between RELOADING=1 and READY=1, unless READY=1 was never
// sent.
func (s *Service) reload(do func() error) {
	if !s.Ready.Load() {
		_ = do() // the file logs the error; page and metrics show it
		return
	}
	begins, err := systemd.Reloading()
	if err == nil {
		err = systemd.Notify(begins)
	}
	_ = do() // as above
	if err == nil {
		err = systemd.Notify(systemd.Ready)
	}
	if err != nil {
		s.Log.Warn("sd_notify of a reload failed", "error", err)
	}
}

// ReloadOnHangup reloads on each SIGHUP until ctx is done.
func (s *Service) ReloadOnHangup(ctx context.Context, do func() error) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			s.reload(do)
		}
	}
}

// NotifyStopping sends STOPPING=1 once ctx is done.
func (s *Service) NotifyStopping(ctx context.Context) error {
	<-ctx.Done()
	if err := systemd.Notify(systemd.Stopping); err != nil {
		s.Log.Warn("sd_notify of the stop failed", "error", err)
	}
	return nil
}

// ConfigWarning tells that the last good configuration is in use.
func ConfigWarning(ok bool, _ error, _ time.Time) string {
	if ok {
		return ""
	}
	return " · the configuration file has errors: the last good one is in use"
}
