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

// same reports whether both are of one program: one process, or processes of one cgroup
// that is not the root. A process of another PID namespace, which has none here, is known
// by its cgroup alone.
func (l listener) same(o listener) bool {
	return l.pid != 0 && l.pid == o.pid || l.cgroup != "" && l.cgroup != "/" && l.cgroup == o.cgroup
}

func listenerOf(procfs string, l *connection) listener {
	pid := int(l.peer.Pid)
	return listener{pid, cgroupOf(filepath.Join(procfs, strconv.Itoa(pid)))}
}

// rivalReturn is how long a rival that has ended counts as there: it may be starting
// anew, with which a kubelet waits for up to five minutes (CrashLoopBackOff).
const rivalReturn = 6 * time.Minute

// knownRivals is what the search for rivals has found so far. It never changes.
type knownRivals struct {
	byDir map[string][]Rival // those that have ended come last
	// searched are the directories for which all processes were examined, and unfinished
	// is why others are not.
	searched   map[string]bool
	unfinished string
}

// list returns the rivals by directory. One that listens itself on all sockets of a
// directory of which that is known is none.
func (k knownRivals) list(listeners map[string][]listener) []Rival {
	var list []Rival
	for _, dir := range slices.Sorted(maps.Keys(k.byDir)) {
		for _, r := range k.byDir[dir] {
			if !onlyListener(r, listeners[dir]) {
				list = append(list, r)
			}
		}
	}
	return list
}

// onlyListener reports whether a rival listens itself on all sockets that are known of a
// directory.
func onlyListener(r Rival, known []listener) bool {
	return len(known) > 0 && !slices.ContainsFunc(known, func(by listener) bool { return !r.listens(by) })
}

// withEnded adds to the rivals found those of before that have ended since, for a time:
// while a host starts anew another must neither take its plugins nor begin to act by
// them.
func withEnded(found, before map[string][]Rival, listeners map[string][]listener, now time.Time, wait time.Duration) map[string][]Rival {
	all := map[string][]Rival{}
	for dir, list := range found {
		all[dir] = withAlone(list, before[dir], listeners[dir])
	}
	for dir, list := range before {
		if ended := endedOf(list, found[dir], now, wait); len(ended) > 0 {
			all[dir] = append(all[dir], ended...)
		}
	}
	return all
}

// withAlone notes which rivals of a directory are plugins that watch it.
func withAlone(found, before []Rival, known []listener) []Rival {
	list := slices.Clone(found)
	for i, r := range list {
		was := func(o Rival) bool { return o.PID == r.PID && o.alone }
		list[i].alone = onlyListener(r, known) || len(known) == 0 && slices.ContainsFunc(before, was)
	}
	return list
}

// endedOf returns those rivals of a directory that have ended and still count, maxRivals at
// most: no plugin that watched its own directory, and no program of which there is a process
// again.
func endedOf(before, found []Rival, now time.Time, wait time.Duration) (list []Rival) {
	for _, r := range before {
		back := func(o Rival) bool { return r.listens(listener{o.PID, o.Cgroup}) }
		if r.alone || slices.ContainsFunc(found, back) {
			continue
		}
		if r.Ended.IsZero() {
			r.Ended, r.Until = now, now.Add(wait)
		}
		if now.Before(r.Until) && len(list) < maxRivals {
			list = append(list, r)
		}
	}
	return list
}

// unsearched reports whether a directory is not searched yet.
func (k knownRivals) unsearched(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return !k.searched[dir] })
}

// of returns the rival that asks a plugin, too: a process that watches the directory of
// its socket and is not the plugin itself.
func (k knownRivals) of(path string, by listener) (Rival, bool) {
	for _, r := range k.byDir[filepath.Dir(path)] {
		if !r.listens(by) {
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
	switch r, is := k.of(path, by); {
	case is && r.Ended.IsZero():
		return fmt.Errorf("%w: %s and may ask this plugin, too; stop it, or set plugins.beside", errRefused, r)
	case is:
		return fmt.Errorf("%w: %s; wait, or set plugins.beside", errRefused, r)
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
	logged  []Rival
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
func (w *rivalWatch) update(ctx context.Context, procfs string, c Config, known func() map[string][]listener, log *slog.Logger, limit time.Duration) (changed bool) {
	self := filepath.Join(procfs, strconv.Itoa(selfIn(procfs)))
	w.search.procfs, w.search.skip = procfs, func(process string) bool { return process == self }
	before, at := w.known(), discover(c.Dirs)
	w.search.look(ctx, at.dirs, limit)
	listeners := known() // also of plugins that the look found before they were connected to
	now := knownRivals{byDir: withEnded(w.search.found, before.byDir, listeners, time.Now(), rivalReturn), searched: map[string]bool{}, unfinished: w.search.unfinished()}
	for _, p := range w.search.searched {
		now.searched[p.dir] = true
	}
	w.newest.Store(&now)
	if len(at.sockets) > 0 { // else there is no plugin for which it matters
		w.logSearch(now, at.dirs, c.Beside, log)
	}
	w.logRivals(now.list(listeners), at, listeners, c.Beside, log)
	return !maps.EqualFunc(before.byDir, now.byDir, sameRivals) || !maps.Equal(before.searched, now.searched)
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

// sameRivals compares them without their commands.
func sameRivals(a, b []Rival) bool {
	return slices.EqualFunc(a, b, func(a, b Rival) bool {
		return a.Dir == b.Dir && a.PID == b.PID && a.Cgroup == b.Cgroup && a.Ended.Equal(b.Ended)
	})
}

// logRivals logs the rivals when they have changed. While no socket of a directory is
// connected to, the rival there may be the plugin itself.
func (w *rivalWatch) logRivals(list []Rival, at scanResult, listeners map[string][]listener, beside string, log *slog.Logger) {
	list = slices.DeleteFunc(list, func(r Rival) bool { return at.hasSocket(r.Dir) && len(listeners[r.Dir]) == 0 })
	if sameRivals(w.logged, list) {
		return
	}
	w.logged = list
	for _, r := range list {
		if r.Ended.IsZero() {
			log.Warn("another process watches a plugin directory; what becomes of its plugins is plugins.beside",
				"rival", r.String(), "beside", beside)
		} else {
			log.Info("another process that watched a plugin directory has ended, and may be starting anew; for a time plugins.beside still decides about its plugins",
				"rival", r.String(), "beside", beside)
		}
	}
	if len(list) == 0 {
		log.Info("no other process watches a plugin directory any more")
	}
}
