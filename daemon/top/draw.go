package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// lines of the screen: at most its height, each cut at its width. A style is never the
// only sign of anything.
func (s Screen) lines() []line {
	var all []line
	switch {
	case s.state == nil:
		all = []line{{{"Plimsoll  ", bold}, {view.WaitingText, plain}}}
	case s.help || s.detail != "":
		all = s.drawText()
	default:
		all = s.drawList()
	}
	all = all[:max(0, min(len(all), s.height))]
	out := make([]line, len(all))
	for i, l := range all {
		out[i] = l.cut(max(0, s.width))
	}
	return out
}

// least rows that a list gets, before what stands above it.
const leastRows = 5

// heights of what stands above the list, and of its rows. The line of the lists, the
// heading of the table and the last line are beside them.
func (s Screen) heights() (head, rows int) {
	left := s.height - 3
	head = len(s.summary())
	head = max(1+len(s.lost()), min(head, left-leastRows, left-s.height/3))
	return head, max(0, left-head)
}

// summary is what stands above the list, the most important lines first.
func (s Screen) summary() []line {
	lost := s.lost()
	all := slices.Insert(headerLines(s.state, s.width, len(lost) > 0), 1, lost...)
	all = append(all, stallLine(s.state.Snapshot))
	for _, c := range view.Contention(s.state) {
		if c.State != snapshot.ContentionBusy {
			all = append(all, contentionLine(&c, s.width))
		}
	}
	all = append(append(all, dataMoverLines(s.state)...), throttleLines(s.state)...)
	if s.height >= roomyHeight {
		all = append(all, memoryLine(s.state.Snapshot), restLine(s.state.Snapshot))
	}
	return all
}

// stallLine is the node's pressure in one line.
func stallLine(n *snapshot.Snapshot) line {
	name := "pressure "
	if n.WindowSeconds > 0 {
		name += view.Seconds(n.WindowSeconds) + " "
	}
	of := func(r snapshot.StallRatio) string {
		text := view.Optional(r.Some, view.Ratio)
		if !r.Full.IsZero() {
			text += ", full " + view.Optional(r.Full, view.Ratio)
		}
		return text
	}
	p := n.Pressure
	return line{
		{name, dim},
		{"cpu ", dim},
		{view.Optional(p.CPU.Some, view.Ratio), plain},
		{" · memory ", dim},
		{of(p.Memory), plain},
		{" · io ", dim},
		{of(p.IO), plain},
	}
}

// patience is how long a question may be without an answer, or an agent without a new
// sample, before the screen says so.
const patience = 5 * time.Second

// A cause has up to causeLines in a terminal of causeHeight lines, one in a lower one.
const causeHeight, causeLines = 16, 3

// lost says that the values are old, since when and why; empty while they are not.
func (s Screen) lost() []line {
	age := s.now.Sub(s.sampled)
	why := s.problem
	switch {
	case why != "":
	case s.now.Sub(s.arrived) > s.period+patience:
		why = "no answer yet"
	case age > max(s.period, tickOf(s.state))+patience:
		why = noNewSample
	default:
		return nil
	}
	all := append(oldLine(age, why), span{" (asked again every " + view.Seconds(s.period.Seconds()) + ")", plain})
	if s.height < causeHeight {
		return []line{all}
	}
	wrapped := all.wrap(max(1, s.width), 2)
	return wrapped[:min(len(wrapped), causeLines)]
}

// oldLine says for how long there have been no new values, and why.
func oldLine(age time.Duration, why string) line {
	return line{{oldAge(age), red}, {why, bold}}
}

func oldAge(age time.Duration) string { return "No new values for " + view.Age(age) + ": " }

// OldText says that an agent answered with an old sample, of that age.
func OldText(age time.Duration) string { return oldAge(age) + noNewSample }

const noNewSample = "the agent answers, but takes no new sample"

// isOld reports whether the sample was old already when the agent answered.
func isOld(s *view.State) bool { return s != nil && s.Stale() }

// tickOf is how often the agent samples.
func tickOf(s *view.State) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(s.Agent.TickSeconds * float64(time.Second))
}

func (s Screen) drawList() []line {
	head, visible := s.heights()
	t := s.table()
	all := append(slices.Clone(s.summary()[:head]), s.tabs(len(t.rows)))
	p := s.places[s.list]
	if len(t.rows) == 0 {
		all = append(all, line{{"  " + s.noRows(), dim}})
	} else {
		mark := "  "
		for i, l := range t.lines(s.width - len(mark)) {
			at := i - 1 // the first line is the heading
			if at >= 0 && (at < p.first || at >= p.first+visible) {
				continue
			}
			mark = "  "
			if at == p.cursor && at >= 0 {
				mark, l[0].style = "> ", marked
			}
			all = append(all, append(line{{mark, bold}}, l...))
		}
	}
	return s.withLast(all, s.listStatus(t))
}

