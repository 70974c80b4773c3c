package history

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// entry of a legend: a sample of how it is drawn, and the text.
type entry struct{ key, text string }

// legend has in words what the drawing shows.
func (p Plot) legend() []entry {
	var list []entry
	scale := p.scale()
	for i, l := range p.Lines {
		switch {
		case l.threshold:
			list = append(list, p.thresholdEntry(l, scale))
		default:
			list = append(list, entry{lineKey("plot-line" + second(i)), l.Name + ": " + p.course(l)})
		}
	}
	for _, level := range []plugins.Level{plugins.Soft, plugins.Hard} {
		if d := p.spent[level]; d > 0 {
			list = append(list, entry{p.bandKey(level), level.String() + " for " + view.Age(d)})
		}
	}
	if d := sum(p.unknown()); d > 0 && !p.nothing() {
		list = append(list, entry{`<svg class="plot-key" aria-hidden="true"><rect class="plot-gap" width="26" height="10"/></svg>`, "no value for " + view.Age(d)})
	}
	return list
}

func lineKey(class string) string {
	return `<svg class="plot-key" aria-hidden="true"><line class="` + class + `" x1="0" x2="26" y1="5" y2="5"/></svg>`
}

func (p Plot) bandKey(l plugins.Level) string {
	name, bar := l.String(), barHeight(l)
	if len(p.Lines) == 0 {
		bar = 10 * float64(l) / float64(plugins.Hard)
		return `<svg class="plot-key" aria-hidden="true"><rect class="plot-` + name + `" y="` + view.Number(10-bar) + `" width="26" height="` + view.Number(bar) + `"/></svg>`
	}
	return `<svg class="plot-key" aria-hidden="true"><rect class="plot-back-` + name + `" width="26" height="10"/><rect class="plot-` + name + `" width="26" height="` + view.Number(bar/2) + `"/></svg>`
}

func (p Plot) thresholdEntry(l Line, scale float64) entry {
	last, _, known := l.newest()
	text := l.Name + ": "
	switch {
	case !known:
		return entry{lineKey("plot-line plot-limit"), text + "unknown"}
	case !l.fits(scale):
		return entry{"", text + p.unit.format(last.mean) + ", above the plot"}
	}
	return entry{lineKey("plot-line plot-limit"), text + p.unit.format(last.mean)}
}

// course of a line: its newest value and its highest.
func (p Plot) course(l Line) string {
	last, i, known := l.newest()
	if !known {
		return "no value in this time"
	}
	text := "last " + p.unit.format(last.mean)
	if end := p.time(i + 1); p.Range.To.Sub(end) > 2*p.step {
		text += " at " + clock(p.time(i))
	}
	if top := l.highest(); top.max > 0 {
		text += ", highest " + p.unit.format(top.max) + " at " + clock(p.time(top.at))
	}
	return text
}

// time of the beginning of a point.
func (p Plot) time(point int) time.Time { return p.Range.From.Add(time.Duration(point) * p.step) }

func clock(t time.Time) string { return t.UTC().Format("15:04") }

// newest is the last known point.
func (l Line) newest() (_ point, at int, known bool) {
	for i, p := range slices.Backward(l.points) {
		if p.known {
			return p, i, true
		}
	}
	return point{}, 0, false
}

// top is the highest value of a line and where it is.
type top struct {
	max float64
	at  int
}

func (l Line) highest() top {
	var t top
	for i, p := range l.points {
		if p.known && p.max > t.max {
			t = top{p.max, i}
		}
	}
	return t
}

func sum(list []Band) time.Duration {
	d := time.Duration(0)
	for _, b := range list {
		d += b.To.Sub(b.From)
	}
	return d
}

// unknown are the times at which no line has a value, but for the last point, which is
// not full yet.
func (p Plot) unknown() []Band {
	n := 0
	for _, l := range p.Lines {
		if !l.threshold {
			n = max(n, len(l.points)-1)
		}
	}
	var list []Band
	for i := range n {
		if p.knownAt(i) {
			continue
		}
		if last := len(list) - 1; last >= 0 && list[last].To.Equal(p.time(i)) {
			list[last].To = p.time(i + 1)
			continue
		}
		list = append(list, Band{From: p.time(i), To: p.time(i + 1)})
	}
	return list
}

func (p Plot) knownAt(i int) bool {
	for _, l := range p.Lines {
		if !l.threshold && l.points[i].known {
			return true
		}
	}
	return false
}

// nothing reports that no line has any value.
func (p Plot) nothing() bool {
	for _, l := range p.Lines {
		if _, _, known := l.newest(); known && !l.threshold {
			return false
		}
	}
	return true
}

// describe is the plot in a few sentences.
func (p Plot) describe(legend []entry) string {
	texts := make([]string, 0, len(legend))
	for _, l := range legend {
		texts = append(texts, l.text)
	}
	return "From " + view.Stamp(p.Range.From) + " to " + view.Stamp(p.Range.To) + " UTC. " + strings.Join(texts, "; ") + "."
}
