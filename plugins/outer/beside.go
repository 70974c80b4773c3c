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

// knownRivals is what the search for rivals has found so far. Only heard changes.
type knownRivals struct {
	byDir map[string][]Rival // those that have ended come last
	heard *heard
	// searched are the directories for which all processes were examined, and unfinished
	// is why others are not.
	searched   map[string]bool
	unfinished string
}

// list returns the rivals by directory, without those that own all sockets there.
func (k knownRivals) list() []Rival {
	var list []Rival
	for _, dir := range slices.Sorted(maps.Keys(k.byDir)) {
		sockets := k.heard.in(dir)
		for _, r := range k.byDir[dir] {
			if !r.ownsAll(sockets) {
				list = append(list, r)
			}
		}
	}
	return list
}

// withEnded adds to the rivals found those of before that have ended since, for a time:
// while a host starts anew another must neither take its plugins nor begin to act by
// them.
func withEnded(found, before map[string][]Rival, now, complete time.Time) map[string][]Rival {
	all := maps.Clone(found)
	for dir, list := range before {
		if ended := endedOf(list, found[dir], now, complete); len(ended) > 0 {
			all[dir] = slices.Concat(found[dir], ended)
		}
	}
	return all
}

// endedOf returns those rivals of a directory that have ended and still count, maxRivals at
// most: no program of which there is a process again. complete is when the last pass began
// that has examined all processes: one that began earlier may have missed a rival that is
// back.
func endedOf(before, found []Rival, now, complete time.Time) (list []Rival) {
	for _, r := range before {
		back := func(o Rival) bool { return r.listens(listener{o.PID, o.Cgroup}) }
		if slices.ContainsFunc(found, back) {
			continue
		}
		if r.Ended.IsZero() {
			r.Ended, r.Until = now, now.Add(rivalReturn)
		}
		if complete.Before(r.Until) && len(list) < maxRivals {
			list = append(list, r)
		}
	}
	return list
}

// unsearched reports whether a directory is not searched yet.
func (k knownRivals) unsearched(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return !k.searched[dir] })
}

// of returns the rival that asks a plugin, too: a process that watches, or watched, the
// directory of its socket. One that owns all sockets there is a plugin that watches its own
// directory. Where there are others, too, it is a host, also of what it serves itself.
func (k knownRivals) of(path string, by listener) (Rival, bool) {
	dir := filepath.Dir(path)
	sockets := k.heard.in(dir)
	sockets[path] = append(sockets[path], by)
	for _, r := range k.byDir[dir] {
		if !r.ownsAll(sockets) {
			return r, true
		}
	}
	return Rival{}, false
}

// unknown reports whether a rival of a plugin may yet be found, and none is known.
func (k knownRivals) unknown(path string, by listener) bool {
	_, is := k.of(path, by)
	return !is && !k.searched[filepath.Dir(path)]
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
	heard  heard

	// Used by Host.Run only.
	search  rivalSearch
	awaited string // why not all directories are searched, as it was logged
	logged  []Rival
	// unexaminedLogged: a process cannot be examined, and that was logged.
	unexaminedLogged bool
}

// known is what the last look found; it may be asked by any goroutine.
func (w *rivalWatch) known() (k knownRivals) {
	if newest := w.newest.Load(); newest != nil {
		k = *newest
	}
	k.heard = &w.heard
	return k
}

// update looks for rivals, and reports whether those or the searched directories have
// changed.
func (w *rivalWatch) update(ctx context.Context, h *Host, limit time.Duration) (changed bool) {
	self := filepath.Join(h.Procfs, strconv.Itoa(selfIn(h.Procfs)))
	w.search.procfs, w.search.skip = h.Procfs, func(process string) bool { return process == self }
	before, c := w.known(), h.Settings()
	listed, at := before.list(), discover(c.Dirs)
	w.search.look(ctx, at.dirs, limit)
	h.registry.hear(&w.heard, time.Now())
	configured := maps.Clone(before.byDir)
	maps.DeleteFunc(configured, func(dir string, _ []Rival) bool { return !h.within(c.Dirs, dir) })
	now := knownRivals{
		byDir: withEnded(w.search.found, configured, time.Now(), w.search.complete), heard: &w.heard,
		searched: map[string]bool{}, unfinished: w.search.unfinished(),
	}
	w.heard.forget(time.Now(), now.byDir)
	for _, p := range w.search.searched {
		now.searched[p.dir] = true
	}
	w.newest.Store(&now)
	if len(at.sockets) > 0 { // else there is no plugin for which it matters
		w.logSearch(now, at.dirs, c.Beside, h.Log)
	}
	list := now.list()
	w.logRivals(list, at, c.Beside, h.Log)
	return !sameRivals(listed, list) || !maps.Equal(before.searched, now.searched)
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
func (w *rivalWatch) logRivals(list []Rival, at scanResult, beside string, log *slog.Logger) {
	list = slices.DeleteFunc(slices.Clone(list), func(r Rival) bool { return at.hasSocket(r.Dir) && len(w.heard.in(r.Dir)) == 0 })
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
