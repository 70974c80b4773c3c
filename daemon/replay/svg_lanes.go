package replay

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// decisions are marks in a lane of their own; list has their texts.
func (p *plot) decisions(r *Report) {
	list := r.shownDecisions()
	if len(list) == 0 {
		return
	}
	p.Height += 8
	p.text("name", fmt.Sprintf("Decisions of a dry run: %d", len(list)))
	y, before := p.Height+18, -100.0
	for i, d := range list[:min(marksShown, len(list))] {
		x := r.x(d.OffsetSeconds)
		m := mark{X: units(2+96*x/1000) + "%", Y: y, Title: r.at(d.Time) + " " + view.Printable(d.text())}
		if x-before >= 40 { // else the numbers would overlap
			m.Number, before = fmt.Sprint(i+1), x
		}
		p.Marks = append(p.Marks, m)
	}
	p.Areas = append(p.Areas, area{Y: y + 13, H: 2, Label: "decisions over time"})
	p.Height = y + 18
}

func (p *plot) list(r *Report) {
	list := r.shownDecisions()
	if len(list) == 0 {
		return
	}
	p.Height += 8
	p.text("name", "Decisions")
	for i, d := range list[:min(decisionsListed, len(list))] {
		p.text("", wrap(fmt.Sprintf("%d · %s %s", i+1, r.at(d.Time), d.text()))...)
	}
	if more := len(list) - decisionsListed; more > 0 {
		p.text("quiet", fmt.Sprintf("and %d more: see -o table", more))
	}
}

// stalls are lanes of the node's PSI.
func (p *plot) stalls(r *Report) {
	type of = func(snapshot.Ratios) snapshot.Opt[float64]
	for _, l := range []struct {
		name       string
		some, full of
	}{
		{"CPU", func(v snapshot.Ratios) snapshot.Opt[float64] { return v.CPU.Some }, nil},
		{"Memory", func(v snapshot.Ratios) snapshot.Opt[float64] { return v.Memory.Some }, func(v snapshot.Ratios) snapshot.Opt[float64] { return v.Memory.Full }},
		{"IO", func(v snapshot.Ratios) snapshot.Opt[float64] { return v.IO.Some }, func(v snapshot.Ratios) snapshot.Opt[float64] { return v.IO.Full }},
	} {
		highest := snapshot.Opt[float64]{}
		for _, point := range r.Stall {
			highest = larger(highest, l.some(point.Value))
		}
		p.Height += 8
		text := l.name + " stall of the node (some): "
		h, ok := highest.Get()
		if ok {
			text += "up to " + view.Ratio(h) + " of " + view.Age(seconds(r.WindowSeconds))
		} else {
			text += "not measured"
		}
		p.text("", text)
		a := area{Y: p.Height + 5, H: stallHeight, Label: text}
		a.gaps(r)
		top := max(0.05, h)
		at := func(v float64) float64 { return stallHeight - 1 - (stallHeight-3)*v/top }
		a.Lines = lines(r, r.Stall, "thin", at, l.some)
		if l.full != nil {
			a.Lines = append(a.Lines, lines(r, r.Stall, "thick", at, l.full)...)
		}
		p.Areas = append(p.Areas, a)
		p.Height = a.Y + a.H
	}
}

// axis labels times below the last area, with grid lines through all areas.
func (p *plot) axis(r *Report) {
	step := tickStep(r.Seconds)
	layout := "15:04:05"
	if r.Seconds > 24*3600 {
		layout = "01-02 15:04"
	}
	p.Height += 15
	begin := r.Start.Truncate(step)
	if begin.Before(r.Start) {
		begin = begin.Add(step)
	}
	for n := range ticksWanted + 1 {
		t := begin.Add(time.Duration(n) * step)
		x := r.x(t.Sub(r.Start).Seconds())
		if x > 1000 {
			break
		}
		p.tick(x, n, t.UTC().Format(layout))
	}
	p.Height += 4
}

// tick is a time on the axis and its grid line. A narrow viewer shows every
// second one.
func (p *plot) tick(x float64, n int, text string) {
	class := "tick"
	switch {
	case x < 60:
		class += " first"
	case x > 940:
		class += " last"
	}
	if n%2 == 1 {
		class += " wide"
	}
	p.Texts = append(p.Texts, plotText{class, units(2+96*x/1000) + "%", p.Height, text})
	for i := range p.Areas {
		if p.Areas[i].H > levelHeight {
			p.Areas[i].Grid = append(p.Areas[i].Grid, units(x))
		}
	}
}

const ticksWanted = 7

// tickStep is a round duration for about ticksWanted ticks.
func tickStep(whole float64) time.Duration {
	for _, step := range []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour,
	} {
		if whole/step.Seconds() <= ticksWanted {
			return step
		}
	}
	return (seconds(whole/ticksWanted)/(24*time.Hour) + 1) * 24 * time.Hour
}
