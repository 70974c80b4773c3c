package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/state"
)

// historyKeeper keeps the history of published states over restarts. It has a
// goroutine of its own: neither what it computes nor the disk it writes to delays a
// sample.
type historyKeeper struct {
	store  history.Store
	path   string
	writer state.Writer // of path
	// interval is how often the history is saved: a crash loses as much.
	interval time.Duration
	failed   string // why it could not be saved last
}

const historyInterval = 5 * time.Minute

func newHistory(dir string) *historyKeeper {
	return &historyKeeper{path: filepath.Join(dir, "history"), interval: historyInterval}
}

// load reads what an earlier agent saved.
func (k *historyKeeper) load(log *slog.Logger) {
	f, err := os.Open(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		defer f.Close()
		err = k.store.Load(f)
	}
	if err != nil {
		log.Warn("cannot read the saved history; the plots begin now", "file", k.path, "error", err)
	}
}

// run takes each state that newest returns, until ctx is done; it is called again when the
// channel of published is closed.
func (k *historyKeeper) run(ctx context.Context, published func() <-chan struct{}, newest func() *view.State, log *slog.Logger) error {
	k.load(log)
	ticker := time.NewTicker(k.interval)
	defer ticker.Stop()
	for {
		next := published()
		if s := newest(); s != nil {
			k.store.Add(s.Snapshot, s.Levels)
		}
		select {
		case <-next:
		case <-ticker.C:
			k.save(log)
		case <-ctx.Done():
			k.save(log)
			return nil
		}
	}
}

// save writes the history, and waits no longer than saveTimeout for it.
func (k *historyKeeper) save(log *slog.Logger) {
	write := k.store.Prepare()
	err := k.writer.Do(saveTimeout, func() error { return state.Replace(k.path, write) })
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != k.failed {
		log.Warn("cannot save the history; after a restart the plots lack what came after the last save", "file", k.path, "error", err)
	}
	k.failed = why
}
