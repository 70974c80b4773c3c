package history

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

// An hour in which a disk becomes slow, is soft and then hard, and the agent is away.
func slowDisk(t *testing.T) (*Store, Range) {
	t.Helper()
	store, s := &Store{}, scene{at: noon(-time.Hour)}
	for i := range 362 {
		s.at = s.at.Add(fineStep)
		if i >= 290 && i < 330 {
			continue
		}
		await, level := 0.002, plugins.None
		switch {
		case i >= 200 && i < 230:
			await, level = 0.03, plugins.Soft
		case i >= 230 && i < 260:
			await, level = 0.12+0.03*float64(i%2), plugins.Hard
		}
		rates := snapshot.DiskRates{ReadAwaitSeconds: snapshot.Some(await), ReadBytesPerSecond: 1e7 * float64(i%20), BusyRatio: 0.7}
		if i%60 < 30 {
			rates.WriteAwaitSeconds = snapshot.Some(await / 2)
		}
		snap, _ := s.state()
		snap.Disks = []snapshot.DiskState{{Disk: snapshot.Disk{Name: "sda", Number: "8:0", Layer: snapshot.LayerLeaf}, Rates: snapshot.Some(rates)}}
		snap.Pressure.Ratios.IO.Some = snapshot.Some(min(1, 4*await))
		store.Add(snap, &plugins.Levels{Time: s.at, Verdicts: []plugins.Verdict{
			{Plugin: "disk-contention", Resource: plugins.Disk, Scope: "sda", Level: level, Threshold: snapshot.Some(0.02), Unit: "seconds"},
			{Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node"},
		}})
	}
	r := rangeOf(t, "hour", s.at)
	r.At = noon(-25 * time.Minute)
	return store, r
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
}

func TestPlotGolden(t *testing.T) {
	store, r := slowDisk(t)
	marks := []Mark{
		{noon(-26 * time.Minute), "11:34:00 UTC no eviction needed: Disk sda", "/history?range=hour&at=2026-03-01T11:34:00Z#decision-1"},
		{noon(-25*time.Minute - 50*time.Second), "11:34:10 UTC evicted: Disk sda", "/history?range=hour&at=2026-03-01T11:34:10Z#decision-2"},
		{noon(-3 * time.Hour), "out of range", "/"},
	}
	plots := append(store.Device("sda", r), store.Node(r)[3])
	rules, calm, gaps := store.Rules(r)
	assert.Equal(t, 1, calm)
	assert.Equal(t, 2, gaps, "the agent was away")
	require.Len(t, rules, 1)
	for _, p := range append(plots, rules...) {
		p.Marks = marks
		golden(t, p.ID+".html", string(p.HTML()))
	}
}

// checkFigure reports what a reader of any kind needs: it is well-formed, has a title
// and a description, and no script, style or address of another server.
func checkFigure(t *testing.T, text string) (elements map[string]int, words string) {
	t.Helper()
	elements = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, text)
		switch e := token.(type) {
		case xml.StartElement:
			elements[e.Name.Local]++
			assert.NotContains(t, []string{"script", "style", "image", "foreignObject", "use"}, e.Name.Local)
			for _, a := range e.Attr {
				assert.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
				if a.Name.Local == "href" {
					assert.True(t, strings.HasPrefix(a.Value, "/") || strings.HasPrefix(a.Value, "history"), a.Value)
				}
			}
		case xml.CharData:
			words += string(e)
		}
	}
	assert.NotZero(t, elements["title"])
	assert.Equal(t, 1, elements["desc"])
	assert.Equal(t, 1, elements["h3"])
	return elements, words
}

