package advise

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// maxLines of recordings are written for people.
const maxLines = 20

// WriteText writes an Advice for people.
func WriteText(w io.Writer, a *Advice) error {
	var b strings.Builder
	for i := range a.Recordings[:min(maxLines, len(a.Recordings))] {
		b.WriteString(view.Printable(a.Recordings[i].Text()) + "\n")
	}
	if more := len(a.Recordings) - maxLines; more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	for _, text := range a.Unreadable {
		fmt.Fprintf(&b, "samples are missing: %s\n", view.Printable(text))
	}
	if a.Failed != "" {
		fmt.Fprintf(&b, "replay stopped: %s\n", view.Printable(a.Failed))
	}
	fmt.Fprintf(&b, "%s to %s UTC, %s, of which %s were observed\n\n", view.Stamp(a.Start), view.Stamp(a.End), view.Age(seconds(a.Seconds)), view.Age(seconds(a.ObservedSeconds)))
	if err := view.WriteRows(&b, a.rows()); err != nil {
		return err
	}
	a.writeUnjudged(&b)
	if a.OOMKills > 0 {
		fmt.Fprintf(&b, "\n%d OOM kills, %d of them in cgroups at their own limit; of the others %d with no level of memory in the minute before.\n", a.OOMKills, a.OOMKillsAtOwnLimit, a.OOMKillsWithoutLevel)
	}
	if err := a.writeActions(&b); err != nil {
		return err
	}
	b.WriteString("\nThresholds:\n")
	for _, p := range a.Proposals {
		fmt.Fprintf(&b, "  %s: %s\n", strings.TrimPrefix(p.Key, "plugins."), view.Printable(p.Reason))
	}
	b.WriteString("\nConfiguration:\n")
	for line := range strings.Lines(a.Configuration) {
		b.WriteString("  " + line)
	}
	b.WriteString("\nLimits:\n")
	for _, n := range a.Limits {
		b.WriteString("  " + n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *Advice) writeActions(b *strings.Builder) error {
	if len(a.Actions) == 0 {
		b.WriteString("\nWithout a dry run no pod would have been throttled or evicted.\n")
		return nil
	}
	b.WriteString("\nWithout a dry run:\n")
	err := view.WriteRows(b, a.actionRows())
	if a.ActionsOmitted > 0 {
		fmt.Fprintf(b, "%d more actions, on further workloads.\n", a.ActionsOmitted)
	}
	return err
}

// writeUnjudged writes of which scopes measurements were missing, those that lacked them
// longest first.
func (a *Advice) writeUnjudged(b *strings.Builder) {
	var list []replay.Scope
	for _, s := range a.Scopes {
		if of := (replay.Scope{Plugin: s.Plugin, Scope: s.Scope, UnjudgedSeconds: s.UnjudgedSeconds, Absent: s.Absent}); of.Unjudged() != "" {
			list = append(list, of)
		}
	}
	slices.SortStableFunc(list, func(a, b replay.Scope) int { return cmp.Compare(b.UnjudgedSeconds, a.UnjudgedSeconds) })
	for i := range list[:min(maxLines, len(list))] {
		b.WriteString(view.Printable(list[i].Unjudged()) + "\n")
	}
	if more := len(list) - maxLines; more > 0 {
		fmt.Fprintf(b, "and %d more with measurements missing\n", more)
	}
}

// rows has a line for each scope and level that was ever on, and the numbers of the
// others.
func (a *Advice) rows() [][]string {
	rows := [][]string{{"PLUGIN", "SCOPE", "OBSERVED", "LEVEL", "TIMES", "TOTAL", "LONGEST", "OOM KILL", "REAL", "FALSE", "STILL ON", "WHY FALSE"}}
	quiet, unjudged := 0, 0
	for _, s := range a.Scopes {
		switch {
		case s.Soft.ever() || s.Hard.ever():
		case s.UnjudgedSeconds >= s.ObservedSeconds:
			unjudged++
		default:
			quiet++
		}
		for _, l := range []struct {
			name string
			Alarms
		}{{"soft", s.Soft}, {"hard", s.Hard}} {
			if l.ever() {
				rows = append(rows, []string{
					s.Plugin, s.Scope, view.Age(seconds(s.ObservedSeconds)), l.name, view.Count(l.Times), view.Age(seconds(l.Seconds)), view.Age(seconds(l.LongestSeconds)),
					view.Count(l.OOMKilled), view.Count(l.Real), view.Count(l.False()), l.stillOn(), l.why(),
				})
			}
		}
	}
	if quiet > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d that never reached a level while judged", quiet)})
	}
	if unjudged > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d never judged", unjudged)})
	}
	return rows
}

// ever reports whether the level was on at all.
func (a Alarms) ever() bool { return a.Times > 0 || a.Ongoing }

// stillOn is for how long the level was on when the recording ended.
func (a Alarms) stillOn() string {
	if !a.Ongoing {
		return ""
	}
	return view.Age(seconds(a.OngoingSeconds))
}

// why counts the false alarms by class.
func (a Alarms) why() string {
	var parts []string
	for _, c := range []struct {
		n    uint64
		what string
	}{{a.NoContention, "no contention"}, {a.Brief, "brief"}, {a.Marginal, "marginal"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}
