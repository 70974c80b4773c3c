package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func (f *frame) header(s *view.State) {
	text, level := s.Headline()
	clock := s.Snapshot.Time.UTC().Format("15:04:05 UTC")
	style := headStyle(s, level)
	if f.old && style == green {
		style = bold
	}
	left := line{{"Plimsoll  ", dim}, {s.Agent.Node, bold}, {"  ", plain}, {text, style}}
	used := 0
	for _, p := range left {
		used += columns(p.text)
	}
	if space := f.width - used - len(clock); space > 1 {
		left = append(left, span{strings.Repeat(" ", space) + clock, dim})
	}
	facts := " · up " + view.Age(s.Age(s.Agent.Started)) + " · last sample took " + view.Seconds(s.Agent.TickDurationSeconds)
	if s.Agent.TicksMissed > 0 {
		facts += " · " + view.Count(s.Agent.TicksMissed) + " samples missed"
	}
	f.add(left, line{{s.ModeText(), modeStyle(s)}, {facts, dim}})
	f.notJudged(s)
	f.gap()
}

// notJudgedShown lines in a frame; the page shows more, the API all.
const notJudgedShown = 2

// notJudged shows what the headline does not cover, with the reasons.
func (f *frame) notJudged(s *view.State) {
	list := s.UnjudgedText()
	for i, text := range list[:min(notJudgedShown, len(list))] {
		if more := len(list) - notJudgedShown; i == notJudgedShown-1 && more > 0 {
			text = fmt.Sprintf("%d more · ", more) + text
		}
		f.add(line{{"not judged: ", bold}, {text, plain}})
	}
}

// modeStyle highlights what keeps an agent in a cluster from evicting.
func modeStyle(s *view.State) style {
	if c := s.Cluster; c != nil && (c.DryRun || !c.PodsSynced || !c.StaleSince.IsZero()) {
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
	if v.Level == plugins.None && v.Absent != "" {
		return bold
	}
	return levelStyle(v.Level)
}

// candidatesShown in a frame; the page shows more, the API all.
const candidatesShown = 3

func (f *frame) verdicts(s *view.State) {
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
		f.add(head, line{{"  " + v.Reason, plain}})
		f.candidates(v.Candidates)
	}
	f.calm(calm)
	if e := s.LastEviction; e != nil {
		f.add(line{{"last eviction, " + view.Age(s.Age(e.Time)) + " ago: ", dim}, {e.Text(), plain}})
	}
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

// calm writes a line for each plugin.
func (f *frame) calm(list []plugins.Verdict) {
	for i, v := range list {
		value := "  " + v.Scope + " " + view.Optional(v.Observed, func(o float64) string { return view.Quantity(o, v.Unit) })
		if i == 0 || list[i-1].Plugin != v.Plugin {
			f.add(line{{v.Plugin, bold}, {" ", plain}, {v.Level.String(), verdictStyle(v)}})
		}
		last := len(f.lines) - 1
		f.lines[last] = append(f.lines[last], span{value, plain})
	}
}

func (f *frame) candidates(list []plugins.Candidate) {
	lead := "  candidates:  "
	for _, c := range list[:min(candidatesShown, len(list))] {
		f.add(line{{lead, dim}, {c.Name, bold}, {"  " + c.Why, plain}})
		lead = "               "
	}
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

func (f *frame) pressure(s *view.State) {
	n, trend := s.Snapshot, s.Snapshot.Trend()
	name := "PRESSURE"
	if n.WindowSeconds > 0 {
		name += " " + view.Seconds(n.WindowSeconds)
	}
	stalls := table{head: []string{name, "some", "full"}}
	add := func(name string, r snapshot.StallRatio, of func(snapshot.TrendPoint) snapshot.StallRatio) {
		l := row{cells: []cell{text(name), value(r.Some, view.Ratio), value(r.Full, view.Ratio)}}
		if plot := spark(trend, min(sparkWidth, f.width-36), of); plot != "" {
			l.note = line{{"  " + plot, dim}}
			stalls.note = "  some, the last 2 min"
		}
		stalls.rows = append(stalls.rows, l)
	}
	add("cpu", n.Pressure.CPU, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.CPU })
	add("memory", n.Pressure.Memory, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.Memory })
	add("io", n.Pressure.IO, func(p snapshot.TrendPoint) snapshot.StallRatio { return p.Stall.IO })
	f.add(stalls.lines(min(f.width, 34))...)
	f.add(memoryLine(n), restLine(n))
}

func memoryLine(n *snapshot.Snapshot) line {
	m := n.Memory
	return line{
		{"memory ", dim},
		{view.Optional(m.AvailableBytes, size) + " of " + view.Optional(m.TotalBytes, size) + " available", plain},
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
