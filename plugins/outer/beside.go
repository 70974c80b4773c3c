package outer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// What happens with a plugin whose directory a rival watches, too.
const (
	BesideExclusive = "exclusive" // it is left to the rival
	BesideReport    = "report"    // it is asked, and its verdicts are a dry run
	BesideMark      = "mark"      // it is asked, and its verdicts mark the node and evict no pod
	BesideAct       = "act"       // as any other plugin
)

// BesideValues are the values of Config.Beside.
func BesideValues() []string {
	return []string{BesideExclusive, BesideReport, BesideMark, BesideAct}
}

// listener is the process that listens on a plugin's socket, with the cgroup that it had
// at registration: when it has ended, the rest of the plugin is known by that.
type listener struct {
	pid    int
	cgroup string
}

func listenerOf(procfs string, l *connection) listener {
	pid := int(l.peer.Pid)
	return listener{pid, cgroupOf(filepath.Join(procfs, strconv.Itoa(pid)))}
}

// knownRivals is what the search for rivals has found so far. It never changes.
type knownRivals struct {
	byDir map[string][]Rival
	// searched are the directories for which all processes were examined, and unfinished
	// is why others are not.
	searched   map[string]bool
	unfinished string
}

// list returns the rivals by directory.
func (k knownRivals) list() []Rival {
	var list []Rival
	for _, dir := range slices.Sorted(maps.Keys(k.byDir)) {
		list = append(list, k.byDir[dir]...)
	}
	return list
}

// unsearched reports whether a directory is not searched yet.
func (k knownRivals) unsearched(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return !k.searched[dir] })
}

// of returns the rival that asks a plugin, too: a process that watches the directory of
// its socket and is not the plugin itself, by process or by cgroup where that is not the
// root.
func (k knownRivals) of(path string, by listener) (Rival, bool) {
	for _, r := range k.byDir[filepath.Dir(path)] {
		if r.PID != by.pid && (by.cgroup == "" || by.cgroup == "/" || r.Cgroup != by.cgroup) {
			return r, true
		}
	}
	return Rival{}, false
}

// errSearching: not all processes were examined, so that a rival may yet be found. Until
// then the plugin is not asked: it gives some answers only once, and they would be
// missing to the rival.
var errSearching = fmt.Errorf("%w: not all processes are examined yet that may watch its directory", errRefused)

// leave is why a plugin is left to a rival by this value of Config.Beside, or to one that
// may yet be found (errSearching); nil: it is not.
func (k knownRivals) leave(beside, path string, by listener) error {
	if beside != BesideExclusive {
		return nil
	}
	if r, is := k.of(path, by); is {
		return fmt.Errorf("%w: %s and may ask this plugin, too; stop it, or set plugins.beside", errRefused, r)
	}
	if !k.searched[filepath.Dir(path)] {
		return fmt.Errorf("%w: %s", errSearching, cmp.Or(k.unfinished, "its directory is new"))
	}
	return nil
}

// beside is what the verdicts of a plugin are good for by this value of Config.Beside: a
// plugin that no rival asks may act. While not all processes were examined, there may be
// one.
func (k knownRivals) beside(beside, path string, by listener) plugins.Beside {
	_, is := k.of(path, by)
	switch {
	case beside == BesideAct, !is && k.searched[filepath.Dir(path)]:
		return ""
	case beside == BesideMark:
		return plugins.BesideMark
	}
	return plugins.BesideReport
}

// rivalWatch searches for rivals again and again, and logs what has changed.
type rivalWatch struct {
	newest atomic.Pointer[knownRivals] // nil before the first look

	// Used by Host.Run only.
	search  rivalSearch
	awaited string // why not all directories are searched, as it was logged
	// unexaminedLogged: a process cannot be examined, and that was logged.
	unexaminedLogged bool
}

// known is what the last look found; it may be asked by any goroutine.
func (w *rivalWatch) known() knownRivals {
	if known := w.newest.Load(); known != nil {
		return *known
	}
	return knownRivals{}
}

// update looks for rivals, and reports whether those or the searched directories have
// changed.
func (w *rivalWatch) update(ctx context.Context, procfs string, c Config, log *slog.Logger, limit time.Duration) (changed bool) {
	self := filepath.Join(procfs, strconv.Itoa(selfIn(procfs)))
	w.search.procfs, w.search.skip = procfs, func(process string) bool { return process == self }
	before, at := w.known(), discover(c.Dirs)
	w.search.look(ctx, at.dirs, limit)
	now := knownRivals{byDir: w.search.found, searched: map[string]bool{}, unfinished: w.search.unfinished()}
	for _, p := range w.search.searched {
		now.searched[p.dir] = true
	}
	w.newest.Store(&now)
	if len(at.sockets) > 0 { // else there is no plugin for which it matters
		w.logSearch(now, at.dirs, c.Beside, log)
	}
	return logRivals(before, now, c.Beside, log) || !maps.Equal(before.searched, now.searched)
}

// logSearch logs when plugins begin, or end, to wait for the search, and for which
// reason, and when a process cannot be examined.
func (w *rivalWatch) logSearch(now knownRivals, dirs []string, beside string, log *slog.Logger) {
	missing := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return now.searched[dir] })
	waited, why := w.awaited, ""
	if len(missing) > 0 {
		why = now.unfinished
	}
	w.awaited = why
	switch {
	case why != "" && why != waited:
		log.Info("not all processes are examined yet that may watch plugin directories; until they are, plugins.beside decides about the plugins there",
			"dirs", missing, "reason", why, "beside", beside, "plugins", untilSearched(beside))
	case waited != "" && why == "":
		log.Info("all processes are examined that may watch plugin directories")
	}
	pid, err := w.search.unexamined()
	if err != nil && !w.unexaminedLogged {
		log.Warn("a process cannot be examined; if it watches a plugin directory, the agent and it may both ask the plugins there; "+
			"give the agent the right to read /proc of all processes, or set plugins.beside", "pid", pid, "error", err)
	}
	w.unexaminedLogged = err != nil
}

// untilSearched is what plugins.beside makes of the plugins of a directory that is not
// searched yet.
func untilSearched(beside string) string {
	switch beside {
	case BesideExclusive:
		return "are not registered"
	case BesideMark:
		return "mark the node and evict no pod"
	case BesideAct:
		return "act as any other"
	}
	return "only report"
}

// logRivals logs the rivals when they have changed.
func logRivals(before, now knownRivals, beside string, log *slog.Logger) (changed bool) {
	same := func(a, b Rival) bool { return a.PID == b.PID && a.Cgroup == b.Cgroup }
	if maps.EqualFunc(before.byDir, now.byDir, func(a, b []Rival) bool { return slices.EqualFunc(a, b, same) }) {
		return false
	}
	for _, r := range now.list() {
		log.Warn("another process watches a plugin directory; what becomes of its plugins is plugins.beside",
			"rival", r.String(), "beside", beside)
	}
	if len(now.byDir) == 0 {
		log.Info("no other process watches a plugin directory any more")
	}
	return true
}
