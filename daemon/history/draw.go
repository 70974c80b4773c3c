package history

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Style is for the style element of a page with plots.
const Style template.CSS = `.plots { display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
nav [aria-current] { font-weight: 650; color: var(--ink); text-decoration: none; }
:target { outline: 2px solid var(--link); outline-offset: 4px; }
.plot { display: flex; flex-direction: column; justify-content: space-between; margin: 0; min-width: 0; }
.plot h3 { display: inline; margin-right: 8px; overflow-wrap: anywhere; }
.plot ul { list-style: none; margin: 2px 0 4px; padding: 0; font-size: 13px; color: var(--soft-ink); }
.plot li { overflow-wrap: anywhere; }
.plot-key { width: 26px; height: 10px; margin-right: 6px; }
.plot-axes { display: block; width: 100%; height: 148px; overflow: visible; }
.plot-axes.plot-low { height: 62px; }
.plot-grid { stroke: var(--line); }
.plot-base { stroke: var(--soft-ink); }
.plot-text { fill: var(--soft-ink); font-size: 11.5px; }
.plot-halo { fill: var(--ink); stroke: var(--card); stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
.plot-line { fill: none; stroke: var(--fill); stroke-width: 1.7; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.plot-second { stroke: var(--ink); stroke-dasharray: 5 3; }
.plot-limit { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 1.5 3; }
.plot-area { fill: var(--fill); fill-opacity: .28; }
.plot-area.plot-second { fill: var(--ink); fill-opacity: .14; stroke: none; }
.plot-gap { fill: var(--track); }
.plot-back-soft { fill: var(--soft-bg); } .plot-back-hard { fill: var(--hard-bg); }
.plot-soft { fill: var(--soft); } .plot-hard { fill: var(--hard); }
.plot-at { stroke: var(--ink); stroke-dasharray: 2 4; }
.plot-mark { stroke: var(--ink); fill: var(--ink); } .plot-mark-target { fill: transparent; stroke: none; }
.plot a:hover .plot-mark, .plot a:focus .plot-mark { stroke-width: 2.5; }
`

// geometry of a drawing in pixels from above; across it is in percent of its width.
type geometry struct{ top, bottom, text float64 }

func (p Plot) geometry() geometry {
	if len(p.Lines) == 0 {
		return geometry{top: 8, bottom: 42, text: 57}
	}
	return geometry{top: 8, bottom: 128, text: 143}
}

// figure is the plot in HTML. All names in it are escaped.
func (p Plot) figure() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<figure class=\"plot card\" data-key=\"%s\">\n<figcaption><h3>%s</h3>\n<ul>\n", escape(p.ID), escape(p.Title))
	legend := p.legend()
	for _, l := range legend {
		fmt.Fprintf(&b, "<li>%s%s</li>\n", l.key, escape(l.text))
	}
	b.WriteString("</ul></figcaption>\n")
	p.draw(&b, legend)
	b.WriteString("</figure>\n")
	return b.String()
}

func escape(text string) string { return html.EscapeString(view.Printable(text)) }

// draw writes the axes: percentages across, so that texts keep their size at any
// width, and inside of them a drawing that is stretched.
func (p Plot) draw(b *strings.Builder, legend []entry) {
	g := p.geometry()
	low := ""
	if len(p.Lines) == 0 {
		low = " plot-low"
	}
	fmt.Fprintf(b, "<svg class=\"plot-axes%s\" role=\"group\"><title>%s</title><desc>%s</desc>\n", low, escape(p.Title), escape(p.describe(legend)))
	b.WriteString("<g aria-hidden=\"true\">\n")
	scale := p.scale()
	p.gaps(b, g)
	p.bands(b, g)
	p.grid(b, g)
	if len(p.Lines) > 0 {
		p.lines(b, g, scale)
	}
	p.texts(b, g, scale)
	if !p.Range.At.IsZero() {
		x := percent(p.across(p.Range.At))
		fmt.Fprintf(b, "<line class=\"plot-at\" x1=\"%s\" x2=\"%s\" y1=\"%g\" y2=\"%g\"/>\n", x, x, g.top, g.bottom)
	}
	b.WriteString("</g>\n")
	p.marks(b, g)
	b.WriteString("</svg>\n")
}

// across is the place of a time, 0 to 1 within the range.
func (p Plot) across(t time.Time) float64 {
	return float64(t.Sub(p.Range.From)) / float64(p.Range.To.Sub(p.Range.From))
}

func percent(share float64) string {
	text := strconv.FormatFloat(100*share, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "%"
}

func (p Plot) rect(b *strings.Builder, class string, from, to time.Time, y, height float64) {
	x0, x1 := max(0, p.across(from)), min(1, p.across(to))
	if x1 > x0 {
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%s\" y=\"%g\" width=\"%s\" height=\"%g\"/>\n", class, percent(x0), y, percent(x1-x0), height)
	}
}

