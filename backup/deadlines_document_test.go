package backup

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const deadlinesPage = "../docs/backups-deadlines.md"

const deadlinesHead = `# A month with deadlines

The same month in five orders: how many deadlines are missed. It is played through the queue's own decision, event by event, four Backups at a time (` + "`limit: 4`" + `) in each order. The cluster is made up, in 20 ways by random numbers, and the month is March 2026 in Berlin, in which clocks are put forward. Ten days before it only teach durations.

- Six applications are backed up every hour (about 4 min each), RPO 3h.
- Forty applications are backed up at 22:00, 8 to 44 min each, and have the backup window 22:00-06:00, half of them an RPO of 30h beside it.
- Eight large ones are backed up at 21:30, 60 to 150 min each, RPO 40h.
- The whole cluster is backed up each Saturday at 12:00, about 100 min, and twelve Backups a day are made by hand. They have no objective.
- Durations vary from night to night by 20 to 30 %, and grow by 0.4 % a day. One in 40 takes three times as long, one in 33 fails before its end, the first is a full one. In every fourth night nodes are under pressure for one to five hours, and Backups that start then take half as long again.

A deadline is missed where a Backup ends, well or not, after its backup window or after its RPO. Where the order knows no deadlines, Backups do not wait for their windows either. The controller decides by the same code ([ADR 94](adr/0094-deadlines-instead-of-slots.md)).

![deadlines missed, by order](img/backups-deadlines.svg)

Written by ` + "`go test ./backup -run DeadlinesMonth -update`" + `. The test plays the first month each time, and all of them in its long form.
`

const deadlinesNotes = `
What the orders know: *earliest deadline first* the deadlines and windows; *deadlines and learned durations* also intervals of durations as they were learned until then, but not whether a Backup will be a full one; *clairvoyant* has the same order and knows each duration before it starts.
`

func totals(all [][]tally) []tally {
	total := make([]tally, len(dueManners()))
	for i := range total {
		total[i] = tally{due: map[string]int{}, missed: map[string]int{}}
		for _, tallies := range all {
			y := tallies[i]
			for class := range y.due {
				total[i].due[class] += y.due[class]
				total[i].missed[class] += y.missed[class]
			}
			total[i].known, total[i].in = total[i].known+y.known, total[i].in+y.in
			total[i].said, total[i].right = total[i].said+y.said, total[i].right+y.right
			total[i].knew, total[i].knewRight = total[i].knew+y.knew, total[i].knewRight+y.knewRight
			total[i].scheduled += y.scheduled
			total[i].foreseen, total[i].within = total[i].foreseen+y.foreseen, total[i].within+y.within
			total[i].longest = max(total[i].longest, y.longest)
		}
	}
	return total
}

func percent(part, of int) float64 { return 100 * float64(part) / float64(max(1, of)) }

// rowOf is a seed in the table of all.
func rowOf(seed int, tallies []tally) string {
	row := fmt.Sprintf("| %d |", seed+1)
	for _, y := range tallies {
		row += fmt.Sprintf(" %d |", sum(y.missed))
	}
	return row
}

