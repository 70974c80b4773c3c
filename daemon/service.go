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

// service tells systemd how this program is, where that has started it.
type service struct {
	log   *slog.Logger
	ready atomic.Bool // it was said

	// Of the caller of alive alone.
	watchdog time.Duration // that was said
	silent   bool          // nobody hears, and that was logged
}

// alive says that the program lives and how it is; the first time, that it has
// started. The watchdog's time starts anew: without another call for so long (0:
// as long as the unit says) it is restarted.
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

// reload between telling that it begins and that it is done, if anybody was told
// yet that the program runs.
func (s *service) reload(do func() error) {
	if !s.ready.Load() {
		_ = do() // logged by the file, shown on the page and in the metrics
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

// ends says that the program ends, once ctx is done.
func (s *service) ends(ctx context.Context) error {
	<-ctx.Done()
	if err := systemd.Notify(systemd.Stopping); err != nil {
		s.log.Warn("sd_notify of the stop failed", "error", err)
	}
	return nil
}

// report tells systemd of each sample: where none comes any more it hears
// nothing, and the watchdog ends the agent as long after the last one as
// /-/healthy calls it dead.
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

// status is how the node is and what that means for its pods, in a line.
func (a *Agent) status(s *view.State) string {
	headline, _ := s.Headline()
	return headline + " · " + s.With(a.viewCluster(), nil).ModeText() + badConfig(a.Config.Status())
}

// badConfig says that the last good configuration is in force.
func badConfig(ok bool, _ error, _ time.Time) string {
	if ok {
		return ""
	}
	return " · the configuration file has errors: the last good one is in use"
}
