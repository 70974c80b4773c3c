package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/judgement"
)

// classSlow is the class of recordings of a disk that is slow by itself.
const classSlow = "slow disk"

// slowText says where a disk was said to be slow by itself: in the recordings of such a
// disk, and in the others.
func slowText(t *testing.T, r *Report) string {
	t.Helper()
	c := defaults(t)
	var b strings.Builder
	b.WriteString("| recording | what was done | said to be slow by itself |\n|---|---|---|\n")
	var right, wrong, of, others int
	var elsewhere []string
	for _, one := range r.Recordings {
		if one.Outcomes[0].Lacks != "" {
			continue
		}
		said := saidSlow(c, one.Label, recordingOf(t, entry{path: one.File}))
		if one.Class == classSlow {
			of, right = of+1, right+count(said != "")
			fmt.Fprintf(&b, "| %s | %s | %s |\n", one.Name, one.Did, cmp.Or(said, "no"))
			continue
		}
		others, wrong = others+1, wrong+count(said != "")
		if said != "" {
			elsewhere = append(elsewhere, one.Name+": "+said)
		}
	}
	fmt.Fprintf(&b, "\nSaid in %s of these recordings, and in %s of the others", rateText(judgement.NewRate(right, of)), rateText(judgement.NewRate(wrong, others)))
	if len(elsewhere) > 0 {
		b.WriteString(" (" + strings.Join(elsewhere, "; ") + ")")
	}
	return b.String() + ".\n"
}

// saidSlow is of which disks our rules said so, and how long after the begin of the load
// first; empty: of none.
func saidSlow(c *config.Agent, l judgement.Label, what recorded) string {
	o := newOurs(c, l, what.samples)
	var said, parts []string
	for _, s := range what.samples {
		o.Judge(s)
		for _, d := range o.levels.Disks {
			if d.Slow != "" && !slices.Contains(said, d.Device) {
				said = append(said, d.Device)
				parts = append(parts, fmt.Sprintf("%s after %.0f s", d.Device, s.Time.Sub(what.samples[0].Time).Seconds()-l.Load.From))
			}
		}
	}
	return strings.Join(parts, ", ")
}
