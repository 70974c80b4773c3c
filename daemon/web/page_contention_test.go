package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// manyDisks is a node with so many disks more, the first of them contended.
func manyDisks(disks, contended int) *view.State {
	s := scenes.Contended()
	of := s.Snapshot.Contention
	s.Snapshot.Contention = nil
	for i := range disks {
		c := of[0]
		c.Device, c.State = fmt.Sprintf("sd%03d", i), snapshot.ContentionPresent
		if i >= contended {
			c.State, c.Sufferers = snapshot.ContentionBusy, nil
		}
		s.Snapshot.Contention = append(s.Snapshot.Contention, c)
		v := s.Levels.Verdicts[2]
		v.Scope = c.Device
		s.Levels.Verdicts = append(s.Levels.Verdicts, v)
	}
	return s
}

// folded cuts a page before the first fold below a place.
func folded(t *testing.T, text, from, fold string) (shown, hidden string) {
	t.Helper()
	_, rest, found := strings.Cut(text, from)
	assert.True(t, found, from)
	shown, hidden, found = strings.Cut(rest, fold)
	assert.True(t, found, fold)
	return shown, hidden
}

func TestPageContentionFirst(t *testing.T) {
	text, _ := getPage(t, scenes.Contended(), "", 0)
	hurt := strings.Index(text, "<h2>Contention")
	for _, later := range []string{"<h2>Verdicts", "<h2>Latest decisions", "<h2>Pressure"} {
		assert.Less(t, hurt, strings.Index(text, later))
	}
	for _, want := range []string{
		"waited on nvme0n1 for 33.9 % of the last 10.0 s; batch-analytics/du-of-the-whole-data-lake-28f7c-x2k9p accounts for 66.0 % of the traffic; coverage 94.3 %",
		"380 MB/s · 7920 requests/s", "lowest class (low QoS or mover): triggers no eviction", "; coverage 55.0 %<", "Smaller shares: 6, and 6 more",
	} {
		assert.True(t, strings.Contains(text, want), want)
	}
}

func TestPageManyDisksFolded(t *testing.T) {
	s := manyDisks(50, 20)
	s.Snapshot.Contention[17].Sufferers = []snapshot.Sufferer{{Party: snapshot.Party{Name: "web/db"}, Waited: 0.99}}
	text, _ := getPage(t, s, "", 0)
	assert.Empty(t, unbalanced(text))
	shown, hidden := folded(t, text, "<h2>Contention", "Contention with shorter waits: 16")
	assert.Equal(t, contentionsShown, strings.Count(shown, "<article"))
	assert.True(t, strings.Contains(shown, `<h3><a href="device?name=sd017">Disk sd017</a></h3>`), "the longest wait is shown")
	assert.True(t, strings.Contains(hidden, `<h3><a href="device?name=sd016">Disk sd016</a></h3>`), "sd016")
	busy, rest := folded(t, hidden, "</details>\n<div", "Also in use: 24")
	assert.Equal(t, busyShown, strings.Count(busy, "busy, no contention"))
	assert.Equal(t, 24, strings.Count(rest, "busy, no contention"))
	judged, calm := folded(t, text, "<h2>Verdicts", "Devices below their thresholds: 52")
	assert.Equal(t, 3, strings.Count(judged, "<article"), "the node's memory and CPUs, and what is met")
	assert.Equal(t, 52, strings.Count(calm, "<small>plugin disk-contention</small>"))
	assert.Less(t, len(text), 500<<10)
}

func TestPageUnjudgedNotFolded(t *testing.T) {
	list := make([]pageVerdict, 0, 8)
	for i := range 8 {
		list = append(list, pageVerdict{Scope: fmt.Sprint("sd", i), Level: plugins.None.String()})
	}
	list[3].Level, list[5].Level, list[6].Scope = unknownClass, "soft", ""
	shown, calm := separateCalm(list)
	assert.Equal(t, []pageVerdict{list[3], list[5], list[6]}, shown)
	assert.Len(t, calm, 5)
	shown, calm = separateCalm(list[:4])
	assert.Len(t, shown, 4, "few are shown in full")
	assert.Empty(t, calm)
}

func TestPageUnknownContention(t *testing.T) {
	first, _ := getPage(t, scenes.FirstTick(), "", 0)
	assert.True(t, strings.Contains(first, "Not available yet: rates need two samples."), "rates need two samples")
	s := manyDisks(1, 1)
	c := &s.Snapshot.Contention[0]
	c.State, c.Sufferers, c.Absent = snapshot.ContentionUnknown, nil, snapshot.Absent{"sufferers": "this kernel has no PSI"}
	text, _ := getPage(t, s, "", 0)
	for _, want := range []string{"sufferers unknown", "unknown: this kernel has no PSI", "sufferers on sd000 unknown"} {
		assert.True(t, strings.Contains(text, want), want)
	}
	assert.False(t, strings.Contains(text, "no contention"), "no contention")
	c.Sufferers, c.Culprits = []snapshot.Sufferer{{Party: snapshot.Party{Name: "shop/web"}, Waited: 0.7}}, nil
	c.Absent = snapshot.Absent{"shareRatio": "shop/web waits", "culprits": "blkio inactive"}
	text, _ = getPage(t, s, "", 0)
	for _, want := range []string{"waits, contention unknown", "shop/web waited on sd000 for 70.0 %", "for others or for itself", "culprits unknown: blkio inactive", "own share –"} {
		assert.True(t, strings.Contains(text, want), want)
	}
	s.Snapshot.Contention = nil
	none, _ := getPage(t, s, "", 0)
	assert.True(t, strings.Contains(none, "No disk is in use, less than half of the CPUs is, and no workload stalls on memory."), "No disk is in use")
}

func TestPageBarLength(t *testing.T) {
	assert.Equal(t, []int{0, 0, 500, 1000, 1000}, []int{barOf(-1), barOf(0), barOf(0.5), barOf(1), barOf(1.2)})
}

// The cost of one published state with live clients, independent of their number.
func BenchmarkPageRender(b *testing.B) {
	for name, s := range map[string]*view.State{"calm": scenes.Calm(), "contended": scenes.Contended(), "full": func() *view.State {
		s := crowd()
		s.Snapshot.Contention = manyDisks(50, 20).Snapshot.Contention
		return s
	}()} {
		b.Run(name, func(b *testing.B) {
			server, decisions := serverOf(s), decisionsOf(s)
			server.Decisions = func() []evict.Decision { return decisions }
			p := server.page()
			for b.Loop() {
				server.live.rendered = nil
				text, err := server.live.render(s, p)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(text)), "B/event")
			}
		})
	}
}
