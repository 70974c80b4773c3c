package replay

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func units(v float64) string { return fmt.Sprintf("%.1f", v) }

// leastWidth of a band keeps a second of a day visible.
const leastWidth = 2

func newBand(class string, from, to float64, y, h int, title string) band {
	to = max(to, from+leastWidth)
	if to > 1000 {
		from, to = min(from, 1000-leastWidth), 1000
	}
	return band{Class: class, X: units(from), W: units(to - from), Y: fmt.Sprint(y), H: fmt.Sprint(h), Title: view.Printable(title)}
}

// gaps are drawn in full height in every area.
func (a *area) gaps(r *Report) {
	for _, g := range r.Gaps[:min(marksShown, len(r.Gaps))] {
		a.Bands = append(a.Bands, newBand("gap", r.x(g.OffsetSeconds-g.Seconds), r.x(g.OffsetSeconds), 0, a.H, view.Age(seconds(g.Seconds))+" not observed: "+g.Reason))
	}
}

// fullHeight are bands in the full height of a strip.
func fullHeight(list []band) []band {
	for i := range list {
		list[i].Y, list[i].H = "0", fmt.Sprint(stripHeight)
	}
	return list
}

// lines through the known values, interrupted at gaps.
func lines[T any](r *Report, points []Point[T], class string, at func(float64) float64, of func(T) snapshot.Opt[float64]) []polyline {
	var list []polyline
	var l simplifiedLine
	for _, p := range points {
		v, ok := of(p.Value).Get()
		if !ok || p.AfterGap {
			list = l.end(list, class)
		}
		if ok {
			l.add(units(r.x(p.OffsetSeconds)), units(at(v)))
		}
	}
	return l.end(list, class)
}

// simplifiedLine is a line that keeps only the first and last of several points at one
// height.
type simplifiedLine struct{ x, y []string }

func (l *simplifiedLine) add(x, y string) {
	if n := len(l.y); n > 1 && l.y[n-1] == y && l.y[n-2] == y {
		l.x[n-1] = x
		return
	}
	l.x, l.y = append(l.x, x), append(l.y, y)
}

func (l *simplifiedLine) end(list []polyline, class string) []polyline {
	if len(l.x) == 1 { // a dot
		l.x, l.y = append(l.x, l.x[0]), append(l.y, l.y[0])
	}
	var points []string
	for i := range l.x {
		points = append(points, l.x[i]+","+l.y[i])
	}
	*l = simplifiedLine{}
	if len(points) == 0 {
		return list
	}
	return append(list, polyline{class, strings.Join(points, " ")})
}
