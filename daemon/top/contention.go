package top

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// partiesShown of each kind; the page and the API have more.
const partiesShown = 3

// contentionLines show culprits and sufferers in about room lines: in full while
// they fit, then in one line each. In a small frame the devices without
// contention are listed in the heading. Without any there is no line.
func contentionLines(s *view.State, width int, roomy bool, room int) []line {
	list := view.Contention(s)
	if len(list) == 0 {
		return nil
	}
	head := "CONTENTION"
	if w := s.Snapshot.WindowSeconds; w > 0 {
		head += " " + view.Seconds(w)
	}
	if roomy && list[0].State == snapshot.ContentionPresent { // these come first
		head += "  culprits by share, sufferers by time waited"
	}
	list, quiet := chooseShown(list, roomy, room)
	lines := []line{{{head, dim}, {quiet, plain}}}
	room -= 1 + len(list)
	for i := range list {
		c := &list[i]
		rows := parties(c, width)
		if c.State == snapshot.ContentionBusy || len(rows) > room {
			lines = append(lines, contentionLine(c, width))
			continue
		}
		room -= len(rows)
		lines = append(append(lines, contentionHead(c)), rows...)
	}
	return lines
}

// chooseShown separates the list into those that get lines, chosen by the longest
// waits, and a summary of the others.
func chooseShown(list []snapshot.Contention, roomy bool, room int) (shown []snapshot.Contention, others string) {
	n := len(list)
	for n > 0 && !roomy && list[n-1].State == snapshot.ContentionBusy {
		n--
	}
	shown = view.Busiest(list[:n], max(1, room-1), view.WaitedShare)
	var left []string
	for i := range list {
		if !slices.ContainsFunc(shown, func(c snapshot.Contention) bool { return contendedName(&c) == contendedName(&list[i]) }) {
			left = append(left, contendedName(&list[i]))
		}
	}
	switch {
	case len(left) == 0:
		return shown, ""
	case len(shown) == n && n < len(list):
		return shown, "  busy without contention: " + strings.Join(left, ", ")
	}
	return shown, fmt.Sprintf("  and %d more: %s", len(left), strings.Join(left, ", "))
}

// contendedName is the device, or otherwise the resource.
func contendedName(c *snapshot.Contention) string {
	if c.Device != "" {
		return c.Device
	}
	return string(c.Resource)
}

func contentionHead(c *snapshot.Contention) line {
	l := line{{contendedName(c), bold}, {"  ", plain}, {view.ContentionText(c), contentionStyle(c.State)}}
	if c.State == snapshot.ContentionBusy {
		return l
	}
	return append(l, span{"  coverage " + view.Optional(c.Coverage, view.Ratio), plain})
}

func contentionStyle(s snapshot.ContentionState) style {
	switch s {
	case snapshot.ContentionPresent:
		return yellow
	case snapshot.ContentionBusy:
		return dim
	case snapshot.ContentionUnknown:
	}
	return bold
}

// contentionLine is the short form: one of each kind.
func contentionLine(c *snapshot.Contention, width int) line {
	l := contentionHead(c)
	left := width - l.columns()
	const numbers = 9 + 15 // width of the numbers of both kinds
	s, waits := view.MainSufferer(c)
	waits = waits && c.State != snapshot.ContentionBusy
	names := left - 9
	if waits {
		names = (left - numbers) / 2
	}
	names = max(8, names)
	switch p, named := lineCulprit(c); {
	case named:
		l = append(l, span{"  " + view.Ratio(p.Share) + " ", plain}, span{shorten(p.Name, names), bold})
	case c.State == snapshot.ContentionPresent:
		l = append(l, span{"  no culprit named", plain})
	}
	if waits {
		l = append(l, span{"  waits " + view.Ratio(s.Waited) + " ", plain}, span{shorten(s.Name, names), bold})
	}
	return l
}

// lineCulprit is the culprit of a contention, and otherwise what uses most.
func lineCulprit(c *snapshot.Contention) (snapshot.Culprit, bool) {
	if c.State == snapshot.ContentionPresent {
		return view.MainCulprit(c)
	}
	if len(c.Culprits) == 0 {
		return snapshot.Culprit{}, false
	}
	return c.Culprits[0], true
}

// maxColumns is the limit of the columns on a wide terminal: columns far apart are
// hard to read together.
const maxColumns = 140

// parties are culprits beside sufferers; the names share the width that the
// numbers leave.
func parties(c *snapshot.Contention, width int) []line {
	const numbers = 2 + 6 + 2 + 9 + 2 + 2 + 6 + 2 // width of all but the names
	names := max(8, (min(width, maxColumns)-numbers)/2)
	n := min(partiesShown, max(len(c.Culprits), len(c.Sufferers)))
	rows := make([]line, 0, n+1)
	for i := range n {
		left, right := culprit(c, i, names), sufferer(c, i, names)
		if len(right) > 0 {
			left[len(left)-1].text += strings.Repeat(" ", max(0, names+23-left.columns()))
		}
		rows = append(rows, append(left, right...))
	}
	left, right := moreOf(len(c.Culprits), c.MoreCulprits), moreOf(len(c.Sufferers), c.MoreSufferers)
	if left+right != "" {
		rows = append(rows, line{{"  " + fit(left, names+21, false) + right, dim}})
	}
	return rows
}

func culprit(c *snapshot.Contention, i, width int) line {
	text := ""
	switch {
	case i < len(c.Culprits):
		p := &c.Culprits[i]
		return line{
			{"  " + fit(view.Ratio(p.Share), 6, true) + "  " + fit(view.Usage(c, p), 9, true) + "  ", plain},
			{shorten(p.Name, width), bold},
			{"", plain},
		}
	case i == 0:
		text = shorten(view.NoCulprit(c), width+19)
	}
	return line{{"  " + text, dim}}
}

func sufferer(c *snapshot.Contention, i, width int) line {
	if i >= len(c.Sufferers) {
		return nil // the heading has the reason
	}
	p := &c.Sufferers[i]
	name := p.Name
	if p.LowestClass {
		name += " (lowest)"
	}
	return line{{fit(view.Ratio(p.Waited), 6, true) + "  ", plain}, {shorten(name, width), bold}}
}

// moreOf is how many of a list are not shown; empty for none.
func moreOf(listed, beyond int) string {
	if n := max(0, listed-partiesShown) + beyond; n > 0 {
		return fmt.Sprintf("and %d more", n)
	}
	return ""
}

// shorten shortens a long name in the middle: pods of one owner differ at the
// end.
func shorten(s string, width int) string {
	s = view.Printable(s)
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	r := []rune(s)
	tail := (width - 1) / 2
	return string(r[:width-1-tail]) + "…" + string(r[len(r)-tail:])
}
