package judge

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/judgement/peers"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

const sweepHead = `# KEP-5394 with each threshold

[KEP-5394](https://www.kubernetes.dev/resources/keps/5394/) (PSI based node conditions) sets a node condition, and with it a taint NoSchedule, while avg60 *and* avg10 of the node's PSI are at or above a threshold, and clears it when avg60 falls below. Its alpha criteria ask for experiments that decide the threshold. This is one: the rule with each threshold, over *full* and *some*, on the [labelled recordings](judgement.md). A prototype of it ([kubernetes#137357](https://github.com/kubernetes/kubernetes/pull/137357), closed) uses *full* and 90 %%, and takes the System… conditions of the node's PSI, as this page does; the KEP leaves open whether they are of the system, of kubepods or of the node.

**Reached** is how many of the expected levels (a node, or one of its NUMA nodes, short of memory; a service that waits for a disk because of another workload) had the condition; our own rules must be at *hard* where that is expected. **False** is how many of the recordings without such pressure had it: healthy busy machines, above all. Intervals are 95 %%, by Clopper and Pearson. **Time to detect** is the median from the truth of the label to the condition; what never came counts as later than all others.

![Curves: the share of expected levels with the condition over the share of other recordings with it](kep-5394.svg)

## What it shows

%s
- **Why**: PSI of the node does not tell a workload at its own memory limit from a node that is short, nor a disk that is slow or that one backup uses alone from one that others wait for. With *full* ≥ 10 %% the condition is false in: %s.
%s- **A high threshold sees nothing of a minute.** After a minute in which tasks stall for half of the time avg60 is 32 %%.

## What it does not show

The recordings are few, so that the intervals are wide, and wider than they say, since some are the same load on another kernel; most loads last one to two minutes, so that a shortage of ten minutes may reach a threshold that these miss; %d of %d are of emulated machines, whose disks are limited; %d have a kernel newer than Linux 6.1, and reclaim at a limit [stalls less since 6.16](https://github.com/kubernetes/kubernetes/pull/141146). A recording has PSI of the node and of each workload, not of the kubepods cgroup: the conditions *Kubepods…ContentionPressure* are not judged. PSI averages are computed from the recorded totals as the kernel does; conditions change every 10 s, with the kubelet's node status.

**Plimsoll's own rules were made with most of these recordings at hand**, KEP-5394's was not: what ours reach here says little of other recordings. By the %d that are [held out](judge.md#what-is-held-out) no rule was tuned; many of them are the same loads on another kernel.

Whether a node should get further pods while one backup has a disk for itself is for the authors to decide. The labels say that it may: no other workload waits there.

`

const sweepFoot = `
This page is written by ` + "`go test ./daemon/judge -run Labelled -update`" + `. ` + "`plimsoll judge`" + ` prints the same table of [any labelled recordings](judge.md).
`