// label writes a word into a band that has room for it.
func (p Plot) label(b *strings.Builder, text string, from, to time.Time, y, least float64) {
	x0, x1 := max(0, p.across(from)), min(1, p.across(to))
	if x1-x0 >= least {
		fmt.Fprintf(b, "<text class=\"plot-text plot-halo\" x=\"%s\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", percent((x0+x1)/2), y, text)
	}
}

// The least width of a band, of the drawing's, into which a word fits at 350 px.
const (
	roomForLevel = 0.1
	roomForGap   = 0.16
)

func (p Plot) gaps(b *strings.Builder, g geometry) {
	for _, gap := range p.unknown() {
		p.rect(b, "plot-gap", gap.From, gap.To, g.top, g.bottom-g.top)
		p.label(b, "no value", gap.From, gap.To, (g.top+g.bottom)/2, roomForGap)
	}
}

// bands draws levels: behind lines as a background with a bar on top, thin for soft
// and thick for hard; by themselves as steps of a course.
func (p Plot) bands(b *strings.Builder, g geometry) {
	height := g.bottom - g.top
	for _, band := range p.Bands {
		name := band.Level.String()
		switch {
		case len(p.Lines) > 0:
			p.rect(b, "plot-back-"+name, band.From, band.To, g.top, height)
			p.rect(b, "plot-"+name, band.From, band.To, g.top, barHeight(band.Level))
		default:
			step := height * float64(band.Level) / float64(plugins.Hard)
			p.rect(b, "plot-"+name, band.From, band.To, g.bottom-step, step)
		}
	}
}

func barHeight(l plugins.Level) float64 {
	if l == plugins.Hard {
		return 9
	}
	return 4
}

func (p Plot) grid(b *strings.Builder, g geometry) {
	for i, y := range []float64{g.top, (g.top + g.bottom) / 2, g.bottom} {
		class := "plot-grid"
		if i == 2 {
			class = "plot-base"
		}
		fmt.Fprintf(b, "<line class=\"%s\" x1=\"0\" x2=\"100%%\" y1=\"%g\" y2=\"%g\"/>\n", class, y, y)
	}
	for _, t := range p.ticks() {
		x := percent(p.across(t))
		fmt.Fprintf(b, "<line class=\"plot-base\" x1=\"%s\" x2=\"%s\" y1=\"%g\" y2=\"%g\"/>\n", x, x, g.bottom, g.bottom+4)
	}
}

// ticks are the times that are named.
func (p Plot) ticks() []time.Time {
	every := 10 * time.Minute
	if p.Range.Name == rangeDay {
		every = 4 * time.Hour
	}
	var list []time.Time
	for t := p.Range.From.Truncate(every); !t.After(p.Range.To); t = t.Add(every) {
		if !t.Before(p.Range.From) {
			list = append(list, t)
		}
	}
	return list
}

func (p Plot) texts(b *strings.Builder, g geometry, scale float64) {
	top, middle := p.unit.format(scale), p.unit.format(scale/2)
	if p.unit == unitLevel {
		top, middle = plugins.Hard.String(), plugins.Soft.String()
	}
	fmt.Fprintf(b, "<text class=\"plot-text plot-halo\" x=\"2\" y=\"%g\">%s</text>\n", g.top+11, top)
	fmt.Fprintf(b, "<text class=\"plot-text plot-halo\" x=\"2\" y=\"%g\">%s</text>\n", (g.top+g.bottom)/2+11, middle)
	if len(p.Lines) > 0 {
		for _, band := range p.Bands {
			p.label(b, band.Level.String(), band.From, band.To, g.top+22, roomForLevel)
		}
	}
	for _, t := range p.ticks() {
		x := p.across(t)
		anchor := "middle"
		switch { // 420 px are wide enough for half a time at 5 %
		case x < 0.05:
			anchor = "start"
		case x > 0.95:
			anchor = "end"
		}
		fmt.Fprintf(b, "<text class=\"plot-text\" x=\"%s\" y=\"%g\" text-anchor=\"%s\">%s</text>\n", percent(x), g.text, anchor, t.UTC().Format("15:04"))
	}
}

// drawnHeight is the height of the stretched drawing, in units of its own.
const drawnHeight = 240