func TestPlotWords(t *testing.T) {
	store, r := slowDisk(t)
	plots := store.Device("sda", r)
	t.Run("what is drawn is also told", func(t *testing.T) {
		_, words := checkFigure(t, string(plots[0].HTML()))
		for _, want := range []string{
			"reads: last 2.0 ms, highest 150 ms at 11:38", "threshold of disk-contention: 20.0 ms", "soft for 5 min", "hard for 5 min",
			"From 2026-03-01 11:00:20 to 2026-03-01 12:00:20 UTC", "200 ms",
		} {
			assert.Contains(t, words, want)
		}
	})
	t.Run("where nothing is measured that is told, and nothing drawn", func(t *testing.T) {
		_, words := checkFigure(t, string(store.Node(r)[0].HTML()))
		assert.Contains(t, words, "busy: no value in this time")
		_, words = checkFigure(t, string(plots[2].HTML()))
		assert.Contains(t, words, "no value for 6 min 40 s")
	})
	t.Run("a threshold far above the values is told and not drawn", func(t *testing.T) {
		quiet := rangeOf(t, "hour", noon(-31*time.Minute))
		_, words := checkFigure(t, string(store.Device("sda", quiet)[0].HTML()))
		assert.Contains(t, words, "threshold of disk-contention: 20.0 ms, above the plot")
	})
	t.Run("marks that lie on each other are one link", func(t *testing.T) {
		p := plots[0]
		for i := range 5 {
			p.Marks = append(p.Marks, Mark{noon(-30*time.Minute + time.Duration(i)*time.Second), "a <decision>", "/?x=1&y=2"})
		}
		p.Marks = append(p.Marks, Mark{noon(-10 * time.Minute), "another", "/"}, Mark{noon(time.Hour), "later", "/"})
		elements, words := checkFigure(t, string(p.HTML()))
		assert.Equal(t, 2, elements["a"])
		assert.Contains(t, words, "a <decision> and 4 more")
	})
}

// The node is hostile, and so are the names in it.
func TestPlotHostile(t *testing.T) {
	const evil = "\x1b]0;owned\x07</title><script>alert(1)</script>\"'><a href=\"javascript:alert(1)\" onload=x>\u202e\xff"
	store, s := &Store{}, scene{at: noon(0)}
	for range 30 {
		s.at = s.at.Add(fineStep)
		s.disks = map[string]float64{evil: 1e6}
		s.nics = []snapshot.NICState{{NIC: snapshot.NIC{Name: evil}, Rates: snapshot.Some(snapshot.NICRates{})}}
		s.workloads = []snapshot.WorkloadState{workload("/"+evil, 1, 1, 1, 1)}
		s.verdicts = []plugins.Verdict{{Plugin: evil, Scope: evil, Resource: evil, Unit: evil, Level: plugins.Soft, Threshold: snapshot.Some(1.0)}}
		s.add(store)
	}
	r := rangeOf(t, "hour", s.at)
	plots := append(store.Device(evil, r), store.Workload("/"+evil, r)...)
	rules, _, _ := store.Rules(r)
	plots = append(append(plots, rules...), store.Node(r)...)
	require.Len(t, plots, 15)
	for _, p := range plots {
		p.Marks = []Mark{{s.at, evil, "/history#" + evil}}
		text := string(p.HTML())
		assert.NotContains(t, text, "<script")
		assert.NotContains(t, text, "\x1b")
		checkFigure(t, text)
	}
}

func TestPlotSize(t *testing.T) {
	n := newNode(3)
	store := &Store{}
	for range 24 * 360 / 4 {
		n.step(1, 0)
		n.add(store)
	}
	for _, p := range append(store.Device("nvme1n1", rangeOf(t, "day", n.at)), store.Node(rangeOf(t, "hour", n.at))...) {
		assert.Less(t, len(p.HTML()), 9000, "%s: a page of thirty plots is below 200 kB", p.ID)
	}
}

func TestUnitScale(t *testing.T) {
	for _, row := range []struct {
		u        unit
		highest  float64
		scale    float64
		top, mid string
	}{
		{unitShare, 0.01, 1, "100 %", "50.0 %"},
		{unitStall, 0, 0.05, "5.0 %", "2.5 %"},
		{unitStall, 0.3, 0.5, "50.0 %", "25.0 %"},
		{unitStall, 1.2, 1, "100 %", "50.0 %"},
		{unitCores, 0, 0.2, "0.2", "0.1"},
		{unitCores, 3.1, 5, "5", "2.5"},
		{unitBytes, 600 << 20, 1 << 30, "1.0 GiB", "512 MiB"},
		{unitBytes, 0, 1 << 20, "1.0 MiB", "512 KiB"},
		{unitDiskBytes, 120e6, 200e6, "200 MB/s", "100 MB/s"},
		{unitLinkBytes, 100e6, 125e6, "1.0 Gbit/s", "500 Mbit/s"},
		{unitSeconds, 0.02, 0.02, "20.0 ms", "10.0 ms"},
		{unitSeconds, 0, 0.001, "1.0 ms", "500 µs"},
		{unitPerSecond, 0, 1, "1/s", "0.5/s"},
	} {
		is := row.u.scale(row.highest)
		assert.InDelta(t, row.scale, is, 1e-9*row.scale)
		assert.Equal(t, row.top, row.u.format(is))
		assert.Equal(t, row.mid, row.u.format(is/2))
	}
}
