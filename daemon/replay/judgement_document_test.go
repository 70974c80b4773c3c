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

Whether pressure is detected correctly shows on workloads with a known cause. These are recordings of real machines, made by the agent (` + "`make labelled`" + `). Each has a label that was written before the recording was judged: what was done, from when to when, and the expected verdict (` + "`e2e/labelled/testdata/*.yaml`" + `). Four detectors judge each sample of the same recordings:

- **Plimsoll**: the agent's own rules with their defaults, and ` + "`numa-memory`" + ` and ` + "`rootfs-overuse`" + ` switched on, without the warm-up after a boot, with the baseline of each disk from the label. A level stays latched for half a minute after the pressure ends: until 40 s after the workload it does not count as false.
- **PSI > 10 %**: avg10 of ` + "`full`" + ` in ` + "`/proc/pressure/memory`" + ` or ` + "`/proc/pressure/io`" + ` is above 10, as in many alerts. It is no product's default.
- **systemd-oomd 252** with its defaults, watching the root slice: memory ` + "`full`" + ` avg10 above 60 % for 30 s while pages are reclaimed, or more than 90 % of swap and of memory used ([oomd.conf(5)](https://www.freedesktop.org/software/systemd/man/252/oomd.conf.html)).
- **kubelet**: ` + "`memory.available`" + ` below 100 Mi, checked every 10 s ([node-pressure eviction](https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)). Usage is all memory that is not free: a recording does not separate the kernel's own pages, so this detector may trigger a little early.

*Not judged* is expected where the kernel does not tell: Plimsoll must say so at each sample, and name the workload that waits all the same. A level of the CPUs is only reported. Recordings that are marked *held out* were made after the rules: no threshold was chosen by them. The other three are implemented from their documentation in ` + "`daemon/replay/peers_test.go`" + `. The PSI averages are computed from the recorded totals as the kernel does. The last two judge memory only, and cannot miss anything else. They are meant to kill or evict as late as possible, and a shortage of a minute may be too short for them: the table shows what they would have done, not that they are wrong.

This table is written by ` + "`go test ./daemon/replay -run Labelled -update`" + `. The test fails when the table differs, when a hard level of Plimsoll is false or missed, or when a workload other than the label's culprit is named first. ✗ marks false and missed levels, ✓ correct ones. A level of another resource while the whole node stalls does not count as false for any detector.

| recording | expected | Plimsoll | PSI > 10 % | systemd-oomd | kubelet |
|---|---|---|---|---|---|
`

// document is docs/judgement.md.
func document(rows []row) string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, r := range rows {
		name := r.label.Name
		if r.label.HeldOut {
			name += " *(held out)*"
		}
		fmt.Fprintf(&b, "| %s | %s |", name, wantText(r.label))
		for _, s := range r.by {
			fmt.Fprintf(&b, " %s |", s.text())
		}
		b.WriteString("\n")
	}
	b.WriteString("\nTimes are seconds from the first sample.\n\n" + counts(rows) + foreseenDocument(rows) + "\n## What was done\n\n| recording | workload ran | what it did | reason for the expected verdict |\n|---|---|---|---|\n")
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
	for _, n := range l.NotJudged {
		parts = append(parts, fmt.Sprintf("%s %s not judged %.0f–%.0f s, sufferer named", n.Resource, n.Scope, n.From, n.To))
	}
	for _, w := range l.Want {
		text := fmt.Sprintf("%s %s %.0f–%.0f s", strings.TrimSpace(string(w.Resource)+" "+w.Scope), w.Level, w.From, w.To)
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

// text is the levels of a detector, with the spells of one scope and level merged.
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
		text := fmt.Sprintf("✗ %s missed", strings.TrimSpace(string(w.Resource)+" "+w.Scope))
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
		{"a false hard level (a pod evicted in vain)", func(s said) bool { return len(s.falseHard) > 0 }},
		{"a false soft level or alarm", func(s said) bool { return len(s.falseSoft) > 0 }},
		{"a missed hard level", func(s said) bool { return missed(s, plugins.Hard) }},
		{"a missed soft level", func(s said) bool { return missed(s, plugins.Soft) }},
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
