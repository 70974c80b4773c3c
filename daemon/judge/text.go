package judge

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// WriteText writes a report for people.
func WriteText(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", view.Printable(r.Directory), r.headline())
	b.WriteString("Rates count recordings, alarms or expected levels, never samples: 95 % intervals by Clopper and Pearson, as if these were independent. Times are medians: 95 % intervals of order statistics.\n")
	for _, p := range r.Parts {
		p.write(&b)
	}
	r.writeWrong(&b)
	r.writeSweep(&b)
	b.WriteString("\nJUDGES\n")
	for _, j := range r.Judges {
		fmt.Fprintf(&b, "%s: %s\n", j.Name, j.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headline says what the set is.
func (r *Report) headline() string {
	text := fmt.Sprintf("%d recordings", len(r.Recordings))
	if len(r.Recordings) == 1 {
		text = "1 recording"
	}
	heldOut := 0
	for _, one := range r.Recordings {
		heldOut += count(one.HeldOut)
	}
	if heldOut == 0 {
		return text + ", none held out: rules may have been tuned by all of them"
	}
	return fmt.Sprintf("%s, %d of them held out", text, heldOut)
}

// title says what a part is.
func (p *Part) title() string {
	if p.Name == PartHeldOut {
		return "HELD OUT: no rule was tuned by these"
	}
	return "TUNED: rules may have been tuned by these"
}

func (p *Part) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n\n", p.title(), p.text())
	table(b, levelHeads(), p.Figures, levelCells)
	writeTimes(b, p.Figures)
	p.writeNotJudged(b)
	if len(p.Classes) == 1 {
		return // it is the whole part
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		fmt.Fprintf(b, "\n%s, %s: %s\n\n", strings.ToUpper(p.Name), view.Printable(c.Class), c.text())
		table(b, levelHeads(), c.told(), levelCells)
		writeTimes(b, c.told())
	}
}

// writeTimes is the table of times and culprits, where anything was expected.
func writeTimes(b *strings.Builder, figures []judgement.Figures) {
	if slices.ContainsFunc(figures, func(f judgement.Figures) bool { return f.Detect.Of+f.Vain.Of > 0 }) {
		b.WriteString("\n")
		table(b, timeHeads(), figures, timeCells)
	}
}

// told are the figures that say anything: a judge of memory says nothing of a class
// that is about the CPUs, unless it raises a level there.
func (g *Group) told() (list []judgement.Figures) {
	for _, f := range g.Figures {
		if f.FalseHard.Of+f.Precision.Of+f.Recall.Of > 0 {
			list = append(list, f)
		}
	}
	return list
}

func (g *Group) text() string {
	return fmt.Sprintf("%s, %d healthy; expected levels: %d hard, %d soft", recordings(g.Recordings), g.Healthy, g.Hard, g.Soft)
}

func recordings(n int) string {
	if n == 1 {
		return "1 recording"
	}
	return fmt.Sprintf("%d recordings", n)
}

func levelHeads() []string {
	return []string{"FALSE HARD", "FALSE LEVEL", "PRECISION HARD", "PRECISION SOFT", "PRECISION", "RECALL HARD", "RECALL SOFT", "RECALL"}
}

func levelCells(f *judgement.Figures) []string {
	var cells []string
	for _, r := range []judgement.Rate{f.FalseHard, f.FalseAny, f.HardPrecision, f.SoftPrecision, f.Precision, f.HardRecall, f.SoftRecall, f.Recall} {
		cells = append(cells, rateText(r))
	}
	return cells
}

func timeHeads() []string {
	return []string{"TIME TO DETECT", "TIME TO CLEAR", "CULPRIT FIRST", "AMONG TWO", "NAMED IN VAIN"}
}

func timeCells(f *judgement.Figures) []string {
	return []string{timesText(f.Detect, "never"), timesText(f.Clear, "not by the end"), rateText(f.Top1), rateText(f.Top2), rateText(f.Vain)}
}

// table has a line for each judge.
func table(b *strings.Builder, heads []string, figures []judgement.Figures, cells func(*judgement.Figures) []string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "JUDGE\t%s\n", strings.Join(heads, "\t"))
	for i := range figures {
		f := &figures[i]
		line := cells(f)
		if f.Recordings == 0 {
			line = []string{"not judged"}
		}
		fmt.Fprintf(w, "%s\t%s\n", f.Rule, strings.Join(line, "\t"))
	}
	_ = w.Flush() // to memory
}

// rateText is a rate as 0/21 (0–17 %): its interval is rounded outwards, so that it is
// never narrower than it says.
func rateText(r judgement.Rate) string {
	from, ok := r.From.Get()
	if !ok {
		return "–"
	}
	to, _ := r.To.Get()
	return fmt.Sprintf("%d/%d (%.0f–%.0f %%)", r.Count, r.Of, math.Floor(100*from), math.Ceil(100*to))
}

// timesText is a median with its interval; late is what the others are that did not come.
func timesText(t judgement.Times, late string) string {
	if t.Of == 0 {
		return "–"
	}
	median, came := t.Median.Get()
	if !came {
		return fmt.Sprintf("%s (%d of %d)", late, t.Never, t.Of)
	}
	text := fmt.Sprintf("%.0f s (of %d)", median, t.Of)
	if t.Known {
		from, _ := t.From.Get() // not later than the median, which came
		text = fmt.Sprintf("%.0f s (%.0f s–%s)", median, from, orLate(t.To, late))
	}
	if t.Never > 0 {
		text += fmt.Sprintf(", %d of %d %s", t.Never, t.Of, late)
	}
	return text
}

func orLate(v snapshot.Opt[float64], late string) string {
	seconds, ok := v.Get()
	if !ok {
		return late
	}
	return fmt.Sprintf("%.0f s", seconds)
}

// writeNotJudged tells what was not judged, and why.
func (p *Part) writeNotJudged(b *strings.Builder) {
	b.WriteString("\n")
	for i := range p.Figures {
		f := &p.Figures[i]
		if f.NotJudged > 0 {
			fmt.Fprintf(b, "%s: %s not judged: lacks %s\n", f.Rule, recordings(f.NotJudged), strings.Join(f.Lacks, "; "))
		} else if f.Unnamed != "" {
			fmt.Fprintf(b, "%s: culprits: %s\n", f.Rule, f.Unnamed)
		}
	}
}

// writeWrong lists what each judge had wrong.
func (r *Report) writeWrong(b *strings.Builder) {
	var lines []string
	for i, rule := range r.Judges {
		for _, one := range r.Recordings {
			if text := wrongText(one.Outcomes[i]); text != "" {
				lines = append(lines, fmt.Sprintf("%s\t%s\t%s", rule.Name, view.Printable(one.Name), text))
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	b.WriteString("\nFALSE AND MISSED\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "JUDGE\tRECORDING\tWHAT\n%s\n", strings.Join(lines, "\n"))
	_ = w.Flush() // to memory
}

func wrongText(o judgement.Outcome) string {
	var parts []string
	told := map[judgement.Alarm]bool{}
	for _, s := range slices.Concat(o.FalseHard, o.FalseSoft) {
		if !told[s.Alarm] {
			parts = append(parts, "false: "+view.Printable(s.String()))
		}
		told[s.Alarm] = true
	}
	for _, d := range o.Expected {
		switch {
		case !d.Met && o.Near != "":
			parts = append(parts, "missed: "+d.Want.String()+" ("+o.Near+")")
		case !d.Met:
			parts = append(parts, "missed: "+d.Want.String())
		}
	}
	if o.Vain {
		parts = append(parts, "named a workload where none may be")
	}
	return strings.Join(parts, "; ")
}

// writeSweep is the table of KEP-5394's thresholds.
func (r *Report) writeSweep(b *strings.Builder) {
	b.WriteString("\nKEP-5394 WITH EACH THRESHOLD, over the node's PSI\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "CONDITION\tTHRESHOLD\tREACHED\tFALSE\tTIME TO DETECT\n")
	for _, p := range slices.Concat(r.Sweep, r.OurPoints) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Resource, p.thresholdText(), rateText(p.Met), rateText(p.False), timesText(p.After, "never"))
	}
	_ = w.Flush() // to memory
}

func (p *SweepPoint) thresholdText() string {
	if p.Line == "" {
		return ourName
	}
	return fmt.Sprintf("%s ≥ %g %%", p.Line, p.Threshold)
}
