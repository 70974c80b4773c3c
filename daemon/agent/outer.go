package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// outerHost asks the outer plugins and keeps their eviction grace periods.
type outerHost struct {
	host *outer.Host

	mu    sync.Mutex // guards grace
	grace evict.GraceTimers
}

// newOuterHost creates the default plugin directory, writable for root only.
func (a *Agent) newOuterHost(c *config.Agent) *outerHost {
	if len(c.Plugins.Dirs) == 0 {
		if err := os.MkdirAll(PluginDirs(c)[0], 0o711); err != nil {
			a.Log.Warn("cannot create the plugin directory; no outer plugin can register", "error", err)
		}
	}
	return &outerHost{host: &outer.Host{
		Settings: func() outer.Config {
			c := a.Config.Current()
			of := c.Plugins.Outer
			of.Dirs = PluginDirs(c)
			return of
		},
		Reserved: plugins.Names(), Procfs: c.Paths.Procfs, Log: a.Log,
	}}
}

// PluginDirs are the configured directories, by default one beside the state.
func PluginDirs(c *config.Agent) []string {
	if len(c.Plugins.Dirs) > 0 {
		return c.Plugins.Dirs
	}
	return []string{filepath.Join(filepath.Dir(c.State.Dir), "plugins")}
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
func (s *outerHost) Registered(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.Without(plugin)
}

// Missed implements outer.GraceTimer.
func (s *outerHost) Missed(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.MissedAnswer(plugin)
}

const (
	// maxMessageBytes is the 4 MiB that a gRPC server accepts, less what a request
	// carries besides the pods.
	maxMessageBytes = 4<<20 - 64<<10
	// hardDeadline is how long a round waits for outer plugins while an inner
	// plugin is at hard; later answers are used in the next round.
	hardDeadline = 200 * time.Millisecond
	// answerMaxRounds is for how many rounds a plugin's last answer is used, but no
	// shorter than answerMinAge.
	answerMaxRounds = 3
	answerMinAge    = 15 * time.Second
)

// askPlugins asks the outer plugins. A level that rises meanwhile ends the waiting, so
// that the round can act on it.
func (a *Agent) askPlugins(ctx context.Context) []plugins.Verdict {
	c := a.Config.Current()
	r := outer.Round{Time: time.Now().UTC(), Graces: a.outer, MaxAge: max(answerMinAge, answerMaxRounds*c.Eviction.Round)}
	if a.cluster != nil {
		if !a.cluster.pods.Synced() {
			return nil // without the pods no answer can be used
		}
		for _, p := range a.cluster.pods.Encoded(maxMessageBytes) {
			r.Pods = append(r.Pods, katalyst.Pod{UID: p.UID, Wire: p.Bytes, Annotations: p.Annotations})
		}
	}
	wait := c.Plugins.Deadline
	if slices.ContainsFunc(a.state.Load().Levels.Verdicts, func(v plugins.Verdict) bool { return v.MetLevel == plugins.Hard }) {
		wait = min(wait, hardDeadline)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-ctx.Done():
		case <-a.levelRose:
			cancel()
		}
	}()
	defer func() { cancel(); <-heard }() // otherwise it would take the loop's next signal
	return a.outer.host.Ask(ctx, r)
}

// outerOf are the verdicts of outer plugins.
func outerOf(l *plugins.Levels) []plugins.Verdict {
	inner := plugins.Names()
	return slices.DeleteFunc(slices.Clone(l.Verdicts), func(v plugins.Verdict) bool { return slices.Contains(inner, v.Plugin) })
}

func (a *Agent) viewOuter() *view.OuterPlugins {
	now := time.Now()
	return &view.OuterPlugins{Plugins: a.outer.host.Status(now), Counts: a.outer.host.Counts(), Rivals: a.outer.host.Rivals(), Beside: a.Config.Current().Plugins.Beside}
}