func deadlinesText(all [][]tally, total []tally) string {
	var b strings.Builder
	b.WriteString(deadlinesHead)
	fmt.Fprintf(&b, "\n## Deadlines missed\n\n| order | missed of %d | | hourly | nightly | large | longest wait |\n|---|--:|--:|--:|--:|--:|--:|\n", sum(total[0].due))
	for i, m := range dueManners() {
		y := total[i]
		fmt.Fprintf(&b, "| %s | %d | %.2f %% | %d | %d | %d | %s |\n", m.name, sum(y.missed), percent(sum(y.missed), sum(y.due)),
			y.missed[dueHourly], y.missed[dueNightly], y.missed[dueLarge], y.longest.Round(time.Minute))
	}
	fifo, ours, best := sum(total[mannerFIFO].missed), sum(total[mannerOurs].missed), sum(total[mannerClairvoyant].missed)
	b.WriteString(deadlinesNotes)
	fmt.Fprintf(&b, "\nWith learned durations a deadline is missed 1/%.0f as often as first in, first out, and %d times where the clairvoyant order misses %d.\n", float64(fifo)/float64(ours), ours, best)
	fmt.Fprintf(&b, "\n## Durations\n\nOf %d durations that had an interval of 90 %% when the Backup began, %.1f %% were in it. %.1f %% of the good Backups of Schedules had one.\n",
		total[mannerOurs].known, percent(total[mannerOurs].in, total[mannerOurs].known), percent(total[mannerOurs].known, total[mannerOurs].scheduled))
	b.WriteString("\n## Forecasts\n\nEach hour the next ten hours are played forward. What counts is the last forecast that is made an hour before a deadline, or earlier.\n\n| order | missed | of these forecast | forecast and not missed, of all forecast |\n|---|--:|--:|--:|\n")
	for _, i := range []int{mannerFIFO, mannerOurs} {
		y := total[i]
		fmt.Fprintf(&b, "| %s | %d | %.1f %% | %.1f %% |\n", dueManners()[i].name, sum(y.missed), percent(y.right, sum(y.missed)), percent(y.said-y.right, y.said))
	}
	y := total[mannerOurs]
	fmt.Fprintf(&b, "| the same, forecast with each median known | %d | %.1f %% | %.1f %% |\n", sum(y.missed), percent(y.knewRight, sum(y.missed)), percent(y.knew-y.knewRight, y.knew))
	b.WriteString("\nWhere the order itself causes the misses, as first in, first out does, they are seen coming. What is missed in spite of deadlines, in the three months that were looked at one by one, are Backups that take three times as long as before and close calls: which Backup is given up for others is often decided within the last hour. The last row is the same forecast by who knows the true median of each Backup, and whether nodes are under pressure now: what it does not say either is not to be known from durations.\n")
	fmt.Fprintf(&b, "\nOf %d ends that were forecast at 23:00, with deadlines in the order, %.1f %% came within the interval of 90 %%.\n", total[mannerOurs].foreseen, percent(total[mannerOurs].within, total[mannerOurs].foreseen))
	b.WriteString("\n## Each month\n\n| month |")
	for _, m := range dueManners() {
		fmt.Fprintf(&b, " %s |", m.name)
	}
	b.WriteString("\n|--:|" + strings.Repeat("--:|", len(dueManners())) + "\n")
	for seed, tallies := range all {
		b.WriteString(rowOf(seed, tallies) + "\n")
	}
	return b.String()
}

// deadlinesPlot has a row for each order with a dot for each month, by the share of missed
// deadlines on a scale that is linear in the square root, so that none is a point of it.
func deadlinesPlot(all [][]tally) string {
	const left, wide, row, most = 250.0, 420.0, 34.0, 12.0
	x := func(percent float64) float64 { return left + wide*math.Sqrt(percent/most) }
	bottom := 8 + row*float64(len(dueManners()))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">
<title>Share of deadlines that are missed in each of %d months, by order</title>
<style>text{fill:#333}.g{stroke:#999;stroke-opacity:.35}circle{fill-opacity:.45}.m0{fill:#b5482a}.m1{fill:#8a8a8a}.m2{fill:#8a8a8a}.m3{fill:#1f6fb5}.m4{fill:#8a8a8a}@media (prefers-color-scheme:dark){text{fill:#ddd}.m3{fill:#5aa9ee}}</style>
`, left+wide+20, bottom+26, len(all))
	for _, p := range []float64{0, 0.1, 0.5, 1, 2, 5, 10} {
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="8" y2="%.0f"/><text x="%.1f" y="%.0f" text-anchor="middle">%v %%</text>`+"\n", x(p), x(p), bottom, x(p), bottom+16, p)
	}
	for i, m := range dueManners() {
		y := 8 + row*(float64(i)+0.5)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n", left-14, y+4, strings.ReplaceAll(m.name, "`", ""))
		for seed, tallies := range all {
			up := float64(seed%5-2) * 3
			fmt.Fprintf(&b, `<circle class="m%d" cx="%.1f" cy="%.1f" r="4"/>`+"\n", i, x(percent(sum(tallies[i].missed), sum(tallies[i].due))), y+up)
		}
	}
	return b.String() + "</svg>\n"
}
