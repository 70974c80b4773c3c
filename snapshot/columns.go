package snapshot

import (
	"cmp"
	"slices"
	"time"
)

// columns have the counters of workloads, most of which stay the same over many ticks: each
// value is kept once, and points say where it is. What a Snapshot has a copy of never changes:
// values are only added, and whole chunks are dropped.
type columns struct {
	workloads column[workloadPoint]
	stalls    column[stallPoint]
	details   column[detailPoint]
	io        column[ioPoint]
	// devices are the numbers of devices, by ioPoint.device; a kernel has few of them,
	// and uses them again.
	devices []string
}

// column is a list of values in chunks.
type column[T any] struct {
	first  uint32 // number of the first chunk
	chunks [][]T
	used   int // values of the last chunk
}

// place of a value, or of several in a row, in a column.
type place struct{ chunk, offset uint32 }

// chunkValues is how many values a chunk has, unless more are added in a row.
const chunkValues = 256

// add values in a row.
func (c *column[T]) add(values ...T) place {
	if n := len(c.chunks); n == 0 || len(c.chunks[n-1])-c.used < len(values) {
		c.chunks, c.used = append(c.chunks, make([]T, max(chunkValues, len(values)))), 0
	}
	at := place{c.first + uint32(len(c.chunks)-1), uint32(c.used)}
	c.used += copy(c.chunks[len(c.chunks)-1][c.used:], values)
	return at
}

// at returns n values in a row.
func (c *column[T]) at(p place, n uint32) []T {
	return c.chunks[p.chunk-c.first][p.offset : p.offset+n : p.offset+n]
}

// last is the number of the chunk that is being filled.
func (c *column[T]) last() uint32 { return c.first + uint32(max(1, len(c.chunks))-1) }

// dropBefore drops the chunks before a number.
func (c *column[T]) dropBefore(chunk uint32) {
	if chunk > c.first {
		c.chunks, c.first = slices.Clone(c.chunks[chunk-c.first:]), chunk
	}
}

// chunkNumbers are those of each column.
type chunkNumbers struct{ workloads, stalls, details, io uint32 }

func (c *columns) last() chunkNumbers {
	return chunkNumbers{c.workloads.last(), c.stalls.last(), c.details.last(), c.io.last()}
}

// dropBefore drops what no point refers to.
func (c *columns) dropBefore(n chunkNumbers) {
	c.workloads.dropBefore(n.workloads)
	c.stalls.dropBefore(n.stalls)
	c.details.dropBefore(n.details)
	c.io.dropBefore(n.io)
}

// pointOf keeps the counters of a workload at an instant. What is as in the point before is
// not kept again, unless it is in a chunk older than oldest. last is nil for a new series.
func (c *columns) pointOf(w *Workload, now time.Duration, last *place, oldest chunkNumbers) place {
	var before *workloadPoint
	if last != nil {
		before = &c.workloads.at(*last, 1)[0]
	}
	p := workloadPoint{readAt: w.At, cpu: rawCount(w.CPUMicroseconds), memory: rawCount(w.MemoryBytes), cpuStall: pastStall(w.Pressure.CPU)}
	if w.At == now {
		p.readAt = 0
	}
	stalls := stallPoint{pastStall(w.Pressure.Memory), pastStall(w.Pressure.IO)}
	if before != nil && before.stalls.chunk >= oldest.stalls && c.stalls.at(before.stalls, 1)[0] == stalls {
		p.stalls = before.stalls
	} else {
		p.stalls = c.stalls.add(stalls)
	}
	detail := detailPoint{
		throttledAt: w.ThrottledAt, statAt: w.statAt(), throttled: rawCount(w.ThrottledMicroseconds),
		hits: rawCount(w.LimitHits), kills: rawCount(w.OOMKills), reclaimed: rawCount(w.Reclaimed), charged: rawCount(w.Charged),
	}
	detail.network, _ = w.Network.Get()
	if w.ThrottledAt == w.At { // the same at many ticks
		detail.throttledAt = 0
	}
	if before != nil && before.detail.chunk >= oldest.details && c.details.at(before.detail, 1)[0] == detail {
		p.detail = before.detail
	} else {
		p.detail = c.details.add(detail)
	}
	c.keepIO(&p, w.IO, before, oldest.io)
	if before != nil && last.chunk >= oldest.workloads && *before == p {
		return *last
	}
	return c.workloads.add(p)
}

// keepIO keeps the counters of each device.
func (c *columns) keepIO(p *workloadPoint, io []WorkloadIO, before *workloadPoint, oldest uint32) {
	if len(io) == 0 {
		return
	}
	var was []ioPoint
	if before != nil && before.devices > 0 {
		was = c.io.at(before.io, before.devices)
	}
	var array [8]ioPoint
	now := array[:0]
	for i := range io {
		d := &io[i]
		now = append(now, ioPoint{c.device(d.Number, was, i), d.Reads, d.Writes, d.ReadBytes, d.WrittenBytes})
	}
	p.devices = uint32(len(now))
	if len(was) > 0 && before.io.chunk >= oldest && slices.Equal(was, now) {
		p.io = before.io
		return
	}
	p.io = c.io.add(now...)
}

// device is the index of a device, which mostly is the i-th of the point before.
func (c *columns) device(number string, was []ioPoint, i int) uint32 {
	if i < len(was) && c.devices[was[i].device] == number {
		return was[i].device
	}
	at := slices.Index(c.devices, number)
	if at < 0 {
		at = len(c.devices)
		c.devices = append(c.devices, number)
	}
	return uint32(at)
}

// past has the counters of a workload at an earlier point.
type past struct {
	at time.Duration // when it was read
	*workloadPoint
	*stallPoint
	*detailPoint
	columns *columns
}

func (c *columns) past(of *point, slot int) past {
	p := &c.workloads.at(of.workloads[slot], 1)[0]
	return past{p.readIn(of), p, &c.stalls.at(p.stalls, 1)[0], &c.details.at(p.detail, 1)[0], c}
}

// readIn is when the workload was read, in a point that has these counters.
func (p *workloadPoint) readIn(of *point) time.Duration { return cmp.Or(p.readAt, of.Monotonic) }

// throttledTime is the time that its throttling is as of.
func (p past) throttledTime() time.Duration { return cmp.Or(p.throttledAt, p.at) }

// onDevices are its counters of IO.
func (p past) onDevices() []ioPoint {
	if p.devices == 0 {
		return nil
	}
	return p.columns.io.at(p.workloadPoint.io, p.devices)
}

// on returns the counters on a device, which mostly is the i-th; nil: there are none.
func (p past) on(list []ioPoint, number string, i int) *ioPoint {
	if i < len(list) && p.columns.devices[list[i].device] == number {
		return &list[i]
	}
	for j := range list {
		if p.columns.devices[list[j].device] == number {
			return &list[j]
		}
	}
	return nil
}
