package outer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
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

// Rivals returns the other processes that watch plugin directories, in order.
func (h *Host) Rivals() []Rival {
	var list []Rival
	byDir := h.knownRivals().byDir
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		list = append(list, byDir[dir]...)
	}
	return list
}

// knownRivals is what the search for rivals has found so far.
type knownRivals struct {
	byDir map[string][]Rival
	// searched are the directories for which all processes were examined, and unfinished
	// is why others are not.
	searched   map[string]bool
	unfinished string
}

func (h *Host) knownRivals() knownRivals {
	if known := h.rivals.Load(); known != nil {
		return *known
	}
	return knownRivals{}
}

// updateRivals looks for rivals, and wakes the sockets when those or the searched
// directories have changed.
func (h *Host) updateRivals(ctx context.Context, limit time.Duration) {
	self := filepath.Join(h.Procfs, strconv.Itoa(selfIn(h.Procfs)))
	h.search.procfs, h.search.skip = h.Procfs, func(process string) bool { return process == self }
	before, dirs := h.knownRivals(), discover(h.Settings().Dirs).dirs
	h.search.look(ctx, dirs, limit)
	now := knownRivals{byDir: h.search.found, searched: map[string]bool{}, unfinished: h.search.unfinished()}
	for _, p := range h.search.searched {
		now.searched[p.dir] = true
	}
	h.rivals.Store(&now)
	h.logSearch(now, dirs)
	if h.logRivals(before.byDir, now.byDir) || !maps.Equal(before.searched, now.searched) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range h.sockets {
			s.retry()
		}
	}
}

// unsearched reports whether a directory is not searched yet.
func (h *Host) unsearched(dirs []string) bool {
	known := h.knownRivals().searched
	return slices.ContainsFunc(dirs, func(dir string) bool { return !known[dir] })
}

// logSearch logs when plugins begin, or end, to wait for the search, and for which
// reason, and when a process cannot be examined.
func (h *Host) logSearch(now knownRivals, dirs []string) {
	missing := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return now.searched[dir] })
	waited, why := h.rivalsAwaited, ""
	if len(missing) > 0 {
		why = now.unfinished
	}
	h.rivalsAwaited = why
	switch {
	case why != "" && why != waited:
		beside := h.Settings().Beside
		h.Log.Info("not all processes are examined yet that may watch plugin directories; until they are, plugins.beside decides about the plugins there",
			"dirs", missing, "reason", why, "beside", beside, "plugins", untilSearched(beside))
	case waited != "" && why == "":
		h.Log.Info("all processes are examined that may watch plugin directories")
	}
	pid, err := h.search.unexamined()
	if err != nil && !h.unexaminedLogged {
		h.Log.Warn("a process cannot be examined; if it watches a plugin directory, the agent and it may both ask the plugins there; "+
			"give the agent the right to read /proc of all processes, or set plugins.beside", "pid", pid, "error", err)
	}
	h.unexaminedLogged = err != nil
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
func (h *Host) logRivals(before, now map[string][]Rival) (changed bool) {
	same := func(a, b Rival) bool { return a.PID == b.PID && a.Cgroup == b.Cgroup }
	if maps.EqualFunc(before, now, func(a, b []Rival) bool { return slices.EqualFunc(a, b, same) }) {
		return false
	}
	for _, r := range h.Rivals() {
		h.Log.Warn("another process watches a plugin directory; what becomes of its plugins is plugins.beside",
			"rival", r.String(), "beside", h.Settings().Beside)
	}
	if len(now) == 0 {
		h.Log.Info("no other process watches a plugin directory any more")
	}
	return true
}

// listener is the process that listens on a plugin's socket, with the cgroup that it had
// at registration: when it has ended, the rest of the plugin is known by that.
type listener struct {
	pid    int
	cgroup string
}

func (h *Host) listenerOf(l *connection) listener {
	pid := int(l.peer.Pid)
	return listener{pid, cgroupOf(filepath.Join(h.Procfs, strconv.Itoa(pid)))}
}

// rivalOf returns the rival that asks a plugin, too: a process that watches the
// directory of its socket and is not the plugin itself, by process or by cgroup where
// that is not the root.
func (h *Host) rivalOf(path string, by listener) (Rival, bool) {
	for _, r := range h.knownRivals().byDir[filepath.Dir(path)] {
		if r.PID != by.pid && (by.cgroup == "" || by.cgroup == "/" || r.Cgroup != by.cgroup) {
			return r, true
		}
	}
	return Rival{}, false
}

// errSearching: there may be a rival, for whom once-only answers are.
var errSearching = fmt.Errorf("%w: not all processes are examined yet that may watch its directory", errRefused)

// leftToRival is why a plugin is left to a rival, or to one that may yet be found
// (errSearching); nil: it is not.
func (h *Host) leftToRival(c Config, path string, by listener) error {
	if c.Beside != BesideExclusive {
		return nil
	}
	if r, is := h.rivalOf(path, by); is {
		return fmt.Errorf("%w: %s and may ask this plugin, too; stop it, or set plugins.beside", errRefused, r)
	}
	if known := h.knownRivals(); !known.searched[filepath.Dir(path)] {
		return fmt.Errorf("%w: %s", errSearching, cmp.Or(known.unfinished, "its directory is new"))
	}
	return nil
}

// beside is what its verdicts are good for: a plugin that no rival asks may act. While
// not all processes were examined, there may be one.
func (p *plugin) beside() plugins.Beside {
	_, is := p.host.rivalOf(p.socket.path, p.listener)
	beside := p.host.Settings().Beside
	switch {
	case beside == BesideAct, !is && p.host.knownRivals().searched[filepath.Dir(p.socket.path)]:
		return ""
	case beside == BesideMark:
		return plugins.BesideMark
	}
	return plugins.BesideReport
}