// lines draws the lines in a drawing that is two units wide for each point.
func (p Plot) lines(b *strings.Builder, g geometry, scale float64) {
	n := p.Range.count(p.step)
	fmt.Fprintf(b, "<svg x=\"0\" y=\"%g\" width=\"100%%\" height=\"%g\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" overflow=\"visible\">\n", g.top, g.bottom-g.top, 2*n, drawnHeight)
	for i, l := range p.Lines {
		if area := l.area(scale); area != "" {
			fmt.Fprintf(b, "<path class=\"plot-area%s\" d=\"%s\"/>\n", second(i), area)
		}
	}
	for i, l := range p.Lines {
		class := "plot-line" + second(i)
		if l.threshold {
			if !l.fits(scale) {
				continue
			}
			class = "plot-line plot-limit"
		}
		if path := l.path(scale); path != "" {
			fmt.Fprintf(b, "<path class=\"%s\" d=\"%s\"/>\n", class, path)
		}
	}
	b.WriteString("</svg>\n")
}

func second(line int) string {
	if line > 0 {
		return " plot-second"
	}
	return ""
}

// scale is the end of the axis. A threshold is on it if it is not far above the
// values, which would else be flat.
func (p Plot) scale() float64 {
	const near = 4
	highest, limit := 0.0, 0.0
	for _, l := range p.Lines {
		if l.threshold {
			limit = max(limit, l.highest().max)
		} else {
			highest = max(highest, l.highest().max)
		}
	}
	if limit <= near*highest {
		highest = max(highest, limit)
	}
	return p.unit.scale(highest)
}

func (l Line) fits(scale float64) bool { return l.highest().max <= scale*(1+1e-9) }

// runs calls do with the first and the last point of each run of known points.
func (l Line) runs(do func(first, last int)) {
	for i := 0; i < len(l.points); i++ {
		if !l.points[i].known {
			continue
		}
		first := i
		for i+1 < len(l.points) && l.points[i+1].known {
			i++
		}
		do(first, i)
	}
}

func height(v, scale float64) int {
	return drawnHeight - int(math.Round(drawnHeight*max(0, min(1, v/scale))))
}

// path is the mean: each run from its beginning to its end, through the middle of its
// points.
func (l Line) path(scale float64) string {
	var b strings.Builder
	l.runs(func(first, last int) {
		y := height(l.points[first].mean, scale)
		fmt.Fprintf(&b, "M%d %dh1", 2*first, y)
		climb(&b, l.points[first+1:last+1], y, 2, func(q point) int { return height(q.mean, scale) })
		b.WriteString("h1")
	})
	return b.String()
}

// climb writes steps of one width from a height to those of points. Steps at one height
// are written as one.
func climb(b *strings.Builder, points []point, y, width int, of func(point) int) {
	level := 0
	flat := func() {
		if level != 0 {
			fmt.Fprintf(b, "h%d", level)
			level = 0
		}
	}
	for _, p := range points {
		next := of(p)
		if next == y {
			level += width
			continue
		}
		flat()
		fmt.Fprintf(b, "l%d %d", width, next-y)
		y = next
	}
	flat()
}

// area is what is between the mean and the highest value; empty where they are the
// same.
func (l Line) area(scale float64) string {
	if l.threshold {
		return ""
	}
	var b strings.Builder
	l.runs(func(first, last int) {
		run := l.points[first : last+1]
		differ := false
		for _, p := range run {
			differ = differ || height(p.max, scale) != height(p.mean, scale)
		}
		if !differ {
			return
		}
		y := height(run[0].max, scale)
		fmt.Fprintf(&b, "M%d %dh1", 2*first, y)
		climb(&b, run[1:], y, 2, func(p point) int { return height(p.max, scale) })
		back := make([]point, len(run))
		for i := range run {
			back[len(run)-1-i] = run[i]
		}
		y = height(back[0].mean, scale)
		fmt.Fprintf(&b, "h1V%dh-1", y)
		climb(&b, back[1:], y, -2, func(p point) int { return height(p.mean, scale) })
		b.WriteString("h-1z")
	})
	return b.String()
}

// marks draws moments with their links. Those that would lie on each other are one.
func (p Plot) marks(b *strings.Builder, g geometry) {
	const apart = 0.012
	var at []float64
	var together [][]Mark
	for _, m := range p.Marks {
		x := p.across(m.Time)
		if x < 0 || x > 1 {
			continue
		}
		if n := len(at); n > 0 && math.Abs(at[n-1]-x) < apart {
			together[n-1] = append(together[n-1], m)
			continue
		}
		at, together = append(at, x), append(together, []Mark{m})
	}
	for i, x := range at {
		text := together[i][0].Text
		if more := len(together[i]) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(b, "<svg x=\"%s\" y=\"0\" width=\"1\" height=\"%g\" overflow=\"visible\"><a href=\"%s\"><title>%s</title>"+
			"<rect class=\"plot-mark-target\" x=\"-12\" width=\"24\" height=\"%g\"/><path class=\"plot-mark\" d=\"M0 8V%gM-5 0h10l-5 8z\"/></a></svg>\n",
			percent(x), g.bottom, escape(together[i][0].Link), escape(text), g.bottom, g.bottom)
	}
}
