package web

import (
	"sync"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// PodSeries is the series of single workloads, those that use or suffer the
// most. What is dear to make is kept between scrapes: who is in, and the text
// before each value. A nil one has no series.
type PodSeries struct {
	top, max int
	families []podFamily
	disks    []podDiskFamily

	mu       sync.Mutex // guards all below; never held while text is made or sent
	sequence uint64     // of the sample that was chosen from last
	kept     map[workloadKey]*podEntry
	owners   map[podName]workloadKey
	dropped  uint64
	ranks    []podRank                    // of one choice alone
	devices  map[string]*probes.DiskState // of one scrape alone, by number
}

// NewPodSeries is for top workloads with maxSeries series together; nil for a
// top of 0. One that is in stays in while it is among the first top and half
// as many, so at most that many have series at once, and one that is not in
// yet must leave a third of the series free.
func NewPodSeries(top, maxSeries int) *PodSeries {
	if top <= 0 {
		return nil
	}
	return &PodSeries{
		top: top, max: maxSeries, families: podFamilies(), disks: podDiskFamilies(),
		kept: map[workloadKey]*podEntry{}, owners: map[podName]workloadKey{}, devices: map[string]*probes.DiskState{},
	}
}

// append appends the series of the workloads that are in, in the order of the
// Snapshot. rows is room for them, which is given back empty.
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
	clear(rows) // what is kept for the next scrape must not hold the Snapshot
	return appendFamilies(b, []uint64{dropped}, noLabels, []family[uint64]{
		{
			"plimsoll_pod_series_dropped_total", counter,
			"Series of workloads left out because of web.podSeries: each scraped sample adds those it omits once.",
			func(b []byte, n *uint64) []byte { return appendCount(b, *n) },
		},
	}), rows[:0]
}

// rows are the workloads of a State that are in, with the text before their
// values. A sample that is newer than the last one decides anew who is in.
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
	p.name(s)
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		if e, in := p.kept[keyOf(w)]; in {
			rows = append(rows, p.row(e, w))
		}
	}
	return rows, p.dropped
}

// podRow is one workload of one Snapshot.
type podRow struct {
	workload *probes.WorkloadState
	// prefixes are the text before the value of each podValue.
	prefixes []string
	// devices are those of workload.IO, in its order.
	devices []podDevice
}

// append leaves the family out when nobody has a value.
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
