package top

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// table has a name in its first column, which takes the remaining width, and
// numbers in the others. Where the width is too small, the last columns are
// omitted.
type table struct {
	head []string
	rows []row
	note string // after the heading
	// middle: a name that does not fit is shortened in its middle, not cut at its end.
	middle bool
}

// row is one line of a table.
type row struct {
	id    string // what it is about; unique in its table
	cells []cell // one for each column
	note  line   // after the last column
}

// cell is a value as text and as a number to sort by: NaN where there is none.
type cell struct {
	span

	key float64
}

func text(s string) cell { return cell{span{s, plain}, math.NaN()} }

// value of a measurement, or Unknown.
func value[T float64 | uint64](o snapshot.Opt[T], format func(T) string) cell {
	v, ok := o.Get()
	if !ok {
		return text(view.Unknown)
	}
	return cell{span{format(v), plain}, float64(v)}
}

// rate is Unknown where the whole device has no rates.
func rate(ok bool, v float64, format func(float64) string) cell {
	if !ok {
		return cell{span{view.Unknown, dim}, math.NaN()}
	}
	return cell{span{format(v), plain}, v}
}

func highlightIf(c cell, hot bool) cell {
	if hot {
		c.style = red
	}
	return c
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
	head := row{note: line{{t.note, dim}}}
	for _, h := range t.head {
		head.cells = append(head.cells, cell{span: span{h, dim}})
	}
	out := make([]line, 0, len(t.rows)+1)
	for _, r := range append([]row{head}, t.rows...) {
		label := r.cells[0].text
		if t.middle {
			label = shorten(label, name)
		}
		l := line{{fit(label, name, false), r.cells[0].style}}
		for i := 1; i < shown; i++ {
			l = append(l, span{"  ", plain}, span{fit(r.cells[i].text, widths[i], true), r.cells[i].style})
		}
		out = append(out, append(l, r.note...))
	}
	return out
}

func (t table) widths() []int {
	widths := make([]int, len(t.head))
	for i, h := range t.head {
		widths[i] = columns(h)
		for _, r := range t.rows {
			widths[i] = max(widths[i], columns(r.cells[i].text))
		}
	}
	return widths
}

// sort by a column: names from A on, numbers from the highest on; reverse is the
// other way round. What was not measured comes last either way.
func (t table) sort(column int, reverse bool) {
	slices.SortStableFunc(t.rows, func(a, b row) int {
		x, y := a.cells[column], b.cells[column]
		order := cmp.Compare(y.key, x.key) // NaN is less than any number
		if column == 0 {
			order = strings.Compare(x.text, y.text)
		}
		if reverse && !math.IsNaN(x.key+y.key) || reverse && column == 0 {
			return -order
		}
		return order
	})
}

// filter leaves the rows whose name contains the words, in either case.
func (t table) filter(words string) table {
	words = strings.ToLower(words)
	t.rows = slices.DeleteFunc(t.rows, func(r row) bool {
		return !strings.Contains(strings.ToLower(view.Printable(r.cells[0].text)), words)
	})
	return t
}
