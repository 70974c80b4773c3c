package web

import (
	"strconv"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

type pageVerdict struct {
	Title, Plugin, Scope, Level, State, Condition, Reason, Absent string
	Since, At                                                     string // a duration, and a time
	Observed                                                      cell
	Device                                                        string // of its scope as it is, for a link; empty: none
	Limit                                                         string // "≥ 10.0 %"
	Gauge                                                         *levelGauge
	Advice                                                        *view.Advice
	Open                                                          bool
	Evidence                                                      []evidenceRow
	Candidates                                                    []candidateRow
	MoreCandidates                                                int
}

type evidenceRow struct {
	Rule, What, Limit string
	Observed          cell
	Met               string
}

type candidateRow struct{ ID, Name, Where, Relief, Why string }

func pageVerdicts(s *view.State, open bool) []pageVerdict {
	list := make([]pageVerdict, 0, len(s.Levels.Verdicts))
	for i := range s.Levels.Verdicts {
		list = append(list, newPageVerdict(s, &s.Levels.Verdicts[i], open))
	}
	return list
}

func newPageVerdict(s *view.State, v *plugins.Verdict, open bool) pageVerdict {
	p := pageVerdict{
		Title: view.Title(*v), Plugin: view.Printable(v.Plugin), Level: verdictClass(*v), State: view.LevelText(*v), Since: view.Age(s.Age(v.Since)), At: view.Stamp(v.Since), Scope: scope(*v),
		Condition: view.Printable(v.Condition), Reason: view.Printable(v.Reason), Absent: view.Printable(v.Absent),
		Observed: observedCell(v.Observed, v.Unit, v.Absent), Gauge: newGauge(v), Open: open,
	}
	if p.Scope != "" && (v.Resource == plugins.Disk || v.Resource == plugins.NetworkIO) {
		p.Device = v.Scope
	}
	if t, ok := v.Threshold.Get(); ok {
		p.Limit = limit(v.Operator, t, v.Unit)
	}
	if a, some := view.AdviceOf(s, v); some {
		p.Advice = &a
	}
	for _, e := range v.Evidence {
		p.Evidence = append(p.Evidence, newEvidence(e))
	}
	shown := v.Candidates[:min(candidatesShown, len(v.Candidates))]
	p.MoreCandidates = len(v.Candidates) - len(shown)
	for _, c := range shown {
		p.Candidates = append(p.Candidates, candidate(c))
	}
	return p
}

// verdictsShown in full if there are more.
const verdictsShown = 4

// separateCalm separates many verdicts into those that are met, lack measurements or
// are about the node, and the rest: a node has dozens of disks.
func separateCalm(list []pageVerdict) (shown, calm []pageVerdict) {
	if len(list) <= verdictsShown {
		return list, nil
	}
	for _, v := range list {
		if v.Level == plugins.None.String() && v.Scope != "" {
			calm = append(calm, v)
		} else {
			shown = append(shown, v)
		}
	}
	return shown, calm
}

// scope of a verdict, empty for the node.
func scope(v plugins.Verdict) string {
	if v.Scope == "node" {
		return ""
	}
	return view.Printable(v.Scope)
}

func newEvidence(e plugins.Evidence) evidenceRow {
	row := evidenceRow{
		Rule: e.Rule.String(), What: view.Printable(e.What), Limit: limit(e.Operator, e.Threshold, e.Unit),
		Observed: observedCell(e.Observed, e.Unit, e.Absent), Met: "not met",
	}
	switch {
	case e.Met:
		row.Met = "met"
	case e.Observed.IsZero():
		row.Met = "unknown"
	}
	return row
}

func candidate(c plugins.Candidate) candidateRow {
	return candidateRow{
		ID: c.Cgroup, Name: view.Printable(c.Name), Where: view.Printable(c.Cgroup), Relief: view.Quantity(c.Relief, c.Unit), Why: view.Printable(c.Why),
	}
}

func observedCell(o snapshot.Opt[float64], unit, absent string) cell {
	if absent == "" {
		absent = "not measured"
	}
	return cellOf(o, func(v float64) string { return view.Quantity(v, unit) }, snapshot.Absent{"": absent}, "")
}

func limit(operator string, threshold float64, unit string) string {
	sign := map[string]string{">=": "≥", "<=": "≤", ">": ">", "<": "<"}[operator]
	if sign == "" {
		sign = view.Printable(operator)
	}
	return sign + " " + view.Quantity(threshold, unit)
}

// levelGauge is a bar from 0 to 100 %, whose text says what 100 % means. More is worse.
type levelGauge struct {
	Value int // 0 to barWidth
	Text  string
}

const barWidth = 1000

// newGauge is how far an observed value is on its way to its threshold; nil if one of the two
// is absent.
func newGauge(v *plugins.Verdict) *levelGauge {
	share, known := view.TowardsThreshold(v)
	t, _ := v.Threshold.Get() // there is one
	if !known {
		return nil
	}
	if share >= 1 { // far beyond it the bar cannot say how far
		return &levelGauge{barOf(share), "at or beyond the threshold " + limit(v.Operator, t, v.Unit)}
	}
	return &levelGauge{barOf(share), view.Ratio(share) + " of the way to " + limit(v.Operator, t, v.Unit)}
}

// sparkline is a trend over the last two minutes as the points of SVG lines,
// one for each uninterrupted run of measurements.
type sparkline struct {
	Some, Full []string
	Scale      string
	Has        bool
}

const (
	sparkSeconds = 120
	sparkHeight  = 40
)

func newSparkline(trend []snapshot.TrendPoint, of func(snapshot.TrendPoint) snapshot.StallRatio) sparkline {
	highest := 0.0
	for _, p := range trend {
		some, _ := of(p).Some.Get() // absent counts as 0
		highest = max(highest, some)
	}
	scale := sparkScale(highest)
	s := sparkline{Scale: view.Ratio(scale)}
	s.Some = lines(trend, scale, func(p snapshot.TrendPoint) snapshot.Opt[float64] { return of(p).Some })
	s.Full = lines(trend, scale, func(p snapshot.TrendPoint) snapshot.Opt[float64] { return of(p).Full })
	s.Has = len(s.Some)+len(s.Full) > 0
	return s
}

// sparkScale is the end of the scale: one of few steps, so that two views are
// comparable, and named beside the plot.
func sparkScale(highest float64) float64 {
	for _, step := range []float64{0.05, 0.1, 0.25, 0.5} {
		if highest <= step {
			return step
		}
	}
	return 1
}

func lines(trend []snapshot.TrendPoint, scale float64, of func(snapshot.TrendPoint) snapshot.Opt[float64]) []string {
	var out []string
	run := ""
	for _, p := range trend {
		v, ok := of(p).Get()
		switch {
		case p.AgoSeconds > sparkSeconds:
		case ok:
			run += coordinate(sparkSeconds-p.AgoSeconds) + "," + coordinate((1-v/scale)*sparkHeight) + " "
		case run != "":
			out, run = append(out, run), ""
		}
	}
	if run != "" {
		out = append(out, run)
	}
	return out
}

func coordinate(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// candidatesShown of a verdict; the API has all.
const candidatesShown = 20
