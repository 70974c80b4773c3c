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

// baselineStore stores the disk baselines across restarts. A goroutine of its own
// writes them, because the disk it writes to may be the slow one.
type baselineStore struct {
	file    state.File[plugins.Baselines]
	learned atomic.Pointer[plugins.Baselines]
	taken   time.Duration // owned by the sample loop
	ended   chan struct{} // closed when the sample loop has ended
}

// baselineInterval is how often baselines are taken, and how often written: a crash
// loses at most twice this.
const baselineInterval = 5 * time.Minute

func newUsual(dir string) baselineStore {
	return baselineStore{file: state.File[plugins.Baselines]{Path: filepath.Join(dir, "baselines.json")}, ended: make(chan struct{})}
}

// SavedBaselines returns the baselines that an agent with this state directory saved;
// none is no error. They are read by disk, for which it waits no longer than stateTimeout.
func SavedBaselines(disk *state.Writer, dir string) (plugins.Baselines, error) {
	learned, err := state.Read(disk, stateTimeout, newUsual(dir).file.Load)
	if errors.Is(err, state.ErrNoState) {
		err = nil
	}
	return learned, err
}

// load returns the baselines of an earlier agent, for which it waits no longer than wait.
func (u *baselineStore) load(wait time.Duration, log *slog.Logger) plugins.Baselines {
	learned, err := state.Read(new(state.Writer), wait, u.file.Load)
	if err != nil && !errors.Is(err, state.ErrNoState) {
		log.Warn("cannot read saved disk baselines; learning them again", "reason", err)
	}
	return learned
}

func (u *baselineStore) takeIfDue(set *plugins.Set, now time.Duration) {
	if now-u.taken >= baselineInterval {
		u.taken = now
		u.take(set)
	}
}

func (u *baselineStore) take(set *plugins.Set) {
	learned := set.Baselines()
	u.learned.Store(&learned)
}

// end takes the last baselines; the sample loop calls it when it ends.
func (u *baselineStore) end(set *plugins.Set) {
	u.take(set)
	close(u.ended)
}

// keep writes the baselines periodically and at the end.
func (u *baselineStore) keep(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(baselineInterval)
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

func (u *baselineStore) write(log *slog.Logger) {
	learned := u.learned.Swap(nil)
	if learned == nil || len(*learned) == 0 {
		return
	}
	if err := u.file.Save(*learned); err != nil {
		log.Warn("cannot save disk baselines", "error", err)
	}
}
