package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// headerLines are the headline, the mode and what was not judged. The values are old if
// no newer ones come: they are no all-clear.
func headerLines(s *view.State, width int, old bool) []line {
	text, level := s.Headline()
	clock := s.Snapshot.Time.UTC().Format("15:04:05 UTC")
	style := headStyle(s, level)
	if old && style == green {
		style = bold
	}
	left := line{{"Plimsoll  ", dim}, {s.Agent.Node, bold}, {"  ", plain}, {text, style}}
	if space := width - left.columns() - len(clock); space > 1 {
		left = append(left, span{strings.Repeat(" ", space) + clock, dim})
	}
	facts := " · up " + view.Age(s.Age(s.Agent.Started)) + " · last sample took " + view.Seconds(s.Agent.TickDurationSeconds)
	if s.Agent.TicksMissed > 0 {
		facts += " · " + view.Count(s.Agent.TicksMissed) + " samples missed"
	}
	return append([]line{left, {{s.ModeText(), modeStyle(s)}, {facts, dim}}}, notJudgedLines(s)...)
}

// notJudgedShown lines in a frame; the page shows more, the API all.
const notJudgedShown = 2

// notJudgedLines show what the headline does not cover, with the reasons.
func notJudgedLines(s *view.State) (lines []line) {
	list := s.UnjudgedText()
	for i, text := range list[:min(notJudgedShown, len(list))] {
		if more := len(list) - notJudgedShown; i == notJudgedShown-1 && more > 0 {
			text = fmt.Sprintf("%d more · ", more) + text
		}
		lines = append(lines, line{{"not judged: ", bold}, {text, plain}})
	}
	return lines
}

// modeStyle highlights what keeps an agent in a cluster from evicting.
func modeStyle(s *view.State) style {
	if c := s.Cluster; c != nil && c.Held() {
		return yellow
	}
	return dim
}

// headStyle does not show none as healthy while measurements are missing.
func headStyle(s *view.State, l plugins.Level) style {
	if l == plugins.None && !s.AllClear() {
		return bold
	}
	return levelStyle(l)
}

func verdictStyle(v plugins.Verdict) style {
	if v.NotJudged() != "" {
		return bold
	}
	return levelStyle(v.Level)
}

// candidatesShown in a frame; the page shows more, the API all.
const candidatesShown = 3

// verdictLines are the verdicts with their candidates, and the last eviction.
func verdictLines(s *view.State) (lines []line) {
	calm := calmScopes(s.Levels.Verdicts)
	for _, v := range s.Levels.Verdicts {
		if slices.ContainsFunc(calm, func(c plugins.Verdict) bool { return c.Plugin == v.Plugin && c.Scope == v.Scope }) {
			continue
		}
		head := line{
			{pluginName(v), bold},
			{" ", plain},
			{v.Level.String(), verdictStyle(v)},
			{" for " + view.Age(s.Age(v.Since)), plain},
			{"  " + view.Optional(v.Observed, func(o float64) string { return view.Quantity(o, v.Unit) }), plain},
		}
		if t, ok := v.Threshold.Get(); ok {
			head = append(head, span{"  " + gauge(v, 20) + "  ", verdictStyle(v)}, span{"threshold " + v.Operator + " " + view.Quantity(t, v.Unit), dim})
		}
		lines = append(append(lines, head, line{{"  " + v.Reason, plain}}), candidateLines(v.Candidates)...)
	}
	lines = append(lines, calmLines(calm)...)
	if e := s.LastEviction; e != nil {
		lines = append(lines, line{{"last eviction, " + view.Age(s.Age(e.Time)) + " ago: ", dim}, {e.Text(), plain}})
	}
	return lines
}

// pluginName of a plugin with its scope, if that is not the node.
func pluginName(v plugins.Verdict) string {
	if v.Scope == "" || v.Scope == "node" {
		return v.Plugin
	}
	return v.Plugin + " " + v.Scope
}

// verdictsShown in full where most verdicts are about calm devices.
const verdictsShown = 3

// calmScopes are the verdicts about devices below their thresholds, and of rules that
// only report, where there are many.
func calmScopes(list []plugins.Verdict) []plugins.Verdict {
	if len(list) <= verdictsShown {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(v plugins.Verdict) bool {
		return v.Level > plugins.None || v.Absent != "" || pluginName(v) == v.Plugin && !v.ReportOnly
	})
}

// calmLines are a line for each plugin.
func calmLines(list []plugins.Verdict) (lines []line) {
	for i, v := range list {
		value := "  " + v.Scope + " " + view.Optional(v.Observed, func(o float64) string { return view.Quantity(o, v.Unit) })
		if i == 0 || list[i-1].Plugin != v.Plugin {
			lines = append(lines, line{{v.Plugin, bold}, {" ", plain}, {v.Level.String(), verdictStyle(v)}})
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], span{value, plain})
	}
	return lines
}

