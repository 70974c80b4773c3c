package gantt

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/problems"
)

// Text draws for a terminal.
type Text struct {
	// Width in characters.
	Width int
	// Zone of the hours.
	Zone *time.Location
	// ASCII alone.
	ASCII bool
	// Schedules: with a table of them.
	Schedules bool
	// Now, by the clock by which the night was foreseen, to say how old it is; zero: it is not
	// said.
	Now time.Time
}

// signs of the plot.
type signs struct {
	parts            [notKnown + 1]rune
	opens, due, late rune
	tick, line, now  rune
}

func (t Text) signs() signs {
	if t.ASCII {
		return signs{[...]rune{'.', '#', '=', '-', '?'}, '[', '|', '!', '+', '-', 'v'}
	}
	return signs{[...]rune{'·', '█', '▓', '░', '?'}, '[', '│', '!', '┼', '─', '▼'}
}

// The widths of columns.
const (
	gap      = 2
	leastBar = 24
	hourCell = 7 // "22:00", and space to the next
)

// Write the night. What is wrong comes below the plot, where a terminal's cursor is.
func (t Text) Write(out io.Writer, n *backup.Night) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Velero %s, as of %s: %s.\n", view.Printable(n.Namespace), n.From.In(t.Zone).Format("Mon 15:04 MST"), Counts(n))
	if old := Old(n, t.Now); old != "" {
		fmt.Fprintln(&b, old)
	}
	if omitted := Omitted(n); omitted != "" {
		fmt.Fprintln(&b, omitted)
	}
	if rows := Rows(n); len(rows) > 0 {
		t.plot(&b, n, rows)
	}
	t.late(&b, n)
	t.schedules(&b, n)
	t.unknown(&b, n)
	if t.Schedules {
		if err := t.table(&b, n); err != nil {
			return err
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

func (t Text) plot(b *bytes.Buffer, n *backup.Night, rows []Row) {
	cells := make([][3]string, 0, len(rows)+1) // name, ends, due
	cells = append(cells, [3]string{"BACKUP", "ENDS", "DUE"})
	for i := range rows {
		r := &rows[i]
		cells = append(cells, [3]string{r.Name(), EndText(n, r.First, t.Zone), DueText(n, r.First, t.Zone)})
	}
	var wide [3]int
	for _, c := range cells {
		for i := range c {
			wide[i] = max(wide[i], utf8.RuneCountInString(c[i]))
		}
	}
	wide[0] = min(wide[0], max(16, t.Width/3))
	a, s := axisOf(n), t.signs()
	width := max(leastBar, t.Width-wide[0]-wide[1]-wide[2]-3*gap)
	line := func(c [3]string, bar string) {
		text := fmt.Sprintf("%s  %s  %-*s  %s", pad(c[0], wide[0]), pad(bar, width), wide[1], c[1], c[2])
		fmt.Fprintln(b, strings.TrimRight(text, " "))
	}
	hours, scale := a.scale(t.Zone, width, s, n.From)
	line(cells[0], hours)
	line([3]string{}, scale)
	for i := range rows {
		line(cells[i+1], a.bar(&rows[i], width, s))
	}
	fmt.Fprintf(b, "%c waits  %c runs  %c may be complete  %c may run still  %c takes an unknown time  %c window opens  %c due  %c due, will be late  %c now\n",
		s.parts[waits], s.parts[runs], s.parts[mayEnd], s.parts[mayRun], s.parts[notKnown], s.opens, s.due, s.late, s.now)
}

// pad a text to a width, or cut it.
func pad(text string, width int) string {
	text = cut(text, width)
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

// cut the middle out of a name that is too long: its end tells Backups of one Schedule
// apart.
func cut(name string, most int) string {
	r := []rune(name)
	if len(r) <= most {
		return name
	}
	head := most/2 - 1
	return string(r[:head]) + ".." + string(r[len(r)-(most-head-2):])
}

// cell of a time, of so many; it may lie outside.
func (a axis) cell(t time.Time, width int) int {
	return int(a.across(t) * float64(width))
}

// scale is the hours in words, and as a line.
func (a axis) scale(zone *time.Location, width int, s signs, now time.Time) (hours, scale string) {
	words, line := []rune(strings.Repeat(" ", width)), []rune(strings.Repeat(string(s.line), width))
	for _, t := range a.hours(zone, width/hourCell) {
		at := a.cell(t, width)
		if at >= width {
			continue
		}
		line[at] = s.tick
		if word := []rune(t.In(zone).Format("15:04")); at+len(word) <= width {
			copy(words[at:], word)
		}
	}
	line[min(width-1, max(0, a.cell(now, width)))] = s.now
	return string(words), string(line)
}

// bar of a row. What comes later lies on what was before it, and marks on all.
func (a axis) bar(r *Row, width int, s signs) string {
	cells := []rune(strings.Repeat(" ", width))
	fill := func(p part, from, to time.Time) {
		if from.After(to) || to.Before(a.from) || from.After(a.to) {
			return
		}
		first, end := max(0, a.cell(from, width)), min(width, a.cell(to, width))
		if p == runs || p == notKnown {
			end = max(end, min(width, first+1)) // what is short is seen, too
		}
		for i := first; i < end; i++ {
			cells[i] = s.parts[p]
		}
	}
	for _, f := range r.Backups {
		a.course(f, fill)
	}
	mark := func(t time.Time, sign rune) {
		if a.contains(t) {
			cells[min(width-1, a.cell(t, width))] = sign
		}
	}
	for _, f := range r.Backups {
		mark(f.Opens, s.opens)
	}
	for _, f := range r.Backups {
		sign := s.due
		if late(f) {
			sign = s.late
		}
		mark(f.Deadline, sign)
	}
	return string(cells)
}

// late ones, each with what would help.
func (t Text) late(b *bytes.Buffer, n *backup.Night) {
	var lines []string
	for _, r := range Rows(n) {
		for _, f := range r.Backups {
			if late(f) {
				one := Row{[]*backup.Foreseen{f}, f}
				lines = append(lines, fmt.Sprintf("%s, due %s: %s.", one.Name(), DueText(n, f, t.Zone), one.Late()))
			}
		}
	}
	if lines = append(lines, WillMiss(n, t.Zone)...); len(lines) > 0 {
		fmt.Fprintf(b, "\nWill be late:\n  %s\n", strings.Join(lines, "\n  "))
	}
}

// schedules that missed their deadlines, and annotations that are not followed.
func (t Text) schedules(b *bytes.Buffer, n *backup.Night) {
	missed, unfollowed := Missed(n)
	if len(missed) > 0 {
		fmt.Fprintln(b, "\nHave missed their deadlines:")
	}
	for _, s := range missed {
		due := ""
		if !s.Deadline.IsZero() {
			due = ", due " + clock(n, s.Deadline, t.Zone)
		}
		fmt.Fprintf(b, "  Schedule %s%s: %s.\n", view.Clip(s.Name), due, NewestText(n, s))
	}
	if len(unfollowed) > 0 {
		fmt.Fprintln(b, "\nAnnotations that are not followed:")
	}
	for _, s := range unfollowed {
		for _, p := range s.Problems {
			fmt.Fprintf(b, "  Schedule %s: %s.\n", view.Clip(s.Name), view.Printable(p))
		}
	}
}

// unknown ones by why; a few of each are named.
func (t Text) unknown(b *bytes.Buffer, n *backup.Night) {
	var order []string
	names := map[string][]string{}
	rows := Rows(n)
	for i := range rows {
		why := rows[i].First.Why
		if why == "" {
			continue
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], rows[i].Name())
	}
	if len(order) > 0 {
		fmt.Fprintln(b, "\nNot forecast:")
	}
	const most = 5
	for _, why := range order {
		list, more := names[why], ""
		if len(list) > most {
			list, more = list[:most], fmt.Sprintf(" and %d more", len(list)-most)
		}
		fmt.Fprintf(b, "  %s: %s%s\n", view.Printable(why), strings.Join(list, "; "), more)
	}
}

// table of the Schedules.
func (t Text) table(b *bytes.Buffer, n *backup.Night) error {
	fmt.Fprintln(b)
	w := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
	fmt.Fprintln(w, "SCHEDULE\tCRON\tRPO\tWINDOW\tPRIORITY\tNEWEST GOOD\tDUE\tUSUALLY\t90 %\tRUNS")
	for i := range n.Schedules {
		s := &n.Schedules[i]
		newest, due := "none", "-"
		if !s.Newest.IsZero() {
			newest = clock(n, s.Newest, t.Zone)
		}
		if !s.Deadline.IsZero() {
			due = clock(n, s.Deadline, t.Zone)
		}
		name := view.Clip(s.Name)
		if s.Paused {
			name += " (paused)"
		}
		window := s.Window
		if window == "" {
			window = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\n", name, view.Printable(s.Cron), length(s.RPOSeconds), view.Printable(window), s.Priority,
			newest, due, length(s.UsualSeconds), between(s), s.Runs)
	}
	return w.Flush()
}

// length is a duration; none where it is 0.
func length(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		d = d.Round(time.Minute)
	}
	return problems.Duration(d)
}

func between(s *backup.ScheduleState) string {
	if s.UsualSeconds == 0 {
		return "-"
	}
	return length(s.LeastSeconds) + " to " + length(s.LongestSeconds)
}
