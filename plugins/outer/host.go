package outer

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// scanEvery is the interval of the scans that find what inotify missed: a
	// directory that did not exist before, a queue that overflowed.
	scanEvery = 10 * time.Second
	// lookEvery is the interval of the looks for rivals while a directory is not
	// searched yet, such as a new one: its plugins wait for that.
	lookEvery = time.Second
	// idleLookEvery is the interval of the looks while there is no socket: then a rival
	// takes no plugin from us, and the processes of the node need not be examined. The
	// first socket is looked at before it is asked.
	idleLookEvery = time.Minute
	// minScanPause and scanPauseFactor limit the cost of a storm of files: after a scan
	// follows a pause of scanPauseFactor times its duration. newPerScan limits the
	// cost of a storm of sockets: the remaining ones are left to the next scan.
	minScanPause    = 20 * time.Millisecond
	scanPauseFactor = 9
	newPerScan      = 16
)

// Host is the agent's side of all outer plugins.
type Host struct {
	// Settings returns the current configuration; Dirs must be absolute.
	Settings func() Config
	// Procfs is the host's /proc, in which another plugin host is found.
	Procfs string
	Log    *slog.Logger

	registry registry
	rivals   rivalWatch
	// dirs are the configured directories without links, by their names with them, as Run
	// found them last.
	dirs atomic.Pointer[map[string]string]

	// Used by Run only.
	settings    Config    // of the last scan
	limitLogged bool      // the scan limits were exceeded and logged
	looked      time.Time // when it looked for rivals
	idle        bool      // no scan yet, or the last one found no socket
}

// Run discovers plugins and registers them until ctx is done; then it closes
// all connections. Without inotify, scans alone discover them.
func (h *Host) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	watcher, err := fsnotify.NewWatcher()
	var events <-chan fsnotify.Event
	var errs <-chan error
	if err != nil {
		h.Log.Warn("inotify unavailable; plugins are found by directory scans only", "every", scanEvery, "error", err)
	} else {
		defer watcher.Close()
		events, errs = watcher.Events, watcher.Errors
	}
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	soon := time.NewTicker(lookEvery)
	defer soon.Stop()
	h.updateRivals(ctx, firstRivalTime)
	h.idle = true // a rival may begin after that search, before the first socket is found
	for look := false; ; {
		if look {
			h.updateRivals(ctx, rivalTime)
		}
		begun := time.Now()
		rest, searching := h.scan(ctx, watcher, &all)
		look = false
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(minScanPause, scanPauseFactor*time.Since(begun)), scanEvery)):
		}
		if rest {
			continue
		}
		var again <-chan time.Time
		if searching {
			again = soon.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			drain(events)
		case err := <-errs: // queue overflow: the next scan finds what was lost
			h.Log.Debug("inotify failed", "error", err)
		case <-tick.C:
			look = !h.idle || time.Since(h.looked) >= idleLookEvery
		case <-again:
			look = true
		}
	}
}

func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// scan scans the directories, starts new sockets, ends those that were removed
// or are no longer allowed, and reports whether some are left to start, and whether a
// directory is not searched for rivals yet.
func (h *Host) scan(ctx context.Context, watcher *fsnotify.Watcher, all *sync.WaitGroup) (rest, searching bool) {
	c := h.Settings()
	h.resolve(c.Dirs)
	now := discover(c.Dirs)
	if h.watch(watcher, now.dirs) { // a socket may appear between the scan and the watch
		now = discover(c.Dirs)
	}
	if now.incompleteDir != "" && !h.limitLogged {
		h.limitLogged = true
		h.Log.Warn("plugin directories exceed the scan limits, so some sockets are not found; remove files that are not plugin sockets",
			"incompleteDir", now.incompleteDir, "maxEntries", maxEntries, "maxDirs", maxDirs, "maxSockets", maxSockets)
	}
	if h.idle && len(now.sockets) > 0 {
		h.updateRivals(ctx, firstRivalTime)
	}
	h.idle = len(now.sockets) == 0
	if !reflect.DeepEqual(c, h.settings) { // what was refused may be allowed now
		h.settings = c
		h.registry.retryAll()
	}
	h.registry.endMissing(c, now.sockets)
	rest = h.registry.startNew(now.sockets, func(path string, file fileIdentity) *socket {
		s := newSocket(ctx, h, path, file)
		all.Go(s.run)
		return s
	})
	return rest, h.rivals.known().unsearched(now.dirs)
}

// updateRivals looks for rivals, and wakes the sockets when those or the searched
// directories have changed.
func (h *Host) updateRivals(ctx context.Context, limit time.Duration) {
	h.looked = time.Now()
	h.resolve(h.Settings().Dirs)
	if h.rivals.update(ctx, h, limit) {
		h.registry.retryAll()
	}
}

// resolve resolves the links of the configured directories. One that is away at present
// keeps what it was.
func (h *Host) resolve(dirs []string) {
	before, now := h.resolved(), map[string]string{}
	for _, dir := range dirs {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			resolved = before[dir]
		}
		now[dir] = resolved
	}
	h.dirs.Store(&now)
}

func (h *Host) resolved() map[string]string {
	if dirs := h.dirs.Load(); dirs != nil {
		return *dirs
	}
	return nil
}

// within reports whether a path without links is in one of dirs. It touches no file, since
// rounds call it, and a directory may be on a mount that hangs.
func (h *Host) within(dirs []string, path string) bool {
	resolved := h.resolved()
	return slices.ContainsFunc(dirs, func(dir string) bool { return below(cmp.Or(resolved[dir], dir), path) })
}

// watch adds inotify watches for new directories, and reports whether there
// were any. watcher may be nil.
func (h *Host) watch(watcher *fsnotify.Watcher, dirs []string) (fresh bool) {
	if watcher == nil {
		return false
	}
	for _, dir := range dirs {
		if slices.Contains(watcher.WatchList(), dir) {
			continue
		}
		fresh = true
		if err := watcher.Add(dir); err != nil {
			h.Log.Debug("failed to watch plugin directory", "dir", dir, "error", err)
		}
	}
	return fresh
}