func candidateLines(list []plugins.Candidate) (lines []line) {
	lead := "  candidates:  "
	for _, c := range list[:min(candidatesShown, len(list))] {
		lines = append(lines, line{{lead, dim}, {c.Name, bold}, {"  " + c.Why, plain}})
		lead = "               "
	}
	return lines
}

// gauge draws the observed value against the threshold: [####|    ].
func gauge(v plugins.Verdict, width int) string {
	o, ok := v.Observed.Get()
	t, _ := v.Threshold.Get() // gauge is called only with a threshold
	if !ok || t <= 0 || o < 0 {
		return "[" + strings.Repeat(" ", width) + "]"
	}
	top := max(2*t, 1.1*o)
	if v.Unit == "ratio" {
		top = min(1, top)
	}
	at := func(x float64) int { return int(min(1, x/top)*float64(width) + 0.5) }
	cells := []rune(strings.Repeat("#", at(o)) + strings.Repeat(" ", width-at(o)))
	cells[min(width-1, at(t))] = '|'
	return "[" + string(cells) + "]"
}

// sparkWidth is the most columns of a plot: five seconds each.
const sparkWidth = 24

// pressureLines are the stalls of the node and its other values.
func pressureLines(s *view.State, width int) []line {
	n, trend := s.Snapshot, s.Snapshot.Trend()
	name := "PRESSURE"
	if n.WindowSeconds > 0 {
		name += " " + view.Seconds(n.WindowSeconds)
	}
	stalls := table{head: []string{name, "some", "full"}}
	add := func(name string, r snapshot.StallRatio, of func(snapshot.TrendPoint) snapshot.StallRatio) {
		l := row{cells: []cell{text(name), value(r.Some, view.Ratio), value(r.Full, view.Ratio)}}
		if plot := spark(trend, min(sparkWidth, width-36), of); plot != "" {
			l.note = line{{"  " + plot, dim}}
			stalls.note = "  some, the last 2 min"
		}
		stalls.rows = append(stalls.rows, l)
	}
	add("cpu", n.Pressure.CPU, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.CPU })
	add("memory", n.Pressure.Memory, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.Memory })
	add("io", n.Pressure.IO, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.IO })
	return append(stalls.lines(min(width, 34)), memoryLine(n), restLine(n))
}

func memoryLine(n *snapshot.Snapshot) line {
	m := n.Memory
	left := span{}
	if e, shrinks := n.Exhaustion.Memory().Get(); shrinks {
		left = span{", none in about " + e.About(), yellow}
	}
	return line{
		{"memory ", dim},
		{view.Optional(m.AvailableBytes, size) + " of " + view.Optional(m.TotalBytes, size) + " available", plain},
		left,
		{" · scans " + view.Optional(m.ScansPerSecond, perSecond), plain},
		{" · refaults " + view.Optional(m.RefaultsPerSecond, perSecond), plain},
		{" · OOM " + view.Optional(m.MemoryRates.OOMKills, view.Count), plain},
	}
}

// restLine is the other values of the node, the least important ones last: they
// are cut first.
func restLine(n *snapshot.Snapshot) line {
	m := n.Memory
	swap := "none"
	if total, ok := m.SwapTotalBytes.Get(); !ok || total > 0 {
		swap = "free " + view.Optional(m.SwapFreeBytes, size) + ", in " + view.Optional(m.SwapInsPerSecond, perSecond)
	}
	return line{
		{"cpu ", dim},
		{"busy " + view.Optional(n.CPU.BusyRatio, view.Ratio) + " · ", plain},
		{"swap ", dim},
		{swap + " · ", plain},
		{"tcp ", dim},
		{"retransmits " + view.Optional(n.Network.TCPRetransmitRatio, view.Ratio), plain},
		{" · listen drops " + view.Optional(n.Network.ListenDropsPerSecond, perSecond), plain},
	}
}

func perSecond(v float64) string { return view.Number(v) + "/s" }

// spark is PSI some of the last two minutes, oldest first, one character for
// the highest value of a few seconds, full scale 100 %. Unknown is a space.
func spark(trend []snapshot.TrendPoint, width int, of func(snapshot.TrendPoint) snapshot.StallRatio) string {
	const seconds = 120
	const signs = "▁▂▃▄▅▆▇█"
	if len(trend) == 0 || width < 4 {
		return ""
	}
	highest := make([]float64, width)
	for i := range highest {
		highest[i] = -1
	}
	for _, p := range trend {
		if v, ok := of(p).Some.Get(); ok && p.AgoSeconds < seconds {
			at := min(width-1, int((seconds-p.AgoSeconds)/seconds*float64(width)))
			highest[at] = max(highest[at], v)
		}
	}
	var b strings.Builder
	for _, v := range highest {
		if v < 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune([]rune(signs)[min(7, int(v*8))])
	}
	return b.String()
}
