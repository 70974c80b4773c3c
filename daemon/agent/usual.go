package agent

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

// usual stores the disk baselines across restarts. A goroutine of its own
// writes them, because the disk it writes to may be the slow one.
type usual struct {
	file    state.File[plugins.Baselines]
	learned atomic.Pointer[plugins.Baselines]
	taken   time.Duration // owned by the sample loop
	ended   chan struct{} // closed when the sample loop has ended
}

// keepEvery is how often baselines are taken, and how often written: a crash
// loses at most twice this.
const keepEvery = 5 * time.Minute

func newUsual(dir string) usual {
	return usual{file: state.File[plugins.Baselines]{Path: filepath.Join(dir, "baselines.json")}, ended: make(chan struct{})}
}

// load returns the baselines of an earlier agent.
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

// end takes the last baselines; the sample loop calls it when it ends.
func (u *usual) end(set *plugins.Set) {
	u.put(set)
	close(u.ended)
}

// keep writes the baselines periodically and at the end.
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
