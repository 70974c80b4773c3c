package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Verdict is what a row says of its goal.
type Verdict string

// The verdicts. What has no goal has none, and what was not measured is neither
// met nor missed.
const (
	Met         Verdict = "met"
	NotMet      Verdict = "not met"
	NoGoal      Verdict = "–"
	NotMeasured Verdict = "not measured"
)

// Goal is a bound on one number of a row. The zero value is none.
type Goal struct {
	// Text is what the table shows.
	Text    string
	value   float64
	limit   float64
	atLeast bool
	// why the number could not be measured.
	why string
}

// AtMost is the goal that value is not above limit.
func AtMost(limit, value float64, text string) Goal {
	return Goal{Text: "≤ " + text, value: value, limit: limit}
}

// AtLeast is the goal that value is not below limit.
func AtLeast(limit, value float64, text string) Goal {
	return Goal{Text: "≥ " + text, value: value, limit: limit, atLeast: true}
}

// Verdict judges the goal.
func (g Goal) Verdict() Verdict {
	switch {
	case g.why != "":
		return NotMeasured
	case g.Text == "":
		return NoGoal
	case g.atLeast && g.value >= g.limit, !g.atLeast && g.value <= g.limit:
		return Met
	}
	return NotMet // a number that is none is not met either
}

// Row is one line of the table. An empty cell was not measured, or is not
// there to be: the verdict tells which.
type Row struct {
	What  string
	Ours  string
	Peer  string
	Ratio string
	Goal  Goal
	// Note is what a reader must know of the row; it stands below the table.
	Note string
}

// Unmeasured is the row of what could not be measured, with the reason.
func Unmeasured(what string, why error) Row {
	return Row{What: what, Goal: Goal{why: strings.ReplaceAll(why.Error(), "\n", "; ")}}
}

// note is what stands below the table, the reason of a missing number too.
func (r Row) note() string {
	if r.Goal.why != "" {
		return r.Goal.why
	}
	return r.Note
}

func columns() []string {
	return []string{"what", "measured", "peer", "ratio", "goal", "met"}
}

// WriteText writes the rows for a terminal.
func WriteText(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	cells, notes := lay(rows)
	for _, line := range append([][]string{columns()}, cells...) {
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	err := t.Flush()
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
	return err
}

// WriteMarkdown writes the rows as a table of a document.
func WriteMarkdown(w io.Writer, rows []Row) {
	line := func(cells []string) {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	line(columns())
	line([]string{"---", "---", "---", "---", "---", "---"})
	all, notes := lay(rows)
	for _, cells := range all {
		for i := range cells {
			cells[i] = strings.ReplaceAll(cells[i], "|", "\\|")
			if cells[i] == string(NotMet) {
				cells[i] = "**" + cells[i] + "**"
			}
		}
		line(cells)
	}
	for i, n := range notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "- %s\n", n)
	}
}

// lay returns the cells of every row, and the notes that they refer to.
func lay(rows []Row) (cells [][]string, notes []string) {
	for _, r := range rows {
		what := r.What
		if n := r.note(); n != "" {
			mark := fmt.Sprintf("[%d]", len(notes)+1)
			what += " " + mark
			notes = append(notes, mark+" "+n)
		}
		cells = append(cells, []string{what, r.Ours, r.Peer, r.Ratio, r.Goal.Text, string(r.Goal.Verdict())})
	}
	return cells, notes
}
