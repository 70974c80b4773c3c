package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/e2e/labelled"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

const documentHead = `# How well pressure is judged

How good a judge of pressure is shows on workloads whose truth is known. These are recordings of real machines, made by the agent (` + "`make labelled`" + `). Each has a label that was written before the recording was judged: what was done, from when to when, and what a good judge must say of it (` + "`e2e/labelled/testdata/*.yaml`" + `). Four judges are asked at each sample of the same recordings:

- **Plimsoll**: the agent's own rules with their defaults, without the warm-up after a boot, with the baseline that the label gives for each disk. A level stays latched for half a minute after its pressure ends: until 40 s after the workload it is not counted as false.
- **PSI > 10 %**: avg10 of ` + "`full`" + ` in ` + "`/proc/pressure/memory`" + ` or ` + "`/proc/pressure/io`" + ` is above 10, as in many alerts. It is not the default of any product.
- **systemd-oomd 252** with its defaults, watching the root slice: memory ` + "`full`" + ` avg10 above 60 % for 30 s while pages are reclaimed, or more than 90 % of swap and of memory used ([oomd.conf(5)](https://www.freedesktop.org/software/systemd/man/252/oomd.conf.html)).
- **kubelet**: ` + "`memory.available`" + ` below 100 Mi, checked every 10 s ([node-pressure eviction](https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)). Usage is everything that is not free: a recording does not separate the kernel's own pages from others, so this judge may act a little early.

The other judges are written as simply as their documentation says, in ` + "`daemon/replay/peers_test.go`" + `. The averages of PSI are computed from the recorded totals as the kernel computes them. The last two judge memory alone, so only memory counts as missed for them. They are made to act as late as possible, and a shortage of a minute may be too short for them: the table shows what they would have done, not that it would be wrong.

This table is written by ` + "`go test ./daemon/replay -run Labelled -update`" + `; the test fails when the table differs, when one of our hard levels is false, when one is missed, or when another workload than the label's culprit is named first. ✗ marks what is false or missed, ✓ what is not. A level of another resource while a node stands still is not counted as false, for any judge.

| recording | what a good judge says | Plimsoll | PSI > 10 % | systemd-oomd | kubelet |
|---|---|---|---|---|---|
`

// document is docs/judgement.md.
func document(rows []row) string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.label.Name, wantText(r.label))
		for _, s := range r.by {
			fmt.Fprintf(&b, " %s |", s.text())
		}
		b.WriteString("\n")
	}
	b.WriteString("\nTimes are seconds from the first sample.\n\n" + counts(rows) + "\n## What was done\n\n| recording | load | done | why a good judge says so |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %.0f–%.0f s of %.0f | %s | %s |\n", r.label.Name, r.label.Load.From, r.label.Load.To, r.seconds, r.label.Did, r.label.Why)
	}
	return b.String() + "\n" + machines(rows)
}

// machines and what was recorded on each.
func machines(rows []row) string {
	of := map[string][]string{}
	for _, r := range rows {
		of[r.label.Machine] = append(of[r.label.Machine], r.label.Name)
	}
	var b strings.Builder
	for _, m := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "- %s: %s\n", m, strings.Join(of[m], ", "))
	}
	return b.String()
}

func wantText(l labelled.Label) string {
	if l.Healthy() {
		return "nothing"
	}
	var parts []string
	for _, w := range l.Want {
		text := fmt.Sprintf("%s %s %.0f–%.0f s", strings.TrimSpace(string(w.Resource)+" "+w.Scope), w.Level, w.From, w.To)
		switch {
		case w.AtMost && w.Nobody:
			text += " at most, naming nobody"
		case w.Nobody:
			text += ", naming nobody"
		case w.Culprit != "":
			text += ", naming the presser"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// text is what a judge said, spells of one scope and level taken together.
func (s said) text() string {
	var parts []string
	for i, a := range s.spells {
		first := true
		for _, b := range s.spells[:i] {
			first = first && b.alarm != a.alarm
		}
		if first {
			parts = append(parts, s.spellsOf(a))
		}
	}
	for _, w := range s.missed {
		text := fmt.Sprintf("✗ %s is missed", strings.TrimSpace(string(w.Resource)+" "+w.Scope))
		if s.near != "" {
			text += ": " + s.near
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, "; ")
}

// spellsOf is the first spell of its kind, and how many more there are.
func (s said) spellsOf(a spell) string {
	more, last, bad := -1, a.To, false
	for _, b := range s.spells {
		if b.alarm == a.alarm {
			more, last = more+1, b.To
		}
	}
	for _, b := range append(append([]spell{}, s.falseHard...), s.falseSoft...) {
		bad = bad || b.alarm == a.alarm
	}
	a.To = last
	text := a.String()
	if more > 0 {
		text += fmt.Sprintf(" in %d parts", more+1)
	}
	if bad {
		return "✗ " + text
	}
	return "✓ " + text
}

// counts is a table of how often each judge was wrong.
func counts(rows []row) string {
	var b strings.Builder
	b.WriteString("| recordings with | Plimsoll | PSI > 10 % | systemd-oomd | kubelet |\n|---|---|---|---|---|\n")
	for _, c := range []struct {
		what string
		of   func(said) bool
	}{
		{"a false hard level: somebody would go for nothing", func(s said) bool { return len(s.falseHard) > 0 }},
		{"a false soft level or alarm", func(s said) bool { return len(s.falseSoft) > 0 }},
		{"a hard level that was missed", func(s said) bool { return missed(s, plugins.Hard) }},
		{"a soft level that was missed", func(s said) bool { return missed(s, plugins.Soft) }},
	} {
		fmt.Fprintf(&b, "| %s |", c.what)
		for i := range rows[0].by {
			n := 0
			for _, r := range rows {
				if c.of(r.by[i]) {
					n++
				}
			}
			fmt.Fprintf(&b, " %d of %d |", n, len(rows))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func missed(s said, level plugins.Level) bool {
	for _, w := range s.missed {
		if w.Level == level {
			return true
		}
	}
	return false
}