func (s Screen) noRows() string {
	if f := s.places[s.list].filter; f != "" {
		return fmt.Sprintf("no name contains %q: Esc clears the filter", f)
	}
	return "none"
}

// withLast puts a line at the bottom of the screen, if there is more than one line.
func (s Screen) withLast(all []line, last line) []line {
	if s.height < 2 {
		return all
	}
	all = all[:min(len(all), s.height-1)]
	for len(all) < s.height-1 {
		all = append(all, line{})
	}
	return append(all, last)
}

// tabs are the lists with their sizes, from the first that leaves the shown one visible.
func (s Screen) tabs(shown int) line {
	label := func(k list) span {
		size := view.Count(uint64(k.size(s.state)))
		if k != s.list {
			return span{" " + k.name() + " " + size + " ", dim}
		}
		if s.places[k].filter != "" {
			size = view.Count(uint64(shown)) + " of " + size
		}
		return span{"[" + k.name() + " " + size + "]", bold}
	}
	var l line
	for k := range lists {
		l = append(l, label(k))
	}
	first := 0
	for first < int(s.list) && l[first:s.list+1].columns() > s.width {
		first++
	}
	return l[first:]
}

// listStatus is the last line of a list.
func (s Screen) listStatus(t table) line {
	p := s.places[s.list]
	if s.typing {
		return line{{"/", bold}, {p.filter, plain}, {"_", bold}, {"  Enter shows, Esc clears", dim}}
	}
	l := line{{"?", bold}, {" keys  ", dim}, {"q", bold}, {" quits", dim}}
	if p.filter != "" {
		l = append(l, span{"  filter ", dim}, span{p.filter, bold})
	}
	switch {
	case p.column > 0:
		l = append(l, span{"  sorted by ", dim}, span{p.order(t), bold})
	case p.reverse:
		l = append(l, span{"  reversed", bold})
	}
	if rows := len(t.rows); rows > 0 {
		l = append(l, span{fmt.Sprintf("  %d of %d", p.cursor+1, rows), dim})
	}
	return l
}

// order of sorted rows in words: "cpu, highest first".
func (p place) order(t table) string {
	name, _, _ := strings.Cut(strings.ToLower(t.head[p.column-1]), " (")
	orders := [2]string{", highest first", ", lowest first"}
	if p.column == 1 {
		orders = [2]string{", A first", ", Z first"}
	}
	if p.reverse {
		return name + orders[1]
	}
	return name + orders[0]
}

// drawText draws the help or a detail, from the line to which it is scrolled.
func (s Screen) drawText() []line {
	text := s.text()
	first := min(s.scroll, len(text))
	visible := text[first:min(len(text), first+s.textHeight())]
	status := line{{"Esc", bold}, {" back  ", dim}, {"q", bold}, {" quits", dim}}
	if len(visible) < len(text) {
		status = append(status, span{fmt.Sprintf("  lines %d to %d of %d", first+1, first+len(visible), len(text)), dim})
	}
	return s.withLast(append(s.lost(), visible...), status)
}

// textHeight is how many lines of a text are visible.
func (s Screen) textHeight() int { return max(1, s.height-1-len(s.lost())) }

// text is the whole help or detail, wrapped.
func (s Screen) text() []line {
	var text []line
	switch {
	case s.help:
		text = helpText()
	case s.detail != "":
		text = s.list.detail(s.state, s.detail)
	}
	var out []line
	for _, l := range text {
		out = append(out, l.wrap(max(1, s.width), 4)...)
	}
	return out
}

func helpText() []line {
	text := []line{{{"Keys", bold}}, {}}
	for _, k := range [][2]string{
		{"q, Ctrl-C", "quit"},
		{"Up, Down, k, j", "the row before, the row after"},
		{"PgUp, PgDn", "a page up, a page down (also Space)"},
		{"g, G", "the first row, the last row (also Home, End)"},
		{"Enter", "all about the selected row"},
		{"Esc", "back; in a list: clear the filter"},
		{"Tab, Right", "the next list (back: Shift-Tab, Left)"},
		{"s, S", "sort by the next column, by the one before"},
		{"r", "reverse the order"},
		{"/", "filter by name"},
		{"?", "these keys"},
	} {
		text = append(text, line{{"  " + fit(k[0], 15, false), bold}, {k[1], plain}})
	}
	return append(text, line{}, line{{"– is not measured; verdicts and notes have the reasons. The first order of a list is by pressure, or that of the machine.", dim}})
}
