package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// WaitingText is shown before the first tick.
const WaitingText = "Waiting for the first sample"

// Headline is the overall verdict in words, such as "Memory: soft for 12 s".
// The State may be nil. It is an all-clear only of what was judged, and names what was
// not.
func (s *State) Headline() (text string, level plugins.Level) {
	if s == nil {
		return WaitingText, plugins.None
	}
	var pressed []string
	for _, v := range s.Levels.Verdicts {
		level = max(level, v.Level)
		if v.Level > plugins.None {
			pressed = append(pressed, Title(v)+": "+v.Level.String()+" for "+Age(s.Age(v.Since)))
		}
	}
	without := notJudged(s.Unjudged())
	switch {
	case len(pressed) > 0:
		return strings.Join(pressed, " · ") + inFront("; ", without), level
	case len(s.Levels.Verdicts) == 0:
		return "Not judged: no plugin is enabled", level
	case without != "":
		return "No pressure found; " + without, level
	}
	return "No pressure", level
}

// Unjudged is what no level tells about, with the reason. A headline without it is an
// all-clear.
func (s *State) Unjudged() []plugins.Unjudged { return s.Levels.Unjudged(s.Snapshot) }

// notJudged names what was not judged in a few words.
func notJudged(list []plugins.Unjudged) string {
	const most = 3
	names := make([]string, 0, most)
	for _, u := range list {
		if name := UnjudgedTitle(u); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	more := len(names) - most
	names = names[:min(most, len(names))]
	if more > 0 {
		names = append(names, "and "+Count(uint64(more))+" more")
	}
	return inFront("not judged: ", strings.Join(names, ", "))
}

func inFront(of, text string) string {
	if text == "" {
		return ""
	}
	return of + text
}

// UnjudgedTitle is the resource and its scope: "disk nvme0n1".
func UnjudgedTitle(u plugins.Unjudged) string {
	title := Title(plugins.Verdict{Resource: u.Resource, Scope: u.Scope, Plugin: u.Plugin})
	if u.Resource == plugins.CPU || u.Resource == "" {
		return title
	}
	return strings.ToLower(title[:1]) + title[1:]
}

// unjudgedNames are at most named for one reason.
const unjudgedNames = 6

// NotJudged is what was not judged, by the reason: "disk sda, disk sdb: the agent, the
// node or the rule has just started".
func (s *State) NotJudged() []Alarm {
	type reason struct {
		why    string
		advice Advice
	}
	var order []reason
	titles := map[reason][]string{}
	for _, u := range s.Unjudged() {
		r := reason{u.Why, UnjudgedAdvice(s, &u)}
		if titles[r] == nil {
			order = append(order, r)
		}
		if title := UnjudgedTitle(u); !slices.Contains(titles[r], title) {
			titles[r] = append(titles[r], title)
		}
	}
	list := make([]Alarm, 0, len(order))
	for _, r := range order {
		names := titles[r]
		text := strings.Join(names[:min(len(names), unjudgedNames)], ", ")
		if more := len(names) - unjudgedNames; more > 0 {
			text += ", and " + Count(uint64(more)) + " more"
		}
		list = append(list, Alarm{text + ": " + Printable(r.why), r.advice})
	}
	return list
}

// UnjudgedText is what was not judged, by the reason: "network eth0: its speed is
// unknown".
func (s *State) UnjudgedText() []string {
	var list []string
	for _, n := range s.NotJudged() {
		list = append(list, n.Text)
	}
	return list
}

// AllClear reports that every resource of the node was judged, and none is under
// pressure.
func (s *State) AllClear() bool {
	return len(s.Levels.Verdicts) > 0 && len(s.Unjudged()) == 0 &&
		!slices.ContainsFunc(s.Levels.Verdicts, func(v plugins.Verdict) bool { return v.Level > plugins.None })
}

// LevelText is a verdict's level in words.
func LevelText(v plugins.Verdict) string {
	switch {
	case v.Level > plugins.None:
		return v.Level.String() + ": threshold met"
	case v.Absent != "":
		return "none found, measurements missing"
	case v.Partial:
		return "none found, just started"
	}
	return v.Level.String()
}

// Age of an instant as of the state's tick.
func (s *State) Age(t time.Time) time.Duration { return s.sampled().Sub(t) }

// Title is a verdict's resource and scope as a heading: "Disk nvme0n1".
func Title(v plugins.Verdict) string {
	name := map[plugins.Resource]string{
		plugins.Memory: "Memory", plugins.Disk: "Disk", plugins.NetworkIO: "Network",
		plugins.Filesystem: "Filesystem", plugins.CPU: "CPU",
	}[v.Resource]
	if name == "" {
		name = Printable(cmp.Or(string(v.Resource), v.Plugin))
	}
	if v.Scope == "" || v.Scope == "node" {
		return name
	}
	return name + " " + Printable(v.Scope)
}

// ModeText is the agent's mode in words, and why evictions are paused.
func (s *State) ModeText() string {
	c := s.Cluster
	switch {
	case s.Agent.Mode == "standalone":
		return "standalone mode: evictions disabled"
	case c == nil:
		return Printable(s.Agent.Mode)
	}
	held := c.held()
	switch {
	case len(held) > 0 && c.DryRun:
		return strings.Join(held, " · ")
	case len(held) > 0:
		return "cluster: " + strings.Join(held, " · ")
	case c.Pods == 1:
		return "cluster: 1 pod on this node"
	}
	return "cluster: " + Count(uint64(c.Pods)) + " pods on this node"
}

// Held tells whether anything keeps the agent from evicting, or from saving what it does.
func (c *Cluster) Held() bool { return len(c.held()) > 0 }

// held is what keeps the agent from evicting: its configuration, and the present state.
func (c *Cluster) held() (list []string) {
	if off := c.switchedOff(); off != "" {
		if c.Throttling() {
			off += "; pods are throttled"
		}
		list = append(list, off)
	}
	if paused := c.evictionsPaused(); paused != "" {
		list = append(list, paused)
	}
	return list
}

// switchedOff is what the configuration leaves undone; empty: nothing.
func (c *Cluster) switchedOff() string {
	switch {
	case c.DryRun && c.ConditionsOff:
		return "DRY RUN of evictions, and conditions.enabled is false: no mark, no eviction"
	case c.DryRun && c.EvictionsOff:
		return "DRY RUN of evictions, and eviction.enabled is false: no mark, no eviction"
	case c.DryRun:
		return "DRY RUN of evictions: no mark, no eviction"
	case c.ConditionsOff:
		return "conditions.enabled is false: no mark, no eviction"
	case c.EvictionsOff:
		return "eviction.enabled is false: no eviction"
	}
	return ""
}

// Throttling tells whether pods that cause a pressure are throttled. That has dry runs of its
// own: one for data movers, and one for all other pods.
func (c *Cluster) Throttling() bool {
	return c.Throttles != nil && !c.Throttles.DryRun || c.DataMovers != nil && !c.DataMovers.DryRun
}

// evictionsPaused is why evictions are paused, or what is not saved about them; empty while
// rounds end, the list of pods is current and the state is saved.
func (c *Cluster) evictionsPaused() string {
	switch {
	case c.RoundsStuckSeconds > 0:
		return "rounds stuck for " + Age(time.Duration(c.RoundsStuckSeconds*float64(time.Second))) + ", no pod is evicted"
	case !c.PodsSynced:
		return "pods not listed yet, evictions paused"
	case !c.StaleSince.IsZero():
		return "no connection to the API server since " + Clock(c.StaleSince) + " UTC, evictions paused"
	case c.UnsavedSeconds > 0:
		return "eviction state not saved for " + Age(time.Duration(c.UnsavedSeconds*float64(time.Second)))
	}
	return ""
}
