package judge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// labelledOnce is the report of the labelled set, judged once for all tests.
var labelledOnce = sync.OnceValues(func() (*Report, error) {
	c, err := config.OpenAgent("", nil)
	if err != nil {
		return nil, err
	}
	list, err := entries(labelledSet)
	if err != nil {
		return nil, err
	}
	all, err := labelledSamples()
	if err != nil {
		return nil, err
	}
	return run(labelledSet, list, func(e entry) (recorded, error) { return all[e.path], nil }, Judged(c))
})

// labelledSamples are the labelled recordings by path, read once for all tests: to decode them takes
// longer than to judge them.
var labelledSamples = sync.OnceValues(func() (map[string]recorded, error) {
	list, err := entries(labelledSet)
	all := map[string]recorded{}
	for _, e := range list {
		what, readErr := e.read(context.Background())
		err, all[e.path] = errors.Join(err, readErr), what
	}
	return all, err
})

func recordingOf(t *testing.T, e entry) recorded {
	t.Helper()
	all, err := labelledSamples()
	require.NoError(t, err)
	require.Contains(t, all, e.path)
	return all[e.path]
}

func labelledReport(t *testing.T) *Report {
	t.Helper()
	r, err := labelledOnce()
	require.NoError(t, err)
	return r
}

// The documents hold what the labelled set gives: what they say is compared with it.
func TestLabelledDocuments(t *testing.T) {
	r := labelledReport(t)
	t.Run("judgement.md", func(t *testing.T) {
		generated(t, "../../docs/judgement.md", judgementPage(r, foreseenDocument(foreseeAll(t))))
	})
	t.Run("kep-5394.md", func(t *testing.T) { generated(t, "../../docs/kep-5394.md", sweepPage(t, r)) })
	t.Run("kep-5394.svg", func(t *testing.T) { generated(t, "../../docs/kep-5394.svg", sweepPlot(r)) })
	t.Run("judge.md", func(t *testing.T) {
		generatedPart(t, "../../docs/judge.md", "figures", figuresText(r))
		generatedPart(t, "../../docs/judge.md", "slow disks", slowText(t, r))
		generatedPart(t, "../../docs/judge.md", "plan", planText(r))
	})
}

const judgementHead = `# How well pressure is judged

Whether pressure is detected correctly shows on workloads with a known cause. These are recordings of machines with real kernels, %d of %d emulated by QEMU, made by the agent (` + "`make labelled`" + `). Each has a label that was written before the recording was judged: what was done, from when to when, and the expected verdict (` + "`e2e/labelled/testdata/*.yaml`" + `). Several judges judge each sample of the same recordings, as [` + "`plimsoll judge`" + `](judge.md) does with any labelled recordings:

- **Plimsoll**: the agent's own rules with their defaults, and ` + "`numa-memory`" + ` and ` + "`rootfs-overuse`" + ` switched on, without the warm-up after a boot, with the baseline of each disk from the label. A level stays latched for half a minute after the pressure ends: until 40 s after the workload it does not count as false.
`

const judgementText = `
*Not judged* is expected where the kernel does not tell: Plimsoll must say so at each sample, and name the workload that waits all the same; a soft level of another judge there is neither right nor false. A level of the CPUs is only reported. Recordings that are marked *held out* are in ` + "`e2e/labelled/testdata/held-out`" + `: no rule was tuned by them. All others were at hand while Plimsoll's rules were made: that it judges them as it should says less than it seems. The rules of other programs are implemented from their documentation in ` + "`judgement/peers`" + `. The PSI averages are computed from the recorded totals as the kernel does. Most judge memory only, and cannot miss anything else. They are meant to kill or evict as late as possible, and a shortage of a minute may be too short for them: the table shows what they would have done, not that they are wrong. Rates with their intervals, times and culprits: [judge.md](judge.md#figures).

This table is written by ` + "`go test ./daemon/judge -run Labelled -update`" + `. The test fails when the table differs, and, of recordings that are not held out, when a hard level of Plimsoll is false or missed or a workload other than the label's culprit is named first. ✗ marks false and missed levels, ✓ correct ones, ○ what is neither. A level of another resource while the whole node stalls for memory does not count as false for any judge.

`

