package top

import "github.com/plimsoll-dev/plimsoll/daemon/view"

// table has a name in its first column, which takes the remaining width, and
// numbers in the others. Where the width is too small, the last columns are
// omitted.
type table struct {
	head []string
	rows []line
	note string // after the heading
}

// The least and greatest width of the name column.
const minName, maxName = 14, 60

func (t table) lines(width int) []line {
	widths := t.widths()
	shown, used := 1, 0
	for ; shown < len(widths) && used+widths[shown]+2 <= width-minName; shown++ {
		used += widths[shown] + 2
	}
	name := min(max(minName, width-used), max(minName, min(maxName, widths[0])))
	out := make([]line, 0, len(t.rows)+1)
	head := make(line, len(t.head))
	for i, h := range t.head {
		head[i] = span{h, dim}
	}
	head = append(head, span{t.note, dim})
	for _, row := range append([]line{head}, t.rows...) {
		l := line{{fit(row[0].text, name, false), row[0].style}}
		for i := 1; i < shown; i++ {
			l = append(l, span{"  ", plain}, span{fit(row[i].text, widths[i], true), row[i].style})
		}
		out = append(out, append(l, row[len(t.head):]...))
	}
	return out
}

func (t table) widths() []int {
	widths := make([]int, len(t.head))
	for i, h := range t.head {
		widths[i] = columns(h)
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(view.Printable(row[i].text)))
		}
	}
	return widths
}