// sweepPage is docs/kep-5394.md.
func sweepPage(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	newer, heldOut := 0, 0
	for i := range r.Recordings {
		newer += count(!kernel("6.1.")(&r.Recordings[i]))
		heldOut += count(r.Recordings[i].HeldOut)
	}
	wrong, late := falseText(t, r)
	fmt.Fprintf(&b, sweepHead, bestText(r), wrong, late, r.emulated(), len(r.Recordings), newer, heldOut)
	for _, resource := range sweptResources() {
		fmt.Fprintf(&b, "## %s\n\n", conditionName(resource))
		for _, line := range []peers.Line{peers.Full, peers.Some} {
			r.writeLine(&b, resource, line)
		}
		for _, p := range r.OurPoints {
			if p.Resource == resource {
				fmt.Fprintf(&b, "Plimsoll's own rules on the same recordings: reached %s, false %s, time to detect %s.\n\n", rateText(p.Met), rateText(p.False), timesText(p.After, "never"))
			}
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n" + sweepFoot
}

// writeLine is the table of one line of PSI.
func (r *Report) writeLine(b *strings.Builder, resource plugins.Resource, line peers.Line) {
	fmt.Fprintf(b, "| %s ≥ | reached | false | time to detect |\n|---|---|---|---|\n", line)
	for _, p := range r.pointsOf(resource, line) {
		fmt.Fprintf(b, "| %g %% | %s | %s | %s |\n", p.Threshold, rateText(p.Met), rateText(p.False), timesText(p.After, "never"))
	}
	b.WriteString("\n")
}

// pointsOf one resource and line, by threshold.
func (r *Report) pointsOf(resource plugins.Resource, line peers.Line) (list []SweepPoint) {
	for _, p := range r.Sweep {
		if p.Resource == resource && p.Line == line {
			list = append(list, p)
		}
	}
	return list
}

func conditionName(r plugins.Resource) string {
	if r == plugins.Memory {
		return "SystemMemoryContentionPressure"
	}
	return "SystemDiskContentionPressure"
}

// bestText says of each resource which threshold reaches all with the fewest false.
func bestText(r *Report) string {
	var parts []string
	for _, resource := range sweptResources() {
		best, clean := r.best(resource)
		switch {
		case best == nil:
			parts = append(parts, fmt.Sprintf("- **Of %s no threshold reaches all expected levels.**", resource))
		case best.False.Count == 0:
			parts = append(parts, fmt.Sprintf("- **Of %s one threshold reaches all expected levels and is never false**: %s.", resource, best.thresholdText()))
		default:
			parts = append(parts, fmt.Sprintf("- **Of %s no threshold reaches all expected levels and is never false.** The best that reaches all %d (%s) is false on %d of %d other recordings; those that are never false reach at most %d of %d.",
				resource, best.Met.Of, best.thresholdText(), best.False.Count, best.False.Of, clean, best.Met.Of))
		}
	}
	return strings.Join(parts, "\n")
}

// best is the threshold that reaches all with the fewest false, and clean how many those
// reach that are never false.
func (r *Report) best(resource plugins.Resource) (best *SweepPoint, clean int) {
	for _, p := range append(r.pointsOf(resource, peers.Full), r.pointsOf(resource, peers.Some)...) {
		if p.False.Count == 0 {
			clean = max(clean, p.Met.Count)
		}
		if p.Met.Count == p.Met.Of && (best == nil || p.False.Count < best.False.Count) {
			best = &p
		}
	}
	return best, clean
}

// falseText names the recordings on which the rule is false at 10 % of full, as the table
// counts them, and is a line of those where what was expected was still on long after the
// load.
func falseText(t *testing.T, r *Report) (wrong, late string) {
	t.Helper()
	rule := peers.KEP5394(10, peers.Full)
	var wrongs, lates []string
	for _, one := range r.Recordings {
		o := outcome(rule, one.Label, recordingOf(t, entry{path: one.File}))
		for _, resource := range sweptResources() {
			name := fmt.Sprintf("%s (%s)", one.Name, resource)
			switch longest := lastOf(o.FalseSoft, resource); {
			case longest == 0:
			case without(one.Label, resource):
				wrongs = append(wrongs, name)
			case longest > one.Load.To+judgement.Leaves:
				lates = append(lates, fmt.Sprintf("%s %.0f s after the load", name, longest-one.Load.To))
			}
		}
	}
	if len(lates) > 0 {
		late = fmt.Sprintf("- **It is cleared late**, since avg60 falls slowly: %s. The tables do not count that as false.\n", strings.Join(lates, ", "))
	}
	return cmp.Or(strings.Join(wrongs, ", "), "no recording"), late
}

// lastOf is when the last spell of a resource ends; 0: it has none.
func lastOf(list []judgement.Spell, of plugins.Resource) (last float64) {
	for _, s := range list {
		if s.Resource == of {
			last = max(last, s.To)
		}
	}
	return last
}

// emulated is how many recordings are of machines that are.
func (r *Report) emulated() (n int) {
	for i := range r.Recordings {
		n += count(isEmulated(&r.Recordings[i]))
	}
	return n
}

func isEmulated(r *Recording) bool { return strings.Contains(r.Machine, "emulated") }

// The panels of the plot, in pixels.
const (
	panel, panelLeft, panelTop, panelGap = 300.0, 56.0, 64.0, 76.0
)

// sweepPlot is docs/kep-5394.svg: for each resource a curve of each line of PSI, and
// our own rules as a point.
func sweepPlot(r *Report) string {
	var b strings.Builder
	width, height := panelLeft+2*panel+panelGap+24, panelTop+panel+76
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="100%%" viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="title desc" lang="en">
<title id="title">KEP-5394 with each threshold</title>
<desc id="desc">%s</desc>
<style>
svg { --bg: #ffffff; --ink: #17222d; --quiet: #52606d; --ground: #eef2f5; --full: #b3261e; --some: #3f6d99; --grid: #c3ccd5; }
@media (prefers-color-scheme: dark) { svg { --bg: #10171e; --ink: #e4eaf0; --quiet: #a3b1be; --ground: #1b2731; --full: #ff9a91; --some: #8fb8df; --grid: #46545f; } }
text { font: 12px/1.3 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--ink); }
.page { fill: var(--bg); } .ground { fill: var(--ground); } .quiet { fill: var(--quiet); } .name { font-weight: 650; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .grid { stroke: var(--grid); }
.full { fill: var(--full); } .some { fill: var(--some); } .tag { font-size: 10px; } .own { fill: var(--ink); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .full.line { stroke: var(--full); } .some.line { stroke: var(--some); stroke-dasharray: 6 4; }
</style>
<rect class="page" width="100%%" height="100%%"/>
<text class="name" x="%.0f" y="20">KEP-5394 with each threshold, and Plimsoll's own rules</text>
`, width, height, descText(r), panelLeft)
	legend(&b)
	for i, resource := range sweptResources() {
		drawPanel(&b, r, resource, panelLeft+float64(i)*(panel+panelGap))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func descText(r *Report) string {
	var parts []string
	for _, p := range append(append([]SweepPoint{}, r.Sweep...), r.OurPoints...) {
		parts = append(parts, fmt.Sprintf("%s %s: reached %d of %d, false %d of %d", p.Resource, p.thresholdText(), p.Met.Count, p.Met.Of, p.False.Count, p.False.Of))
	}
	return strings.Join(parts, ". ")
}

func legend(b *strings.Builder) {
	fmt.Fprintf(b, `<path class="full line" d="M%[1]g 38h24"/><text x="%[2]g" y="42">full</text>
<path class="some line" d="M%[3]g 38h24"/><text x="%[4]g" y="42">some; a dot has its highest threshold in %%</text>
<path class="own" d="M%[5]g 38l6 -6l6 6l-6 6z"/><text x="%[6]g" y="42">Plimsoll</text>
`, panelLeft, panelLeft+30, panelLeft+70, panelLeft+100, panelLeft+370, panelLeft+388)
}

// drawPanel draws the curves of one resource.
func drawPanel(b *strings.Builder, r *Report, resource plugins.Resource, left float64) {
	most := 0.2 // of the axis
	for _, p := range r.Sweep {
		if p.Resource == resource {
			most = max(most, math.Ceil(5*share(p.False))/5)
		}
	}
	at := func(p SweepPoint) (x, y float64) {
		return left + panel*share(p.False)/most, panelTop + panel*(1-share(p.Met))
	}
	fmt.Fprintf(b, "<rect class=\"ground\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n", left, panelTop, panel, panel)
	for i := range 5 {
		at := float64(i) / 4
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%[1]g %[2]gv%[3]gM%[4]g %[5]gh%[3]g\"/>\n", left+panel*at, panelTop, panel, left, panelTop+panel*at)
		fmt.Fprintf(b, "<text class=\"quiet middle\" x=\"%g\" y=\"%g\">%.0f %%</text>\n", left+panel*at, panelTop+panel+16, 100*at*most)
		fmt.Fprintf(b, "<text class=\"quiet end\" x=\"%g\" y=\"%g\">%.0f %%</text>\n", left-6, panelTop+panel*(1-at)+4, 100*at)
	}
	fmt.Fprintf(b, "<text class=\"name middle\" x=\"%g\" y=\"%g\">%s</text>\n", left+panel/2, panelTop+panel+58, conditionName(resource))
	fmt.Fprintf(b, "<text class=\"quiet middle\" x=\"%g\" y=\"%g\">false, of the recordings without such pressure</text>\n", left+panel/2, panelTop+panel+36)
	fmt.Fprintf(b, "<text class=\"quiet middle\" transform=\"translate(%g %g) rotate(-90)\">reached, of the expected levels</text>\n", left-44, panelTop+panel/2)
	for _, line := range []peers.Line{peers.Full, peers.Some} {
		drawCurve(b, r.pointsOf(resource, line), at)
	}
	for i := range r.OurPoints {
		if p := r.OurPoints[i]; p.Resource == resource {
			x, y := at(p)
			fmt.Fprintf(b, "<path class=\"own\" d=\"M%.1f %.1fl6 -6l6 6l-6 6z\"><title>%s</title></path>\n", x-6, y, ourName)
		}
	}
}

// drawCurve draws one line of PSI, with a dot for the thresholds of each place.
func drawCurve(b *strings.Builder, list []SweepPoint, at func(SweepPoint) (x, y float64)) {
	type dot struct {
		x, y float64
		most float64 // threshold
	}
	var dots []dot
	var places []string
	for _, p := range list { // by threshold, so that those of one place follow each other
		x, y := at(p)
		if n := len(dots); n > 0 && dots[n-1].x == x && dots[n-1].y == y {
			dots[n-1].most = p.Threshold
			continue
		}
		dots, places = append(dots, dot{x, y, p.Threshold}), append(places, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	line := list[0].Line
	above := 14.0 // so that both lines can be read where they meet
	if line == peers.Some {
		above = -8
	}
	fmt.Fprintf(b, "<polyline class=\"%s line\" points=\"%s\"/>\n", line, strings.Join(places, " "))
	for _, d := range dots {
		fmt.Fprintf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", line, d.x, d.y)
		if d.y < panelTop+panel { // what reaches nothing is all alike
			fmt.Fprintf(b, "<text class=\"tag %s\" x=\"%.1f\" y=\"%.1f\">%g</text>", line, d.x+4, d.y+above, d.most)
		}
		b.WriteString("\n")
	}
}

// share of a rate; 0 of none.
func share(r judgement.Rate) float64 {
	if r.Of == 0 {
		return 0
	}
	return float64(r.Count) / float64(r.Of)
}

func TestSweepPlot(t *testing.T) {
	r := labelledReport(t)
	d := xml.NewDecoder(strings.NewReader(sweepPlot(r)))
	counts := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "it is XML")
		if start, is := token.(xml.StartElement); is {
			counts[start.Name.Local]++
		}
	}
	assert.Equal(t, 1, counts["svg"])
	assert.Equal(t, 4, counts["polyline"], "two lines in each panel")
	assert.Len(t, r.Sweep, 2*2*len(sweepThresholds()))
	for i := 1; i < len(r.Sweep); i++ {
		a, b := r.Sweep[i-1], r.Sweep[i]
		if a.Resource == b.Resource && a.Line == b.Line {
			assert.GreaterOrEqual(t, a.Met.Count, b.Met.Count, "a higher threshold reaches no more: %+v", b)
			assert.GreaterOrEqual(t, a.False.Count, b.False.Count, "nor is it false more often: %+v", b)
		}
	}
}