// judgementPage is docs/judgement.md.
func judgementPage(r *Report, foreseen string) string {
	var b strings.Builder
	fmt.Fprintf(&b, judgementHead, r.emulated(), len(r.Recordings))
	shown := writeJudges(&b, r)
	b.WriteString(judgementText + "| recording | expected |")
	for _, i := range shown {
		b.WriteString(" " + r.Judges[i].Name + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(shown)) + "\n")
	for _, one := range r.Recordings {
		name := one.Name
		if one.HeldOut {
			name += " *(held out)*"
		}
		fmt.Fprintf(&b, "| %s | %s |", name, wantText(one.Label))
		for _, i := range shown {
			fmt.Fprintf(&b, " %s |", outcomeText(one.Label, &one.Outcomes[i]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nTimes are seconds from the first sample.\n")
	for _, p := range []string{PartTuned, PartHeldOut} {
		b.WriteString(counts(r, p, shown))
	}
	b.WriteString(foreseen + "\n## What was done\n\n| recording | class | workload ran | what it did | reason for the expected verdict |\n|---|---|---|---|---|\n")
	for _, one := range r.Recordings {
		fmt.Fprintf(&b, "| %s | %s | %.0f–%.0f s of %.0f | %s | %s |\n", one.Name, one.Class, one.Load.From, one.Load.To, one.Seconds, one.Did, one.Why)
	}
	return b.String() + "\n" + machines(r)
}

// writeJudges lists the peers, and returns which judges have a column.
func writeJudges(b *strings.Builder, r *Report) (shown []int) {
	for i, j := range r.Judges {
		lacks := r.lacksEverywhere(i)
		if lacks == "" {
			shown = append(shown, i)
		}
		if i == 0 {
			continue // ours is told before
		}
		fmt.Fprintf(b, "- **%s**: %s.", j.Name, j.Source)
		if lacks != "" {
			fmt.Fprintf(b, " Not judged here: no recording has %s.", lacks)
		}
		b.WriteString("\n")
	}
	return shown
}

// lacksEverywhere is what no recording has for a judge; empty: some do. What ours lacks too
// is a hole of one recording, and tells nothing of the others.
func (r *Report) lacksEverywhere(judge int) (lacks string) {
	for _, one := range r.Recordings {
		switch l := one.Outcomes[judge].Lacks; {
		case l == "":
			return ""
		case lacks == "" || l != one.Outcomes[0].Lacks:
			lacks = l
		}
	}
	return lacks
}

// machines and what was recorded on each.
func machines(r *Report) string {
	of := map[string][]string{}
	for _, one := range r.Recordings {
		of[one.Machine] = append(of[one.Machine], one.Name)
	}
	var b strings.Builder
	for _, m := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "- %s: %s\n", m, strings.Join(of[m], ", "))
	}
	return b.String()
}

func wantText(l judgement.Label) string {
	if l.Healthy() {
		return "nothing"
	}
	var parts []string
	for _, n := range l.NotJudged {
		parts = append(parts, fmt.Sprintf("%s %s not judged %.0f–%.0f s, sufferer named", n.Resource, n.Scope, n.From, n.To))
	}
	for _, w := range l.Want {
		text := w.String()
		switch {
		case w.Presser != "":
			text += ", presser shown, no candidate named"
		case w.AtMost && w.NoCulprit:
			text += " at most, no culprit named"
		case w.NoCulprit:
			text += ", no culprit named"
		case w.Culprit != "":
			text += ", presser named"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// outcomeText is the levels of a judge, with the spells of one scope and level merged.
func outcomeText(l judgement.Label, o *judgement.Outcome) string {
	if o.Lacks != "" {
		return "not judged: lacks " + o.Lacks
	}
	var parts []string
	for i, s := range o.Spells {
		if !slices.ContainsFunc(o.Spells[:i], func(before judgement.Spell) bool { return before.Alarm == s.Alarm }) {
			parts = append(parts, spellsOf(l, o, s))
		}
	}
	for _, d := range o.Expected {
		if d.Met {
			continue
		}
		text := fmt.Sprintf("✗ %s missed", strings.TrimSpace(string(d.Want.Resource)+" "+d.Want.Scope))
		if o.Near != "" {
			text += ": " + o.Near
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, "; ")
}

// spellsOf is the first spell of its kind until the last ends, and how many they are.
func spellsOf(l judgement.Label, o *judgement.Outcome, s judgement.Spell) string {
	same := func(b judgement.Spell) bool { return b.Alarm == s.Alarm }
	n := 0
	mark := "○"
	for _, b := range o.Spells {
		if same(b) {
			n, s.To = n+1, b.To
		}
	}
	switch {
	case slices.ContainsFunc(slices.Concat(o.FalseHard, o.FalseSoft), same):
		mark = "✗"
	case l.Expects(s):
		mark = "✓"
	}
	text := mark + " " + s.String()
	if n > 1 {
		text += fmt.Sprintf(" in %d parts", n)
	}
	return text
}

// counts is a table of how often each judge was wrong in one part of the set.
func counts(r *Report, part string, shown []int) string {
	var list []Recording
	for _, one := range r.Recordings {
		if one.HeldOut == (part == PartHeldOut) {
			list = append(list, one)
		}
	}
	var b strings.Builder
	if part == PartHeldOut {
		b.WriteString("\n## Recordings that are held out\n")
	}
	if len(list) == 0 {
		return b.String() + "\nNone yet. What a rule was tuned by cannot show how it judges what it has not seen: [what is missing](judge.md#what-recordings-are-missing).\n"
	}
	b.WriteString("\n| recordings with |")
	for _, i := range shown {
		b.WriteString(" " + r.Judges[i].Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(shown)) + "\n")
	for _, c := range []struct {
		what string
		of   func(*judgement.Outcome) bool
	}{
		{"a false hard level (a pod evicted in vain)", func(o *judgement.Outcome) bool { return len(o.FalseHard) > 0 }},
		{"a false soft level or alarm", func(o *judgement.Outcome) bool { return len(o.FalseSoft) > 0 }},
		{"a missed hard level", func(o *judgement.Outcome) bool { return missed(o, plugins.Hard) }},
		{"a missed soft level", func(o *judgement.Outcome) bool { return missed(o, plugins.Soft) }},
	} {
		fmt.Fprintf(&b, "| %s |", c.what)
		for _, i := range shown {
			n, judged := 0, 0
			for k := range list {
				n, judged = n+count(c.of(&list[k].Outcomes[i])), judged+count(list[k].Outcomes[i].Lacks == "")
			}
			fmt.Fprintf(&b, " %d of %d |", n, judged)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func missed(o *judgement.Outcome, level plugins.Level) bool {
	return slices.ContainsFunc(o.Expected, func(d judgement.Detection) bool { return !d.Met && d.Want.Level == level })
}

// generatedPart compares the part of a document between two comments with what it is
// generated from, or writes it.
func generatedPart(t *testing.T, path, name, got string) {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	text := read(t, path)
	before, rest, found := strings.Cut(text, begin)
	require.True(t, found, "%s has no part %s", path, name)
	was, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s: the part %s has no end", path, name)
	if *update {
		write(t, path, before+begin+got+end+after)
		return
	}
	assert.Equal(t, was, got)
}

// figuresText is what the program prints of the labelled set, as far as it is about all
// of a part.
func figuresText(r *Report) string {
	var b strings.Builder
	b.WriteString("```\n")
	fmt.Fprintf(&b, "%s: %s\n", strings.TrimPrefix(r.Directory, "../../"), r.headline())
	for i := range r.Parts {
		p := r.Parts[i]
		p.Classes = nil
		p.write(&b)
	}
	b.WriteString("```\n")
	return b.String()
}
