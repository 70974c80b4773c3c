package gantt

import (
	"fmt"
	"html"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// MaxRows of a drawing and of the table below it: a browser's user does not read more.
const MaxRows = 60

// First rows of a night that are shown, and how many are not.
func First(n *backup.Night) (rows []Row, more int) {
	rows = Rows(n)
	return rows[:min(len(rows), MaxRows)], max(0, len(rows)-MaxRows)
}

// Style is for the style element of a page with drawings.
const Style template.CSS = `.gantt { display: block; width: 100%; }
.gantt text { fill: var(--ink); font-size: 12px; stroke: var(--card); stroke-width: 3px; paint-order: stroke; stroke-linejoin: round; }
.gantt .g-hour { fill: var(--soft-ink); stroke: none; }
.gantt .g-late { fill: var(--hard); font-weight: 650; }
.g-grid { stroke: var(--line); } .g-now { stroke: var(--ink); stroke-dasharray: 2 3; }
.g-window { fill: var(--track); }
.g-waits { fill: var(--soft-ink); fill-opacity: .55; }
.g-runs { fill: var(--fill); } .g-mayend { fill: var(--fill); fill-opacity: .6; } .g-mayrun { fill: var(--fill); fill-opacity: .3; }
.g-unknown { fill: none; stroke: var(--soft-ink); stroke-dasharray: 2 2; }
.g-due { stroke: var(--ink); stroke-width: 2; } .g-miss { stroke: var(--hard); stroke-width: 4; }
.g-key { white-space: nowrap; margin-right: 8px; } .g-key svg { width: 26px; height: 12px; margin-right: 4px; vertical-align: -1px; }
`

// Key says what the parts of a drawing mean.
func Key() template.HTML {
	var b strings.Builder
	b.WriteString(`<p class="quiet">`)
	for _, k := range [][2]string{
		{`rect class="g-waits" y="5" width="26" height="3"`, "waits"},
		{`rect class="g-runs" width="26" height="11"`, "runs"},
		{`rect class="g-mayend" width="26" height="11"`, "may be complete"},
		{`rect class="g-mayrun" width="26" height="11"`, "may run still"},
		{`rect class="g-unknown" x="5" y="1" width="16" height="10"`, "takes an unknown time"},
		{`rect class="g-window" width="26" height="12"`, "backup window"},
		{`line class="g-due" x1="13" x2="13" y2="12"`, "due"},
		{`line class="g-miss" x1="13" x2="13" y2="12"`, "due, will be late"},
		{`line class="g-now" x1="13" x2="13" y2="12"`, "now"},
	} {
		fmt.Fprintf(&b, `<span class="g-key"><svg><%s/></svg>%s</span> `, k[0], k[1])
	}
	b.WriteString("</p>")
	return template.HTML(b.String()) //nolint:gosec // our own
}

// Pixels from above; across, all is in percent of the width, so that texts keep their size.
const (
	hoursHeight = 20
	rowHeight   = 32
	barTop      = 17
	barHeight   = 11
	hoursAtMost = 8 // as many fit 350 px
)

// SVG draws the first rows of a night, hours in UTC. All names in it are escaped; what it
// shows is also in the table below it.
func SVG(n *backup.Night) template.HTML {
	rows, _ := First(n)
	a := axisOf(n)
	height := hoursHeight + len(rows)*rowHeight
	var b strings.Builder
	fmt.Fprintf(&b, "<svg class=\"gantt\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n", height, escape("Backups of "+n.Namespace+" from "+a.from.UTC().Format("15:04")+" to "+a.to.UTC().Format("Mon 15:04")+" UTC; the table below has the same"))
	for _, t := range a.hours(time.UTC, hoursAtMost) {
		x := a.across(t)
		anchor := "middle"
		switch { // half a time is 5 % of 350 px
		case x < 0.05:
			anchor = "start"
		case x > 0.95:
			anchor = "end"
		}
		vertical(&b, "g-grid", a, t, hoursHeight-4, height)
		fmt.Fprintf(&b, "<text class=\"g-hour\" x=\"%s\" y=\"12\" text-anchor=\"%s\">%s</text>\n", percent(x), anchor, t.UTC().Format("15:04"))
	}
	vertical(&b, "g-now", a, n.From, hoursHeight, height)
	for i := range rows {
		a.row(&b, &rows[i], hoursHeight+i*rowHeight)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // names in it are escaped
}

// row draws one at a height: its windows, its bars, its deadlines, its name.
func (a axis) row(b *strings.Builder, r *Row, y int) {
	b.WriteString("<g>")
	for _, f := range r.Backups {
		if !f.Opens.IsZero() && f.Deadline.After(f.Opens) {
			a.rect(b, "g-window", f.Opens, f.Deadline, y+barTop-3, barHeight+6)
		}
	}
	bar := func(p part, from, to time.Time) {
		switch p {
		case waits:
			a.rect(b, "g-waits", from, to, y+barTop+barHeight/2-1, 3)
		case runs:
			a.rect(b, "g-runs", from, to, y+barTop, barHeight)
		case mayEnd:
			a.rect(b, "g-mayend", from, to, y+barTop, barHeight)
		case mayRun:
			a.rect(b, "g-mayrun", from, to, y+barTop, barHeight)
		case notKnown:
			if a.contains(from) {
				fmt.Fprintf(b, "<rect class=\"g-unknown\" x=\"%s\" y=\"%d\" width=\"16\" height=\"%d\"/>", percent(min(0.95, a.across(from))), y+barTop, barHeight)
			}
		}
	}
	for _, f := range r.Backups {
		a.course(f, bar)
	}
	for _, f := range r.Backups {
		class := "g-due"
		if late(f) {
			class = "g-miss"
		}
		vertical(b, class, a, f.Deadline, y+barTop-4, y+barTop+barHeight+4)
	}
	class, name := "", cut(r.Name(), longName)
	if late(r.First) {
		class, name = " class=\"g-late\"", lateBy(r.First.LateSeconds)+" late: "+cut(r.Name(), shortName)
	}
	fmt.Fprintf(b, "<text%s x=\"0\" y=\"%d\">%s</text></g>\n", class, y+barTop-5, escape(name))
}

// As many characters of a name fit 350 px.
const longName, shortName = 44, 32

func escape(text string) string { return html.EscapeString(view.Printable(text)) }

func (a axis) rect(b *strings.Builder, class string, from, to time.Time, y, height int) {
	x0, x1 := max(0, a.across(from)), min(1, a.across(to))
	if x1 > x0 {
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%s\" y=\"%d\" width=\"%s\" height=\"%d\"/>", class, percent(x0), y, percent(x1-x0), height)
	}
}

func vertical(b *strings.Builder, class string, a axis, t time.Time, y0, y1 int) {
	if a.contains(t) {
		x := percent(a.across(t))
		fmt.Fprintf(b, "<line class=\"%s\" x1=\"%s\" x2=\"%s\" y1=\"%d\" y2=\"%d\"/>", class, x, x, y0, y1)
	}
}

func percent(share float64) string {
	text := strconv.FormatFloat(100*share, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "%"
}
