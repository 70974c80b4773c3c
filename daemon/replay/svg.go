package replay

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

//go:embed plot.svg.tmpl
var plotTemplate string

// plot is the data of the template: text and geometry, with nothing left to
// compute. Horizontal units are percent, so that it fills the viewer's width;
// vertical ones are pixels, so that text is not scaled.
type plot struct {
	Height      int
	Title, Desc string
	Texts       []plotText
	Keys        []plotKey
	Areas       []area
	Tags        []plotText
	Marks       []mark
}

type plotText struct {
	Class, X string
	Y        int
	Text     string
}

// plotKey is an entry of the legend.
type plotKey struct {
	X     string
	Y     int
	Line  bool
	Class string
	Text  string
}

// area is 1000 units wide and has its own height in pixels.
type area struct {
	Y, H  int
	Label string
	Bands []band
	Grid  []string
	Lines []polyline
}

type band struct{ Class, X, Y, W, H, Title string }

type polyline struct{ Class, Points string }

type mark struct {
	X      string
	Y      int
	Number string
	Title  string
}

const (
	// lineRunes of text fit into a width of 400 pixels.
	lineRunes = 53
	// stripsShown and decisionsListed keep the plot readable.
	stripsShown, decisionsListed, marksShown = 12, 12, 200
	lineHeight, stripHeight, stallHeight     = 16, 76, 34
	levelHeight                              = 10 // below each strip
)

// WriteSVG writes a report as one self-contained plot: without script, font or
// other file.
func WriteSVG(w io.Writer, r *Report) error {
	t, err := template.New("plot").Parse(plotTemplate)
	if err != nil {
		return err
	}
	return t.Execute(w, draw(r))
}

// draw lays out a report from top to bottom.
func draw(r *Report) *plot {
	p := &plot{Title: view.Printable(r.headline()), Height: 8}
	p.text("head", wrap(r.headline())...)
	var desc []string
	for _, t := range append(r.recordingLines(), r.judgedWith()) {
		p.text("quiet", wrap(t)...)
		desc = append(desc, view.Printable(t))
	}
	p.legend()
	p.text("quiet", "Each strip shows the main value of a rule. A level", "needs all its comparisons: see -o table.")
	shown, more := r.nearest()
	for _, s := range shown {
		p.strip(r, s)
		desc = append(desc, view.Printable(s.text(r.at)))
	}
	if more > 0 {
		p.text("quiet", fmt.Sprintf("and %d more, none closer to a threshold", more))
	}
	p.decisions(r)
	p.stalls(r)
	p.axis(r)
	p.list(r)
	p.Height += lineHeight
	p.text("name", "Limits of a replay")
	for _, n := range r.Limits {
		p.text("quiet", wrap(n)...)
	}
	p.Desc = strings.Join(desc, ". ")
	p.Height += 12
	return p
}

// text appends lines below.
func (p *plot) text(class string, lines ...string) {
	for _, l := range lines {
		p.Height += lineHeight
		if class == "head" {
			p.Height += 4
		}
		p.Texts = append(p.Texts, plotText{class, "2%", p.Height, l})
	}
}

func (p *plot) legend() {
	p.Height += 6
	for i, k := range []plotKey{
		{Line: true, Class: "thick", Text: "hard rule · full"},
		{Line: true, Class: "at-hard", Text: "hard threshold"},
		{Class: "hard", Text: "level hard"},
		{Line: true, Class: "thin", Text: "soft rule · some"},
		{Line: true, Class: "at-soft", Text: "soft threshold"},
		{Class: "soft", Text: "level soft"},
		{Class: "gap", Text: "not observed"},
	} {
		k.X, k.Y = []string{"2%", "37%", "69%"}[i%3], p.Height+i/3*18
		p.Keys = append(p.Keys, k)
	}
	p.Height += 52
}

// shownDecisions omits the end of pressure, which the level shows.
func (r *Report) shownDecisions() []*Decision {
	var list []*Decision
	for i := range r.Decisions {
		if r.Decisions[i].Code != evict.CodeEnded {
			list = append(list, &r.Decisions[i])
		}
	}
	return list
}

// x is an offset in thousandths of the width.
func (r *Report) x(offset float64) float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return 1000 * offset / r.Seconds
}

// nearest are the scopes with the longest time at a level or closest to one, in
// the report's order, and the number of the others.
func (r *Report) nearest() (shown []*Scope, more int) {
	var all []*Scope
	for i := range r.Scopes {
		all = append(all, &r.Scopes[i])
	}
	if len(all) <= stripsShown {
		return all, 0
	}
	slices.SortStableFunc(all, func(a, b *Scope) int {
		x, y := a.nearness(), b.nearness()
		return slices.Compare(y[:], x[:])
	})
	some := map[*Scope]bool{}
	for _, s := range all[:stripsShown] {
		some[s] = true
	}
	for i := range r.Scopes {
		if some[&r.Scopes[i]] {
			shown = append(shown, &r.Scopes[i])
		}
	}
	return shown, len(all) - stripsShown
}
