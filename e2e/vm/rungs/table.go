package rungs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// head is the table's first lines.
const head = `| load | rung | request: before | under | with the rung | after | probes failed | culprit: under | with | after | gap | longest wait of the node | killed in |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// Table is one row for each record of a cgroup version, in the order of Cells.
func Table(version string, all []Record) string {
	var b strings.Builder
	b.WriteString(head)
	for _, c := range Cells(version) {
		i := slices.IndexFunc(all, func(r Record) bool { return r.Cell == c })
		if i < 0 {
			fmt.Fprintf(&b, "| %s | %s | not measured | | | | | | | | | | |\n", c.Load, c.Rung)
			continue
		}
		b.WriteString(all[i].Row() + "\n")
	}
	return b.String()
}

// Row is a record as a line of the table.
func (r *Record) Row() string {
	cells := []string{r.Load, r.Rung}
	switch {
	case r.Lost != "":
		cells = append(cells, "**the machine gave no answer**")
	case r.Absent != "":
		cells = append(cells, "this kernel has it not")
	default:
		for _, p := range []*Phase{&r.Before, &r.Under, &r.With, &r.After} {
			cells = append(cells, p.requests())
		}
		cells = append(cells, r.failed(), number(r.Under.Rate), r.with(), r.after(), number(r.With.Gap), r.wait(), r.killed())
	}
	for len(cells) < strings.Count(head[:strings.Index(head, "\n")], "|")-1 {
		cells = append(cells, "")
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// requests are median and 99th percentile.
func (p *Phase) requests() string {
	if p.Requests == 0 {
		return "–"
	}
	return number(p.P50) + " / " + number(p.P99)
}

// failed are the sufferer's and the culprit's probes while the rung was set.
func (r *Record) failed() string {
	text := fmt.Sprintf("%d of %d", r.With.Failed, r.With.Probes)
	if r.With.CulpritProbes > 0 && r.Ended == "" {
		text += fmt.Sprintf("; culprit %d of %d", r.With.CulpritFailed, r.With.CulpritProbes)
	}
	return text
}

// with and after are the culprit's rate; one that has ended has none.
func (r *Record) with() string {
	if r.Ended == "under" || r.Ended == "with" {
		return "ended"
	}
	return number(r.With.Rate)
}

func (r *Record) after() string {
	switch {
	case r.Ended != "":
		return "ended"
	case r.After.Seconds == 0:
		return "–"
	}
	return number(r.After.Rate)
}

// wait is the longest of what the node did with the rung, with its name.
func (r *Record) wait() string {
	names := slices.SortedFunc(maps.Keys(r.With.Waits), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.With.Waits[b], r.With.Waits[a]), strings.Compare(a, b))
	})
	if len(names) == 0 {
		return "–"
	}
	return names[0] + " " + number(r.With.Waits[names[0]])
}

func (r *Record) killed() string {
	switch {
	case r.Kill == 0:
		return "–"
	case r.KillFreed:
		return "**not before it was off**"
	}
	return number(r.Kill)
}

// number has three digits that say something.
func number(x float64) string {
	switch {
	case x >= 100 || x == 0:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}
