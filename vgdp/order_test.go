package vgdp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func hooks(l *Load)  { l.Hooks = true }
func manual(l *Load) { l.Scheduled = false }

func TestOrderByRank(t *testing.T) {
	d := Decide(world(9, nodes(9, 1),
		load("a-scheduled", DataUpload, of("1")), load("b-manual", DataUpload, of("2"), manual), load("c-restore", DataDownload, of("3")),
		load("d-urgent", PodVolumeBackup, on("n9"), of("4"), hooks), load("e-first", DataUpload, of("5"), priority(99)),
		load("f-last", DataDownload, of("6"), priority(-99)), load("g-hooks of a snapshot", DataUpload, of("7"), hooks),
	))
	assert.Equal(t, []string{"e-first", "c-restore", "d-urgent", "b-manual", "a-scheduled", "g-hooks of a snapshot", "f-last"}, admitted(d))
}

// (theirs - its own + 1) times Aging.
func TestOrderAgingBound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		first, later := someLoad(r, 1), someLoad(r, 2)
		first.Created = noon
		base := func(l Load) time.Duration { return time.Duration(l.rank(l.Created, l.Hooks)) }
		later.Created = at((base(later) - base(first) + 1) * Aging)
		if later.Created.Before(noon) {
			continue // it comes first, and has the lower rank
		}
		now := later.Created.Add(time.Duration(r.IntN(1000)) * time.Minute)
		assert.Greater(t, first.rank(now, first.Hooks), later.rank(now, later.Hooks)-1, "%+v\n%+v", first, later)
		assert.GreaterOrEqual(t, first.rank(now.Add(time.Nanosecond), first.Hooks), later.rank(now, later.Hooks))
	}
}

// Every two minutes a restore arrives, and one load is done.
func TestOrderScheduledBesideRestores(t *testing.T) {
	in := world(1, nodes(1, 1), load("backup", PodVolumeBackup, on("n1"), made(noon)))
	for i := range 1000 {
		in.Loads = append(in.Loads, load(fmt.Sprint("restore", i), PodVolumeRestore, on("n1"), made(in.Time)))
		d := Decide(in)
		if admitted(d)[0] == "backup" {
			assert.Equal(t, RankRestore*Aging, in.Time.Sub(noon))
			return
		}
		in.Loads = slices.DeleteFunc(in.Loads, func(l Load) bool { return l.Name == d.Admit[0].Name })
		in.Time = in.Time.Add(2 * time.Minute)
	}
	t.Error("it never went")
}

func TestOrderUnusedTicketLast(t *testing.T) {
	unused := func(l *Load) { l.Note.Unused, l.Note.UnusedAt = 1, at(-31*time.Second) }
	d := Decide(world(9, nodes(9, 1), load("a", DataUpload, unused), load("b", DataUpload), load("c", DataDownload, unused)))
	assert.Equal(t, []string{"c", "b", "a"}, admitted(d))
}

func TestOrderUnusedTicketEndsAging(t *testing.T) {
	l := load("a", DataUpload)
	assert.Equal(t, RankScheduled+9, l.rank(l.Created.Add(9*Aging), false))
	l.Note.UnusedAt = l.Created.Add(8 * Aging)
	assert.Equal(t, RankScheduled+1, l.rank(l.Created.Add(9*Aging), false))
}

func TestUnusedTicketBackoff(t *testing.T) {
	l := load("a", DataUpload)
	l.Note.UnusedAt = noon
	var delays []time.Duration
	for l.Note.Unused = 1; l.Note.Unused <= 7; l.Note.Unused++ {
		delays = append(delays, l.retry().Sub(noon))
	}
	assert.Equal(t, []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}, delays)
	l.Note.Unused = 1 << 30
	assert.Equal(t, at(10*time.Minute), l.retry())
	d := Decide(world(9, nodes(1, 9), load("x", DataUpload, func(l *Load) { l.Note.Unused, l.Note.UnusedAt = 1, at(-29*time.Second) })))
	assert.Equal(t, map[string]Code{"x": CodeBackoff}, why(d))
}
