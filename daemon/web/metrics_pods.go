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
	metrics podMetrics

	mu       sync.Mutex // guards all below; not held while text is written or sent
	sequence uint64     // of the sample of the last choice
	choice   podChoice
	cache    podCache
	dropped  uint64
	disks    podDisks // of one scrape
}

// NewPodSeries is for top workloads with maxSeries series together; nil for a
// top of 0. Hysteresis: a chosen workload stays while it is among the first 1.5
// × top, so at most that many have series at once, and a new one must leave a
// third of the series free.
func NewPodSeries(top, maxSeries int) *PodSeries {
	if top <= 0 {
		return nil
	}
	m := podMetrics{podFamilies(), podDiskFamilies()}
	return &PodSeries{
		metrics: m, choice: podChoice{top: top, max: maxSeries, metrics: m},
		cache: podCache{metrics: m, entries: map[workloadKey]*podEntry{}, owners: map[podName]workloadKey{}}, disks: podDisks{},
	}
}

// append appends the series of the chosen workloads, in the order of the
// Snapshot. room is a buffer for rows, which is returned empty.
func (p *PodSeries) append(b []byte, s *view.State, room []podRow) ([]byte, []podRow) {
	if p == nil || s.Snapshot == nil {
		return b, room
	}
	rows, dropped := p.rows(room[:0], s)
	b = p.metrics.append(b, rows)
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
	defer clear(p.disks)
	for i := range s.Snapshot.Disks {
		p.disks[s.Snapshot.Disks[i].Number] = &s.Snapshot.Disks[i]
	}
	if s.Snapshot.Sequence > p.sequence || p.sequence == 0 {
		chosen, dropped := p.choice.choose(s.Snapshot, p.disks, p.cache.has)
		p.cache.keep(chosen)
		p.dropped, p.sequence = p.dropped+dropped, s.Snapshot.Sequence
	}
	p.cache.nameAll(s)
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		if e, in := p.cache.entries[keyOf(w)]; in {
			rows = append(rows, p.cache.row(e, w, p.disks))
		}
	}
	return rows, p.dropped
}

// podDisks are the disks of one Snapshot, by number.
type podDisks map[string]*snapshot.DiskState

// name of the disk, or the number of an unknown one.
func (d podDisks) name(number string) string {
	if disk, known := d[number]; known {
		return disk.Name
	}
	return number
}

// usage is a workload's share of the device's busy time, by its share of the requests.
func (d podDisks) usage(io *snapshot.WorkloadIORates) float64 {
	disk, known := d[io.Number]
	if !known {
		return 0
	}
	r, _ := disk.Rates.Get() // zero without rates
	all := r.ReadsPerSecond + r.WritesPerSecond
	if all <= 0 {
		return 0
	}
	return min(1, (io.ReadsPerSecond+io.WritesPerSecond)/all) * r.BusyRatio
}

// podRow is one workload of one Snapshot.
type podRow struct {
	workload *snapshot.WorkloadState
	// prefixes are the text before the value of each podValue.
	prefixes []string
	// devices are in the order of workload.IO.
	devices []podDevice
}
