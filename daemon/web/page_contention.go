package web

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// pageContention is the contention of all devices and of memory.
type pageContention struct {
	// Shown in full; More are folded. Busy are those without contention, of
	// which BusyMore are folded.
	Shown, More, Busy, BusyMore []contentionRow
	Open                        bool
	// Nothing is shown instead if there is none.
	Nothing string
}

// contentionRow is the culprits and sufferers of one device, or of memory.
type contentionRow struct {
	Device                        string // as it is, for a link; empty: none
	Title, State, Class, Sentence string
	Advice                        *view.Advice
	None                          string // instead of Sufferers
	NoCulprit                     string // instead of Culprits, where they are unknown
	Open                          bool
	Of                            string // the whole of the shares, in words
	Culprits, Sufferers           partyRows
}

// partyRows are the first of them, the folded ones, and how many more there
// are.
type partyRows struct {
	Shown, Folded []partyRow
	Beyond        int
}

// partyRow is a workload with its share as text and as a bar.
type partyRow struct {
	ID, Name, Where, Share string
	For                    string // how long it has been waiting
	Bar                    int    // 0 to barWidth
	Details                string
}

// contentionsShown in full, those with the longest waits, and busyShown lines.
const (
	contentionsShown = 4
	busyShown        = 6
)

func newPageContention(s *view.State, open bool) pageContention {
	window := s.Snapshot.WindowSeconds
	if window == 0 {
		return pageContention{Nothing: "Not available yet: rates need two samples."}
	}
	when := "the last " + view.Seconds(window)
	p := pageContention{Open: open}
	list := view.Contention(s)
	full := view.Busiest(list, contentionsShown, view.WaitedShare)
	for i := range list {
		c := &list[i]
		row := newContentionRow(s, c, when, open)
		switch {
		case c.State == snapshot.ContentionBusy && len(p.Busy) < busyShown:
			p.Busy = append(p.Busy, row)
		case c.State == snapshot.ContentionBusy:
			p.BusyMore = append(p.BusyMore, row)
		case slices.ContainsFunc(full, func(o snapshot.Contention) bool { return o.Resource == c.Resource && o.Device == c.Device }):
			p.Shown = append(p.Shown, row)
		default:
			p.More = append(p.More, row)
		}
	}
	if len(list) == 0 {
		p.Nothing = "No disk is in use, less than half of the CPUs is, and no workload stalls on memory."
	}
	return p
}

func newContentionRow(s *view.State, c *snapshot.Contention, when string, open bool) contentionRow {
	r := contentionRow{
		Title: view.ContentionTitle(c), State: view.ContentionText(c), Class: contentionClass(c.State), Sentence: view.ContentionSentence(c, when),
		Of: "of the traffic", None: "none", Open: open,
	}
	if c.Resource == snapshot.SharedDisk || c.Resource == snapshot.SharedNetwork {
		r.Device = c.Device
	}
	if a, some := view.ContentionAdvice(s, c); some {
		r.Advice = &a
	}
	switch c.Resource {
	case snapshot.SharedMemory:
		r.Of = "of memory growth"
	case snapshot.SharedCPU:
		r.Of = "of the CPU time in use"
	case snapshot.SharedDisk, snapshot.SharedNetwork: // of the traffic
	}
	if c.Absent["culprits"] != "" {
		r.NoCulprit = view.NoCulprit(c)
	}
	if c.State == snapshot.ContentionBusy && len(c.Sufferers) == 0 {
		r.Sentence = view.UsageText(c) // the badge has the rest
	}
	if c.State == snapshot.ContentionUnknown {
		r.None = "unknown: " + view.Printable(c.Unknown())
	}
	r.Culprits = newPartyRows(c.Culprits, c.MoreCulprits, func(p *snapshot.Culprit) partyRow { return culpritRow(c, p) })
	r.Sufferers = newPartyRows(c.Sufferers, c.MoreSufferers, suffererRow)
	return r
}

// partiesShown of each kind, those with the largest shares.
const partiesShown = 4

func newPartyRows[T any](list []T, beyond int, row func(*T) partyRow) partyRows {
	r := partyRows{Beyond: beyond}
	for i := range list {
		if i < partiesShown {
			r.Shown = append(r.Shown, row(&list[i]))
		} else {
			r.Folded = append(r.Folded, row(&list[i]))
		}
	}
	return r
}

// contendedClass is the colour of a contention; the text has the same information.
const contendedClass = "soft"

func contentionClass(s snapshot.ContentionState) string {
	switch s {
	case snapshot.ContentionPresent:
		return contendedClass
	case snapshot.ContentionBusy:
		return "none"
	case snapshot.ContentionUnknown:
	}
	return unknownClass
}

func culpritRow(c *snapshot.Contention, p *snapshot.Culprit) partyRow {
	r := partyRow{ID: p.Cgroup, Name: view.Printable(p.Name), Where: view.Printable(p.Cgroup), Share: view.Ratio(p.Share), Bar: barOf(p.Share), Details: view.Usage(c, p)}
	if p.RequestsPerSecond > 0 {
		r.Details += " · " + view.Number(p.RequestsPerSecond) + " requests/s"
	}
	return r
}

func suffererRow(p *snapshot.Sufferer) partyRow {
	r := partyRow{ID: p.Cgroup, Name: view.Printable(p.Name), Where: view.Printable(p.Cgroup), Share: view.Ratio(p.Waited), For: view.Lasting(p), Bar: barOf(p.Waited), Details: "own share " + view.OwnShare(p)}
	if p.LowestClass {
		r.Details += " · lowest class (low QoS or mover): triggers no eviction"
	}
	return r
}

// barOf is the length of the bar of a share from 0 to 1.
func barOf(share float64) int { return int(min(1, max(0, share))*barWidth + 0.5) }
