package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// WriteTable writes a report for people: the recordings, a line for each
// change, decision and gap, and a summary.
func WriteTable(w io.Writer, r *Report) error {
	var b strings.Builder
	for _, line := range r.head() {
		b.WriteString(view.Printable(line) + "\n")
	}
	b.WriteString("\n")
	if err := view.WriteRows(&b, append([][]string{{"TIME (UTC)", "OFFSET", "PLUGIN", "SCOPE", "LEVEL", "OBSERVED", "REASON"}}, r.lines()...)); err != nil {
		return err
	}
	if text := r.Omitted.text(); text != "" {
		b.WriteString(text + "\n")
	}
	b.WriteString("\n")
	if err := view.WriteRows(&b, r.summary()); err != nil {
		return err
	}
	for i := range r.Scopes {
		if text := r.Scopes[i].Unjudged(); text != "" {
			b.WriteString(view.Printable(text) + "\n")
		}
	}
	b.WriteString("\nLimits of a replay:\n")
	for _, n := range r.Limits {
		b.WriteString("  " + n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxLines of recordings are written for people.
const maxLines = 20

// Text is what was played: a file, or the segments of a directory.
func (r *Recording) Text() string {
	if r.Segments == 0 {
		return fmt.Sprintf("%s: %d samples", r.File, r.Samples)
	}
	segments := "1 segment"
	if r.Segments > 1 {
		segments = fmt.Sprintf("%d segments of one run", r.Segments)
	}
	return fmt.Sprintf("%s: %s, %d samples", r.File, segments, r.Samples)
}

// head describes the recordings and the configuration.
func (r *Report) head() []string {
	var lines []string
	for i := range r.Recordings[:min(maxLines, len(r.Recordings))] {
		f := &r.Recordings[i]
		text := f.Text()
		if f.Samples > 0 {
			text += fmt.Sprintf(", %s to %s UTC, Linux %s, %s", view.Stamp(f.Start), view.Stamp(f.End), f.Kernel, f.Command)
		}
		if f.CutShort {
			text += "; truncated: its writer was killed, could not write on, or is still writing"
		}
		lines = append(lines, text)
	}
	if more := len(r.Recordings) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	for _, text := range r.Unreadable {
		lines = append(lines, "samples are missing: "+text)
	}
	if r.Failed != "" {
		lines = append(lines, "replay stopped: "+r.Failed)
	}
	return append(lines, r.judgedWith())
}

func (r *Report) judgedWith() string {
	config := r.Config
	switch config {
	case "":
		config = "the default configuration"
	case "-":
		config = "the configuration on standard input"
	}
	warm := "as by an agent that has been running for a long time"
	if r.WarmUp {
		warm = "as by an agent that has just started"
	}
	return "judged with " + config + ", " + warm
}

// line of the table, with its time.
type line struct {
	offset float64
	order  int // among those of one time
	cells  []string
}

func (r *Report) lines() [][]string {
	var all []line
	for _, g := range r.Gaps {
		all = append(all, line{g.OffsetSeconds, 0, cells(g.Time, g.OffsetSeconds, "", "", "gap", "", view.Age(seconds(g.Seconds))+" not observed: "+g.Reason)})
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		all = append(all, line{c.OffsetSeconds, 1, cells(c.Time, c.OffsetSeconds, c.Plugin, c.Scope, c.From.String()+" → "+c.To.String(), c.text(), c.Reason)})
	}
	for i := range r.Decisions {
		if d := &r.Decisions[i]; d.Code != evict.CodeEnded { // the change of level shows it
			all = append(all, line{d.OffsetSeconds, 2, cells(d.Time, d.OffsetSeconds, "", "", "decision", "", d.text())})
		}
	}
	for i := range r.Throttled {
		t := &r.Throttled[i]
		shown := view.Throttled{Disk: t.Disk, Memory: t.Memory, Percent: t.Percent, Limit: t.Limit}
		all = append(all, line{t.OffsetSeconds, 1, cells(t.Time, t.OffsetSeconds, "", t.Disk, "throttle", "", "would throttle "+t.Name+": "+shown.Limited()+", since "+t.Reason)})
	}
	slices.SortStableFunc(all, func(a, b line) int {
		if a.offset != b.offset {
			if a.offset < b.offset {
				return -1
			}
			return 1
		}
		return a.order - b.order
	})
	var rows [][]string
	for _, l := range all {
		rows = append(rows, l.cells)
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"no level changed and no decision was made"})
	}
	return rows
}

func cells(t time.Time, offset float64, rest ...string) []string {
	return append([]string{view.Stamp(t), view.Age(seconds(offset))}, rest...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// text is the observed value and the threshold.
func (c *Change) text() string {
	observed := view.Optional(c.Observed, func(v float64) string { return view.Quantity(v, c.Unit) })
	threshold, ok := c.Threshold.Get()
	if !ok {
		return observed
	}
	return observed + " (" + sign(c.Operator) + " " + view.Quantity(threshold, c.Unit) + ")"
}

func sign(operator string) string {
	return strings.NewReplacer(">=", "≥", "<=", "≤").Replace(operator)
}

// text is the pod that would be evicted and why, or why none would.
func (d *Decision) text() string {
	if c, some := d.FirstEvicted(); some {
		return "would evict " + c.Name + ": " + c.Why
	}
	text := d.Reason
	if d.Code != evict.CodeSoft { // whose reason has it
		text = view.DecisionText(&d.Decision) + ": " + text
	}
	return text
}

// text counts what the bounds omitted.
func (o Omitted) text() string {
	if o == (Omitted{}) {
		return ""
	}
	return fmt.Sprintf("not listed: %d changes, %d decisions, %d throttled pods, %d gaps, %d verdicts about more scopes and %d unreadable segments", o.Changes, o.Decisions, o.Throttled, o.Gaps, o.Scopes, o.Unreadable)
}

// summary is a row for each plugin and scope.
func (r *Report) summary() [][]string {
	rows := [][]string{{"PLUGIN", "SCOPE", "NONE", "SOFT", "HARD", "NOT OBSERVED", "TO SOFT", "TO HARD", "WORST FOR SOFT", "WORST FOR HARD"}}
	for i := range r.Scopes {
		s := &r.Scopes[i]
		rows = append(rows, []string{
			s.Plugin, s.Scope, view.Age(seconds(s.NoneSeconds)), view.Age(seconds(s.SoftSeconds)), view.Age(seconds(s.HardSeconds)), view.Age(seconds(s.UnobservedSeconds)),
			view.Count(s.RoseToSoft), view.Count(s.RoseToHard), s.extreme(s.Soft, r.at), s.extreme(s.Hard, r.at),
		})
	}
	return rows
}

// unjudgedFrom is from how many seconds on it is told that measurements were missing: the
// first sample of a recording has no rates.
const unjudgedFrom = 1

// Unjudged is the scope, how long measurements of it were missing, and the last reason;
// empty if they were for less than unjudgedFrom.
func (s *Scope) Unjudged() string {
	text := s.unjudged()
	if text == "" {
		return ""
	}
	return s.title() + ": " + text
}

// unjudged is how long measurements were missing, and the last reason.
func (s *Scope) unjudged() string {
	if s.UnjudgedSeconds < unjudgedFrom {
		return ""
	}
	return "measurements missing for " + view.Age(seconds(s.UnjudgedSeconds)) + ", last: " + s.Absent
}

// extreme is the worst observed value of a rule, and its time.
func (s *Scope) extreme(e *Extreme, at func(time.Time) string) string {
	if e == nil {
		return view.Unknown
	}
	return fmt.Sprintf("%s (%s %s) at %s", view.Quantity(e.Observed, s.Unit), sign(s.Operator), view.Quantity(e.Threshold, s.Unit), at(e.Time))
}

// at is a time in words, with its day where not all is of one day.
func (r *Report) at(t time.Time) string {
	if view.Stamp(r.Start)[:len(time.DateOnly)] == view.Stamp(r.End)[:len(time.DateOnly)] {
		return view.Clock(t)
	}
	return view.Stamp(t)
}

// WriteJSON writes a report for programs.
func WriteJSON(w io.Writer, r *Report) error { return view.WriteJSON(w, r) }

// headline is the levels above none, in words.
func (r *Report) headline() string {
	var parts []string
	missing := 0.0
	for i := range r.Scopes {
		missing = max(missing, r.Scopes[i].UnjudgedSeconds)
		if s := &r.Scopes[i]; s.SoftSeconds+s.HardSeconds > 0 || s.RoseToSoft+s.RoseToHard > 0 {
			parts = append(parts, s.title()+": "+s.timeAtLevels())
		}
	}
	switch {
	case len(parts) > 2:
		return fmt.Sprintf("%s; and %d more", strings.Join(parts[:2], "; "), len(parts)-2)
	case len(parts) > 0:
		return strings.Join(parts, "; ")
	case len(r.Scopes) == 0:
		return "No level was reached; nothing was judged"
	case missing >= unjudgedFrom:
		return "No level was reached; measurements are missing for up to " + view.Age(seconds(missing))
	}
	return "No level was reached"
}

func (s *Scope) title() string {
	if s.Scope == "" || s.Scope == "node" {
		return s.Plugin
	}
	return s.Plugin + " " + s.Scope
}

// timeAtLevels is the time at the levels above none.
func (s *Scope) timeAtLevels() string {
	var parts []string
	if s.HardSeconds > 0 || s.RoseToHard > 0 {
		parts = append(parts, "hard "+view.Age(seconds(s.HardSeconds)))
	}
	if s.SoftSeconds > 0 || s.RoseToSoft > 0 {
		parts = append(parts, "soft "+view.Age(seconds(s.SoftSeconds)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// text is the summary of a scope in a sentence.
func (s *Scope) text(at func(time.Time) string) string {
	text := s.title() + ": " + s.timeAtLevels()
	if s.Soft != nil {
		text += "; soft: " + s.extreme(s.Soft, at)
	}
	if s.Hard != nil {
		text += "; hard: " + s.extreme(s.Hard, at)
	}
	return text
}

// recordingLines describes the recordings in a few lines.
func (r *Report) recordingLines() []string {
	var lines []string
	for _, f := range r.Recordings[:min(3, len(r.Recordings))] {
		lines = append(lines, f.File+" (Linux "+f.Kernel+")")
	}
	if more := len(r.Recordings) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more recordings", more))
	}
	if r.Failed != "" {
		lines = append(lines, "Replay stopped: "+r.Failed)
	}
	return append(lines, view.Stamp(r.Start)+" to "+r.at(r.End)+" UTC", view.Age(seconds(r.Seconds))+", "+view.Count(r.Samples)+" samples")
}
