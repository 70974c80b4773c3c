package replay

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func (s *Scope) nearness() [3]float64 {
	near := 0.0
	for _, e := range []*Extreme{s.Soft, s.Hard} {
		if e != nil && e.Threshold > 0 && e.Observed > 0 {
			ratio := e.Observed / e.Threshold
			if exceeds(s.Operator, 0, 1) { // less is worse
				ratio = 1 / ratio
			}
			near = max(near, ratio)
		}
	}
	return [3]float64{s.HardSeconds, s.SoftSeconds, near}
}

// strip is the comparison of a plugin over time.
func (p *plot) strip(r *Report, s *Scope) {
	p.Height += 8
	p.text("name", wrap(s.title()+": "+s.timeAtLevels())...)
	p.text("quiet", wrap(s.thresholdsText())...)
	if text := s.unjudged(); text != "" {
		p.text("quiet", wrap(text)...)
	}
	top := s.scale()
	a := area{Y: p.Height + 6, H: stripHeight, Label: view.Printable(s.text(r.at))}
	a.gaps(r)
	at := func(v float64) float64 { return stripHeight - 1 - (stripHeight-4)*v/top }
	for _, l := range []struct {
		class string
		of    func(Rules) snapshot.Opt[float64]
	}{
		{"at-soft", func(v Rules) snapshot.Opt[float64] { return v.Soft.Threshold }},
		{"at-hard", func(v Rules) snapshot.Opt[float64] { return v.Hard.Threshold }},
		{"thin", func(v Rules) snapshot.Opt[float64] { return v.Soft.Observed }},
		{"thick", func(v Rules) snapshot.Opt[float64] { return v.Hard.Observed }},
	} {
		a.Lines = append(a.Lines, lines(r, s.Points, l.class, at, l.of)...)
	}
	p.tags(s, a.Y, at)
	levels := area{Y: a.Y + a.H + 2, H: levelHeight, Label: view.Printable(s.title() + ": level over time")}
	levels.gaps(r)
	levels.Bands = append(levels.Bands, s.bands(r)...)
	a.Bands = append(a.Bands, fullHeight(s.bands(r))...)
	p.Areas = append(p.Areas, a, levels)
	p.Height = levels.Y + levels.H
}

// thresholdsText describes the thresholds and the scale.
func (s *Scope) thresholdsText() string {
	var parts []string
	last := Rules{}
	if n := len(s.Points); n > 0 {
		last = s.Points[n-1].Value
	}
	for _, l := range []struct {
		name string
		is   Comparison
	}{{"soft", last.Soft}, {"hard", last.Hard}} {
		if v, ok := l.is.Threshold.Get(); ok {
			parts = append(parts, l.name+" "+sign(s.Operator)+" "+view.Quantity(v, s.Unit))
		}
	}
	return strings.Join(append(parts, "scale 0 to "+view.Quantity(s.scale(), s.Unit)), " · ")
}

// headroom above the highest value, for the label of its line.
const headroom = 1.2

// scale is the value at the top of a strip.
func (s *Scope) scale() float64 {
	top := 0.0
	for _, p := range s.Points {
		for _, c := range []Comparison{p.Value.Soft, p.Value.Hard} {
			observed, _ := c.Observed.Get()
			threshold, _ := c.Threshold.Get()
			top = max(top, observed, threshold)
		}
	}
	if top <= 0 {
		return 1
	}
	return top * headroom
}

// tags label the threshold lines at their start, unless they are too close
// together.
func (p *plot) tags(s *Scope, y int, at func(float64) float64) {
	if len(s.Points) == 0 {
		return
	}
	first := s.Points[0].Value
	before := -100.0
	for _, l := range []struct {
		name string
		is   Comparison
	}{{"hard", first.Hard}, {"soft", first.Soft}} {
		v, ok := l.is.Threshold.Get()
		if !ok || at(v)-before < 11 && before-at(v) < 11 {
			continue
		}
		before = at(v)
		p.Tags = append(p.Tags, plotText{Y: y + max(10, int(before)-2), Text: l.name})
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
