package web

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// PodSeries is the series of single workloads, those with the highest use or
// pressure. What is expensive is cached between scrapes: the chosen workloads,
// and the text before each value. A nil one has no series.
type PodSeries struct {
	top, max int
	families []podFamily
	disks    []podDiskFamily

	mu       sync.Mutex // guards all below; not held while text is written or sent
	sequence uint64     // of the sample of the last choice
	entries  map[workloadKey]*podEntry
	owners   map[podName]workloadKey
	dropped  uint64
	ranks    []podRank                      // scratch of one choice
	devices  map[string]*snapshot.DiskState // of one scrape, by number
}

// NewPodSeries is for top workloads with maxSeries series together; nil for a
// top of 0. Hysteresis: a chosen workload stays while it is among the first 1.5
// × top, so at most that many have series at once, and a new one must leave a
// third of the series free.
func NewPodSeries(top, maxSeries int) *PodSeries {
	if top <= 0 {
		return nil
	}
	return &PodSeries{
		top: top, max: maxSeries, families: podFamilies(), disks: podDiskFamilies(),
		entries: map[workloadKey]*podEntry{}, owners: map[podName]workloadKey{}, devices: map[string]*snapshot.DiskState{},
	}
}

// append appends the series of the chosen workloads, in the order of the
// Snapshot. room is a buffer for rows, which is returned empty.
func (p *PodSeries) append(b []byte, s *view.State, room []podRow) ([]byte, []podRow) {
	if p == nil || s.Snapshot == nil {
		return b, room
	}
	rows, dropped := p.rows(room[:0], s)
	slot := 0
	for i := range p.families {
		b = p.families[i].append(b, rows, slot)
		slot += len(p.families[i].of)
	}
	for i := range p.disks {
		b = p.disks[i].append(b, rows, i)
	}
	clear(rows) // the reused buffer must not retain the Snapshot
	return appendFamilies(b, []uint64{dropped}, noLabels, []family[uint64]{
		{
			"plimsoll_pod_series_dropped_total", counter,
			"Series of workloads left out because of web.podSeries: each scraped sample adds those it omits once.",
			func(b []byte, n *uint64) []byte { return appendCount(b, *n) },
		},
	}), rows[:0]
}

// rows are the chosen workloads of a State, with the text before their values.
// A newer sample than the last one causes a new choice.
func (p *PodSeries) rows(rows []podRow, s *view.State) ([]podRow, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer clear(p.devices)
	for i := range s.Snapshot.Disks {
		p.devices[s.Snapshot.Disks[i].Number] = &s.Snapshot.Disks[i]
	}
	if s.Snapshot.Sequence > p.sequence || p.sequence == 0 {
		p.choose(s.Snapshot)
		p.sequence = s.Snapshot.Sequence
	}
	p.nameAll(s)
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		if e, in := p.entries[keyOf(w)]; in {
			rows = append(rows, p.row(e, w))
		}
	}
	return rows, p.dropped
}

// podRow is one workload of one Snapshot.
type podRow struct {
	workload *snapshot.WorkloadState
	// prefixes are the text before the value of each podValue.
	prefixes []string
	// devices are in the order of workload.IO.
	devices []podDevice
}

// append omits the family if no workload has a value.
func (f *podFamily) append(b []byte, rows []podRow, slot int) []byte {
	start := len(b)
	b = appendHeader(b, f.name, f.kind, f.help)
	header := len(b)
	for i := range f.of {
		for r := range rows {
			v, ok := f.of[i].value(rows[r].workload).Get()
			if !ok {
				continue
			}
			b = append(b, rows[r].prefixes[slot+i]...)
			b = append(appendScaled(b, v, f.scale), '\n')
		}
	}
	if len(b) == header {
		return b[:start]
	}
	return b
}

func (f *podDiskFamily) append(b []byte, rows []podRow, slot int) []byte {
	start := len(b)
	b = appendHeader(b, f.name, counter, f.help)
	header := len(b)
	for r := range rows {
		for i := range rows[r].devices {
			b = append(b, rows[r].devices[i].prefixes[slot]...)
			b = append(appendCount(b, f.value(&rows[r].workload.IO[i])), '\n')
		}
	}
	if len(b) == header {
		return b[:start]
	}
	return b
}
