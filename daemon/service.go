package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/systemd"
)

// service notifies systemd (sd_notify), if systemd started this program.
type service struct {
	log   *slog.Logger
	ready atomic.Bool // READY=1 was sent

	// Owned by the caller of alive.
	watchdog time.Duration // that was sent
	silent   bool          // notifications fail, and that is logged
}

// alive sends the status and feeds the watchdog; the first call sends READY=1.
// Without another call within watchdog (0: the unit's own) systemd restarts the
// program.
func (s *service) alive(status string, watchdog time.Duration) {
	said := []string{systemd.Status(status)}
	if systemd.Watched() {
		if watchdog != s.watchdog {
			said, s.watchdog = append(said, systemd.Watchdog(watchdog)), watchdog
		}
		said = append(said, systemd.Alive)
	}
	if !s.ready.Load() {
		said = append(said, systemd.Ready)
	}
	err := systemd.Notify(said...)
	if err != nil && !s.silent {
		s.log.Warn("sd_notify failed", "error", err)
	}
	s.silent = err != nil
	s.ready.Store(err == nil)
}

// reload runs do between RELOADING=1 and READY=1, unless READY=1 was never
// sent.
func (s *service) reload(do func() error) {
	if !s.ready.Load() {
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
		s.log.Warn("sd_notify of a reload failed", "error", err)
	}
}

// reloadOnHangup reloads on each SIGHUP until ctx is done.
func (s *service) reloadOnHangup(ctx context.Context, do func() error) error {
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

// ends sends STOPPING=1 once ctx is done.
func (s *service) ends(ctx context.Context) error {
	<-ctx.Done()
	if err := systemd.Notify(systemd.Stopping); err != nil {
		s.log.Warn("sd_notify of the stop failed", "error", err)
	}
	return nil
}

// report notifies systemd of each sample. If samples stop, the watchdog ends
// the agent after the same time from which /-/healthy fails.
func (a *Agent) report(ctx context.Context, svc *service) error {
	for {
		next := a.bell.Next()
		if s := a.state.Load(); s != nil {
			svc.alive(a.status(s), a.Config.Current().Watchdog)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
	}
}

// status is the node's state and what it means for its pods, in one line.
func (a *Agent) status(s *view.State) string {
	headline, _ := s.Headline()
	return headline + " · " + s.With(a.viewCluster(), nil).ModeText() + badConfig(a.Config.Status())
}

// badConfig tells that the last good configuration is in use.
func badConfig(ok bool, _ error, _ time.Time) string {
	if ok {
		return ""
	}
	return " · the configuration file has errors: the last good one is in use"
}
