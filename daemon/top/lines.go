package top

import (
	"io"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Changes writes what changes between one State and the next as lines.
type Changes struct {
	Out io.Writer
	// Page is the address of the status page; may be empty.
	Page string

	previous *view.State
}

// Show writes the changes since the previous state. An error is ignored: a terminal
// or pipe that is closed does not stop an agent.
func (c *Changes) Show(s *view.State) {
	if s == nil {
		return
	}
	list := Lines(c.previous, s)
	if c.previous == nil && c.Page != "" && len(list) > 0 {
		list[0] += "; status page " + c.Page
	}
	c.previous = s
	if len(list) > 0 {
		_, _ = io.WriteString(c.Out, strings.Join(list, "\n")+"\n")
	}
}

// Lines is what changed from prev to now, one line each, with its time. Without
// prev it begins with a summary and the present problems.
func Lines(prev, now *view.State) []string {
	var list []string
	if prev == nil {
		text, _ := now.Headline()
		list = append(list, now.Agent.Node+": "+text+"; "+now.ModeText())
		for _, u := range now.UnjudgedText() {
			list = append(list, "not judged: "+u)
		}
		for _, n := range now.Agent.Restrictions {
			list = append(list, "note: "+n)
		}
		if e := now.LastEviction; e != nil { // of another agent, or of long ago
			list = append(list, "last eviction, "+view.Age(now.Age(e.Time))+" ago: "+evictionText(e))
		}
		prev = &view.State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{}, LastEviction: now.LastEviction}
	}
	list = append(list, levelLines(prev.Levels, now.Levels)...)
	list = append(list, evictionLines(prev.LastEviction, now.LastEviction)...)
	list = append(list, ownLimitLines(prev, now)...)
	list = append(list, ageLines(prev, now)...)
	list = append(list, probeLines(prev, now)...)
	list = append(list, noteLines(prev, now)...)
	list = append(list, configLines(prev.Agent.ConfigError, now.Agent.ConfigError)...)
	stamp := now.Snapshot.Time.UTC().Format(time.RFC3339)
	for i, l := range list {
		list[i] = stamp + " " + view.Printable(l)
	}
	return list
}

func levelLines(prev, now *plugins.Levels) []string {
	var list []string
	for _, v := range now.Verdicts {
		was := levelOf(prev, v)
		if v.Level == was {
			continue
		}
		list = append(list, view.Title(v)+": "+was.String()+" → "+v.Level.String()+" ("+v.Plugin+"): "+v.Reason)
		for _, c := range v.Candidates[:min(candidatesShown, len(v.Candidates))] {
			list = append(list, view.Title(v)+": candidate: "+c.Name+", "+c.Why)
		}
	}
	for _, v := range prev.Verdicts {
		if v.Level > plugins.None && !hasVerdict(now, v) {
			list = append(list, view.Title(v)+": "+v.Level.String()+" → no longer judged ("+v.Plugin+")")
		}
	}
	return list
}

func evictionText(e *view.Eviction) string { return e.Text() + " (decision " + e.Decision + ")" }

// evictionLines reports a new eviction, and the termination of all its pods. An older one is the
// last one again where the one after it is none any more.
func evictionLines(was, is *view.Eviction) []string {
	switch {
	case is == nil:
		return nil
	case was != nil && is.Time.Before(was.Time):
		if was.DryRun || was.Code != evict.CodeInProgress {
			return nil
		}
		return []string{"the eviction of " + was.Pods() + " was not carried out (decision " + was.Decision + ")"}
	case was == nil || was.Decision != is.Decision:
		return []string{evictionText(is)}
	case was.TerminatedAt.IsZero() && !is.TerminatedAt.IsZero():
		return []string{is.Pods() + " terminated " + view.Age(is.TerminatedAt.Sub(is.Time)) + " after the eviction"}
	}
	return nil
}

func hasVerdict(l *plugins.Levels, v plugins.Verdict) bool {
	for _, other := range l.Verdicts {
		if other.Plugin == v.Plugin && other.Scope == v.Scope {
			return true
		}
	}
	return false
}

func levelOf(l *plugins.Levels, v plugins.Verdict) plugins.Level {
	for _, other := range l.Verdicts {
		if other.Plugin == v.Plugin && other.Scope == v.Scope {
			return other.Level
		}
	}
	return plugins.None
}

func ownLimitLines(prev, now *view.State) []string {
	was, is := atOwnLimit(prev), atOwnLimit(now)
	var list []string
	for i := range now.Snapshot.Workloads {
		w := &now.Snapshot.Workloads[i]
		switch {
		case is[w.Cgroup] && !was[w.Cgroup]:
			r, _ := w.Rates.Get() // AtOwnLimit implies rates
			list = append(list, now.WorkloadName(w)+" is "+view.OwnLimitText+" (memory stall "+view.Ratio(view.Stall(r.Pressure.Memory))+", limit hit "+view.Optional(r.LimitHits, view.Count)+" times)")
		case was[w.Cgroup] && !is[w.Cgroup]:
			list = append(list, now.WorkloadName(w)+" no longer stalls at its own limit")
		}
		delete(was, w.Cgroup)
	}
	for i := range prev.Snapshot.Workloads {
		if w := &prev.Snapshot.Workloads[i]; was[w.Cgroup] {
			list = append(list, prev.WorkloadName(w)+", which stalled at its own limit, no longer exists")
		}
	}
	return list
}

func atOwnLimit(s *view.State) map[string]bool {
	limited := map[string]bool{}
	for i := range s.Snapshot.Workloads {
		if w := &s.Snapshot.Workloads[i]; view.AtOwnLimit(w) {
			limited[w.Cgroup] = true
		}
	}
	return limited
}

// ageLines reports that an agent takes no new sample, and that it does again.
func ageLines(prev, now *view.State) []string {
	switch was, is := isOld(prev), isOld(now); {
	case is && !was:
		return []string{"no new values for " + view.Age(now.SampleAge) + ": " + noNewSample}
	case was && !is:
		return []string{"the agent takes samples again"}
	}
	return nil
}

func probeLines(prev, now *view.State) []string {
	failed := map[string]bool{}
	for _, p := range view.FailedProbes(prev.Snapshot.Probes) {
		failed[p.Name] = true
	}
	var list []string
	for _, p := range now.Snapshot.Probes {
		switch {
		case p.Error != "" && !failed[p.Name]:
			list = append(list, "probe "+p.Name+" failed: "+p.Error)
		case p.Error == "" && failed[p.Name]:
			list = append(list, "probe "+p.Name+" recovered")
		}
	}
	return list
}

// noteLines reports that a note appears and disappears; its text may change at
// every tick.
func noteLines(prev, now *view.State) []string {
	noted := map[string]bool{}
	for _, p := range view.NotedProbes(prev.Snapshot.Probes) {
		noted[p.Name] = true
	}
	var list []string
	for _, p := range now.Snapshot.Probes {
		switch {
		case p.Note != "" && !noted[p.Name]:
			list = append(list, "probe "+p.Name+": "+p.Note)
		case p.Note == "" && noted[p.Name]:
			list = append(list, "probe "+p.Name+" is read at its usual rate again")
		}
	}
	return list
}

func configLines(was, is string) []string {
	switch {
	case is == was:
		return nil
	case is == "":
		return []string{"configuration: the file is valid again and in force"}
	}
	return []string{"configuration: reload failed, the previous one stays in force: " + is}
}
