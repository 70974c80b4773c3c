package backup

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the documents anew")

const monthHead = `# A month of the backup queue

How long Backups wait, played through the queue's own decision, event by event. The cluster is made up: 60 applications, of which six are backed up every hour (2 to 6 min each), thirty every night between 1 and 2 o'clock (5 to 25 min), the whole cluster each Sunday at 6 (5 h), and twelve a day by hand (5 to 30 min), three of them with priority 10. Velero would be busy for 88 % of the month if one ran at a time.

![waits of the hourly and of the urgent ones](img/backups-month.svg)

**The bound.** A Backup waits no longer than all the work that was ahead of it when it was created, one after another, and the longest single Backup, which may have the slot. With priorities others may start before it until it has waited for ` + "`aging`" + `. From then on the work ahead only shrinks, and the bound is ` + "`aging`" + `, the work that was ahead at that moment, and the longest single Backup. The last column is how much of the bound was used at worst. The numbers are of this table's cluster; the bound holds for any.

Written by ` + "`go test ./backup -run Month -update`" + `; the test fails when a Backup waits longer than the bound, or when this page differs.
`

// document is a file that is as it must be, or is written.
func document(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, string(is), "%s: write it anew with -update", path)
}

// curve is the share of a class that has begun after a wait.
type curve struct {
	name   string
	manner int
	dashed bool
	points string
}

// The plot, in its own units.
const (
	plotWide, plotHigh   = 640.0, 260.0
	plotLeft, plotTop    = 48.0, 12.0
	shortest, longest    = 1.0, 1440.0 // minutes
	plotBottom, plotEdge = plotTop + plotHigh, plotLeft + plotWide
)

func plotX(minutes float64) float64 {
	share := math.Log(max(shortest, minutes)/shortest) / math.Log(longest/shortest)
	return plotLeft + plotWide*min(1, share)
}

// curveOf a class that is sorted by its waits.
func curveOf(name string, manner int, dashed bool, of []*job) curve {
	var points []string
	for percent := 0; percent <= 100; percent++ {
		wait := of[(len(of)-1)*percent/100].wait()
		points = append(points, fmt.Sprintf("%.1f,%.1f", plotX(wait.Minutes()), plotBottom-plotHigh*float64(percent)/100))
	}
	return curve{name, manner, dashed, strings.Join(points, " ")}
}

// plotOf is an SVG that is read on light and on dark pages.
func plotOf(curves []curve) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">
<title>Share of Backups that have begun, by how long they waited</title>
<style>text{fill:#333}.g{stroke:#999;stroke-opacity:.35}.c{fill:none;stroke-width:2}.m0{stroke:#b5482a}.m1{stroke:#8a8a8a}.m2{stroke:#1f6fb5}.d{stroke-dasharray:5 4}@media (prefers-color-scheme:dark){text{fill:#ddd}.m2{stroke:#5aa9ee}}</style>
`, plotEdge+12, plotBottom+40+16*float64(len(curves)))
	for _, at := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour} {
		x := plotX(at.Minutes())
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f"/><text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`+"\n",
			x, x, plotTop, plotBottom, x, plotBottom+16, strings.TrimSuffix(strings.TrimSuffix(at.String(), "0s"), "0m"))
	}
	for _, percent := range []int{0, 50, 100} {
		y := plotBottom - plotHigh*float64(percent)/100
		fmt.Fprintf(&b, `<line class="g" x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f"/><text x="%.0f" y="%.0f" text-anchor="end">%d %%</text>`+"\n",
			plotLeft, plotEdge, y, y, plotLeft-6, y+4, percent)
	}
	for i, c := range curves {
		class := fmt.Sprintf("c m%d", c.manner)
		if c.dashed {
			class += " d"
		}
		y := plotBottom + 36 + 16*float64(i)
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"/><line class="%s" x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			class, c.points, class, plotLeft, plotLeft+28, y, y, plotLeft+36, y+4, strings.ReplaceAll(c.name, "`", ""))
	}
	return b.String() + "</svg>\n"
}
