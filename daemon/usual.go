package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/state"
)

// usual keeps what the plugins have learned of the disks over a restart. It is
// written by a goroutine of its own: the disk that it is written to may be the
// one that is slow.
type usual struct {
	file    state.File[plugins.Baselines]
	learned atomic.Pointer[plugins.Baselines]
	taken   time.Duration // of the sample loop
	ended   chan struct{} // it samples no more
}

// keepEvery is how often it is taken and written: what is lost with a machine is
// twice that of an hour.
const keepEvery = 5 * time.Minute

func newUsual(dir string) usual {
	return usual{file: state.File[plugins.Baselines]{Path: filepath.Join(dir, "baselines.json")}, ended: make(chan struct{})}
}

// load is what an agent before this one has learned.
func (u *usual) load(log *slog.Logger) plugins.Baselines {
	learned, err := u.file.Load()
	if err != nil && !errors.Is(err, state.ErrNone) {
		log.Warn("cannot read saved disk baselines; learning them again", "reason", err)
	}
	return learned
}

func (u *usual) take(set *plugins.Set, now time.Duration) {
	if now-u.taken >= keepEvery {
		u.taken = now
		u.put(set)
	}
}

func (u *usual) put(set *plugins.Set) {
	learned := set.Usual()
	u.learned.Store(&learned)
}

// end is the last that the sample loop does.
func (u *usual) end(set *plugins.Set) {
	u.put(set)
	close(u.ended)
}

// keep writes what was taken, now and then and at the end.
func (u *usual) keep(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			u.write(log)
		case <-ctx.Done():
			<-u.ended
			u.write(log)
			return nil
		}
	}
}

func (u *usual) write(log *slog.Logger) {
	learned := u.learned.Swap(nil)
	if learned == nil || len(*learned) == 0 {
		return
	}
	if err := u.file.Save(*learned); err != nil {
		log.Warn("cannot save disk baselines", "error", err)
	}
}
