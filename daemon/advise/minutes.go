package advise

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	minute = time.Minute
	// minuteRequests and minuteSegments are needed for a minute to count.
	minuteRequests, minuteSegments = 60, 1000
	// calmBusy is the limit of a disk's utilization in a calm minute. Above it
	// requests wait for others of the same workload, such as those of a backup
	// that is alone on the disk.
	calmBusy = 0.5
	// maxDisks that are tracked; later ones are ignored.
	maxDisks = 256
)

// diskRecord is the await of one disk in calm minutes: at most half busy, without
// contention.
type diskRecord struct {
	key, name  string
	rotational bool
	from       snapshot.DiskCounters
	since      time.Duration // when the minute began, on CLOCK_MONOTONIC
	pressed    bool          // there was contention in it
	seen       bool          // in this sample
	minutes    uint64        // with enough requests
	awaits     histogram     // seconds, of both directions in each minute
}

func (d *diskRecord) watch(m replay.Moment, disk *snapshot.Disk) {
	d.seen = true
	now := m.Snapshot.Monotonic()
	contention := stateOf(m, snapshot.SharedDisk, disk.Name) == snapshot.ContentionPresent
	d.pressed = d.pressed || contention
	switch {
	case d.since == 0 || m.Gap:
	case now-d.since < minute:
		return
	case !d.pressed && float64(disk.BusyMs-d.from.BusyMs) <= calmBusy*float64((now-d.since).Milliseconds()):
		d.add(disk)
	}
	d.from, d.since, d.pressed = disk.DiskCounters, now, contention
}

// add records the minute that ends.
func (d *diskRecord) add(now *snapshot.Disk) {
	before := d.awaits.n
	d.awaits.add(await(now.Reads-d.from.Reads, now.ReadMs-d.from.ReadMs))
	d.awaits.add(await(now.Writes-d.from.Writes, now.WriteMs-d.from.WriteMs))
	if d.awaits.n > before {
		d.minutes++
	}
}

// await is the mean time of requests in seconds; false when they are too few,
// or the counters were reset.
func await(requests, ms uint64) (seconds float64, some bool) {
	if requests < minuteRequests || requests > 1<<40 || ms > 1<<40 {
		return 0, false
	}
	return float64(ms) / float64(requests) / 1000, true
}

// stateOf is whether workloads wait for a resource; empty if it is not in use.
func stateOf(m replay.Moment, resource snapshot.SharedResource, device string) snapshot.ContentionState {
	for i := range m.Snapshot.Contention {
		c := &m.Snapshot.Contention[i]
		if c.Resource == resource && c.Device == device {
			return c.State
		}
	}
	return ""
}

// networkRecord is TCP's share of retransmitted segments, in minutes without a
// level of a link.
type networkRecord struct {
	since          time.Duration
	segments, lost uint64
	pressed        bool
	retransmits    histogram
}

func (n *networkRecord) watch(m replay.Moment) {
	segments, ok1 := m.Snapshot.Network.TCPSegmentsSent.Get()
	lost, ok2 := m.Snapshot.Network.TCPRetransmits.Get()
	if !ok1 || !ok2 {
		n.since = 0
		return
	}
	now := m.Snapshot.Monotonic()
	n.pressed = n.pressed || m.Levels.Of(plugins.NetworkIO) > plugins.None
	switch {
	case n.since == 0 || m.Gap:
	case now-n.since < minute:
		return
	case !n.pressed && segments >= n.segments+minuteSegments && lost >= n.lost:
		n.retransmits.add(float64(lost-n.lost)/float64(segments-n.segments), true)
	}
	n.since, n.segments, n.lost, n.pressed = now, segments, lost, false
}
