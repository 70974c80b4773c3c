package outer

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

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
	for _, dir := range slices.Sorted(maps.Keys(h.rivalsByDir())) {
		list = append(list, h.rivalsByDir()[dir]...)
	}
	return list
}

func (h *Host) rivalsByDir() map[string][]Rival {
	if all := h.rivals.Load(); all != nil {
		return *all
	}
	return nil
}

// updateRivals looks for rivals, and wakes the sockets when something has changed.
func (h *Host) updateRivals() {
	self := filepath.Join(h.Procfs, strconv.Itoa(selfIn(h.Procfs)))
	before := h.rivalsByDir()
	now := findRivals(h.Procfs, discover(h.Settings().Dirs).dirs, before, func(process string) bool { return process == self }, rivalTime)
	h.rivals.Store(&now)
	same := func(a, b Rival) bool { return a.PID == b.PID && a.Cgroup == b.Cgroup }
	if maps.EqualFunc(before, now, func(a, b []Rival) bool { return slices.EqualFunc(a, b, same) }) {
		return
	}
	for _, r := range h.Rivals() {
		h.Log.Warn("another process watches a plugin directory; what becomes of its plugins is plugins.beside",
			"rival", r.String(), "beside", h.Settings().Beside)
	}
	if len(now) == 0 {
		h.Log.Info("no other process watches a plugin directory any more")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sockets {
		s.retry()
	}
}

// rivalOf returns the rival that asks a plugin, too: a process that watches the
// directory of its socket and is not the plugin itself, by process or by cgroup where
// that is not the root.
func (h *Host) rivalOf(path string, listener int32) (Rival, bool) {
	rivals := h.rivalsByDir()[filepath.Dir(path)]
	if len(rivals) == 0 {
		return Rival{}, false
	}
	own := cgroupOf(filepath.Join(h.Procfs, strconv.Itoa(int(listener))))
	for _, r := range rivals {
		if r.PID != int(listener) && (own == "" || own == "/" || r.Cgroup != own) {
			return r, true
		}
	}
	return Rival{}, false
}

// leftToRival is why a plugin is left to a rival; nil: it is not.
func (h *Host) leftToRival(c Config, path string, listener int32) error {
	if c.Beside != BesideExclusive {
		return nil
	}
	if r, is := h.rivalOf(path, listener); is {
		return fmt.Errorf("%w: %s and may ask this plugin, too; stop it, or set plugins.beside", errRefused, r)
	}
	return nil
}

// beside is what its verdicts are good for: a plugin that no rival asks may act.
func (p *plugin) beside() plugins.Beside {
	if _, is := p.host.rivalOf(p.socket.path, p.link.peer.Pid); !is {
		return ""
	}
	switch p.host.Settings().Beside {
	case BesideAct:
		return ""
	case BesideMark:
		return plugins.BesideMark
	}
	return plugins.BesideReport
}
