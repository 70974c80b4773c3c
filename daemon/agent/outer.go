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
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// asker asks the outer plugins and keeps their eviction grace periods.
type asker struct {
	host *outer.Host

	mu    sync.Mutex // guards grace
	grace evict.Grace
}

// newAsker creates the default plugin directory, writable for root only.
func (a *Agent) newAsker(c *config.Agent) *asker {
	if len(c.Plugins.Dirs) == 0 {
		if err := os.MkdirAll(PluginDirs(c)[0], 0o711); err != nil {
			a.Log.Warn("cannot create the plugin directory; no outer plugin can register", "error", err)
		}
	}
	return &asker{host: &outer.Host{
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

// Heard implements outer.Smoother.
func (s *asker) Heard(v plugins.Verdict, at time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due time.Time
	s.grace, due = s.grace.Heard(v, at)
	return due
}

// Came implements outer.Smoother.
func (s *asker) Came(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.Without(plugin)
}

// Missed implements outer.Smoother.
func (s *asker) Missed(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grace = s.grace.Missed(plugin)
}

const (
	// messageBudget is the 4 MiB that a gRPC server accepts, less what a request
	// carries besides the pods.
	messageBudget = 4<<20 - 64<<10
	// urgentWait is how long a round waits for outer plugins while an inner
	// plugin is at hard; later answers are used in the next round.
	urgentWait = 200 * time.Millisecond
	// answerRounds is for how many rounds a plugin's last answer is used, but no
	// shorter than answerAge.
	answerRounds = 3
	answerAge    = 15 * time.Second
)

// ask asks the outer plugins. A level that rises meanwhile ends the waiting, so
// that the round can act on it.
func (a *Agent) ask(ctx context.Context) []plugins.Verdict {
	c := a.Config.Current()
	r := outer.Round{Time: time.Now().UTC(), Smoother: a.outer, MaxAge: max(answerAge, answerRounds*c.Eviction.Round)}
	if a.cluster != nil {
		if !a.cluster.pods.Synced() {
			return nil // without the pods no answer can be used
		}
		for _, p := range a.cluster.pods.Wired(messageBudget) {
			r.Pods = append(r.Pods, outer.Pod{UID: p.UID, Wire: p.Bytes, Annotations: p.Annotations})
		}
	}
	wait := c.Plugins.Deadline
	if slices.ContainsFunc(a.state.Load().Levels.Verdicts, func(v plugins.Verdict) bool { return v.Pressing == plugins.Hard }) {
		wait = min(wait, urgentWait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-ctx.Done():
		case <-a.risen:
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

func (a *Agent) viewOuter() *view.Outer {
	now := time.Now()
	return &view.Outer{Plugins: a.outer.host.Status(now), Counts: a.outer.host.Counts(), Rival: a.outer.host.Rival()}
}
