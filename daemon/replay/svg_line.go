package replay

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// x is an offset in thousandths of the width.
func (r *Report) x(offset float64) float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return 1000 * offset / r.Seconds
}

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

// bands are the times at a level: hard in full height, soft in the lower half,
// so that colour is not the only sign.
func (s *Scope) bands(r *Report) []band {
	var list []band
	for i := 0; i < len(s.Points); {
		from := s.Points[i]
		next := i + 1
		for next < len(s.Points) && s.Points[next].Value.Level == from.Value.Level && !s.Points[next].AfterGap {
			next++
		}
		to := r.Seconds
		if next < len(s.Points) {
			to = s.Points[next].OffsetSeconds
			if s.Points[next].AfterGap {
				to = s.Points[next-1].OffsetSeconds
			}
		}
		title := from.Value.Level.String() + " for " + view.Age(seconds(to-from.OffsetSeconds))
		switch a, b := r.x(from.OffsetSeconds), r.x(to); from.Value.Level {
		case plugins.Hard:
			list = append(list, newBand("hard", a, b, 0, levelHeight, title))
		case plugins.Soft:
			list = append(list, newBand("soft", a, b, levelHeight/2, levelHeight/2, title))
		case plugins.None:
		}
		i = next
	}
	return list
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
