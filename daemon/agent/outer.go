package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/state"
)

// outerHost asks the outer plugins and keeps their eviction grace periods.
type outerHost struct {
	host *outer.Host

	mu    sync.Mutex // guards grace
	grace evict.GraceTimers
}

// newOuterHost creates the default plugin directory, writable for root only. It waits no longer
// than wait for the disk.
func newOuterHost(c *config.Agent, wait time.Duration, current func() *config.Agent, log *slog.Logger) *outerHost {
	if len(c.Plugins.Dirs) == 0 {
		if _, err := state.Read(new(state.Writer), wait, func() (_ struct{}, err error) { return struct{}{}, os.MkdirAll(PluginDirs(c)[0], 0o711) }); err != nil {
			log.Warn("cannot create the plugin directory; no outer plugin can register until it is there", "error", err)
		}
	}
	start := c.State // a changed state directory is one only after a restart
	return &outerHost{host: &outer.Host{
		Settings: func() outer.Config {
			c := *current()
			c.State = start
			of := c.Plugins.Outer
			of.Dirs = PluginDirs(&c)
			return of
		},
		Procfs: c.Paths.Procfs, Log: log,
	}}
}

// PluginDirs are the configured directories, by default one beside the state.
func PluginDirs(c *config.Agent) []string {
	if len(c.Plugins.Dirs) > 0 {
		return c.Plugins.Dirs
	}
	return []string{filepath.Join(filepath.Dir(c.State.Dir), "plugins")}
}

// standings are those of these plugins.
func (s *outerHost) standings(names []string) map[string]evict.Standing {
	list := map[string]evict.Standing{}
	for _, name := range names {
		list[name] = evict.Standing(s.host.Standing(name))
	}
	return list
}

// Reported implements outer.GraceTimer.
func (s *outerHost) Reported(v plugins.Verdict, at time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due time.Time
	s.grace, due = s.grace.Observe(v, at)
	return due
}

// Registered implements outer.GraceTimer.
func (s *outerHost) Registered(plugin, process string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.Registered(plugin, process, at)
}

// Missed implements outer.GraceTimer.
func (s *outerHost) Missed(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.MissedAnswer(plugin)
}

// outerOf are the verdicts of outer plugins.
func outerOf(l *plugins.Levels) []plugins.Verdict {
	inner := plugins.Names()
	return slices.DeleteFunc(slices.Clone(l.Verdicts), func(v plugins.Verdict) bool { return slices.Contains(inner, v.Plugin) })
}
