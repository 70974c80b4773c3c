package snapshot

import (
	"math"
	"slices"
	"time"
)

// Window is the time between two samples of one unbroken history. A derived
// value is absent if a counter is absent or decreased.
type Window struct {
	points  []*point // all that are kept, contiguous; to is the newest
	from    int      // index of the oldest sample in the window
	to      *point
	seq     uint64   // sequence number of to
	columns *columns // of the points
	ended   []endedWorkload
	own     bool // it is that of the snapshot's rates
}

// Over returns the window that reaches d back from the snapshot, or as far as
// the history goes; covered reports whether it is all of d, to within jitter. That of a Snapshot
// without a history, as one decoded from JSON, has no length.
func (s *Snapshot) Over(d time.Duration) (w Window, covered bool) {
	points := s.points
	if len(points) == 0 {
		points = []*point{{}}
	}
	last := len(points) - 1
	w = Window{points: points, from: last, to: points[last], seq: s.Sequence, columns: &s.columns, ended: s.ended}
	for w.from > 0 && w.to.Monotonic-points[w.from].Monotonic < d-jitter {
		w.from--
	}
	w.own = w.from == s.from
	return w, w.Elapsed() >= d-jitter
}

// Within returns the longest window that is no longer than d; it has no length if the
// previous sample is older.
func (s *Snapshot) Within(d time.Duration) Window {
	w, _ := s.Over(d)
	for w.Elapsed() > d+jitter {
		w.from++
	}
	w.own = w.from == s.from
	return w
}

// Step is the window since the previous sample.
func (s *Snapshot) Step() Window {
	last := len(s.points) - 1
	return Window{points: s.points, from: max(0, last-1), to: s.points[last], seq: s.Sequence, columns: &s.columns}
}

// jitter is how much shorter than asked for a window may be and still count as
// covered, since ticks are early or late.
const jitter = 50 * time.Millisecond

// Elapsed is the window's length on the monotonic clock.
func (w Window) Elapsed() time.Duration { return w.to.Monotonic - w.points[w.from].Monotonic }

// Seconds is Elapsed in seconds.
func (w Window) Seconds() float64 { return w.Elapsed().Seconds() }

// base returns the sample to subtract from for a series: the start of the
// window, or of the series if that is later. Nil if that is the newest sample
// itself.
func (w Window) base(of series) *point {
	i := max(w.from, w.first(of))
	if i >= len(w.points)-1 {
		return nil
	}
	return w.points[i]
}

// first is the index of the oldest sample that is kept of a series.
func (w Window) first(of series) int {
	oldest := w.seq - uint64(len(w.points)-1)
	if of.began <= oldest {
		return 0
	}
	return int(of.began - oldest)
}

// CPUBusy is the used share of the time of all CPUs.
func (w Window) CPUBusy() Opt[float64] {
	b := w.points[w.from]
	cpus, ok := w.to.CPU.Online.Get()
	if w.Elapsed() <= 0 || !ok || cpus <= 0 || b.CPU.Seconds == nil || w.to.CPU.Seconds == nil {
		return Opt[float64]{}
	}
	used := w.to.CPU.BusySeconds() - b.CPU.BusySeconds()
	if used < 0 || math.IsNaN(used) { // a recording may have infinite sums
		return Opt[float64]{}
	}
	return Some(min(1, used/(w.Seconds()*float64(cpus))))
}

// CPUStolen is the share of the time of all CPUs that the hypervisor gave to others.
func (w Window) CPUStolen() Opt[float64] {
	cpus, ok := w.to.CPU.Online.Get()
	now, ok1 := w.to.CPU.Seconds["steal"]
	was, ok2 := w.points[w.from].CPU.Seconds["steal"]
	if w.Elapsed() <= 0 || !ok || !ok1 || !ok2 || cpus <= 0 || now < was {
		return Opt[float64]{}
	}
	return Some(min(1, (now-was)/(w.Seconds()*float64(cpus))))
}

// Memory returns the rates of reclaim.
func (w Window) Memory() MemoryRates {
	b := w.points[w.from].Memory
	m := w.to.Memory
	var r MemoryRates
	r.ScansPerSecond = plus(w.rate(m.ScansDirect, b.ScansDirect), w.rate(m.ScansKswapd, b.ScansKswapd))
	r.RefaultsPerSecond = w.rate(m.Refaults, b.Refaults)
	r.SwapInsPerSecond = w.rate(m.SwapIns, b.SwapIns)
	if w.Elapsed() > 0 {
		r.OOMKills = increase(m.OOMKills, b.OOMKills)
	}
	return r
}

// MaxAvailable is the largest available memory in any sample of the window, in
// bytes; absent if a sample lacks it.
func (w Window) MaxAvailable() Opt[uint64] {
	most := uint64(0)
	for _, p := range w.points[w.from:] {
		v, ok := p.Memory.AvailableBytes.Get()
		if !ok {
			return Opt[uint64]{}
		}
		most = max(most, v)
	}
	return Some(most)
}

// AvailableLost is how fast available memory shrank, in bytes per second; negative if it
// grew.
func (w Window) AvailableLost() Opt[float64] {
	was, ok1 := w.points[w.from].Memory.AvailableBytes.Get()
	now, ok2 := w.to.Memory.AvailableBytes.Get()
	if !ok1 || !ok2 || w.Elapsed() <= 0 {
		return Opt[float64]{}
	}
	return Some((float64(was) - float64(now)) / w.Seconds())
}

// MinNUMAFree is the least free memory of a NUMA node in any sample of the window,
// in bytes; absent if a sample lacks it.
func (w Window) MinNUMAFree(id int) Opt[uint64] {
	least := uint64(math.MaxUint64)
	for _, p := range w.points[w.from:] {
		i := slices.IndexFunc(p.NUMANodes, func(n NUMANode) bool { return n.ID == id })
		if i < 0 {
			return Opt[uint64]{}
		}
		free, ok := p.NUMANodes[i].FreeBytes.Get()
		if !ok {
			return Opt[uint64]{}
		}
		least = min(least, free)
	}
	return Some(least)
}

// Pressure is the node's stall.
func (w Window) Pressure() Ratios {
	return w.ratios(w.to.Pressure, w.points[w.from].Pressure, w.Seconds())
}

// most is the longest that a workload can have stalled where the node did for this
// share of the time. PSI is a mean over the CPUs that have something to do: tasks that
// stall on one CPU are a small part of the stall of a node whose other CPUs run.
func (w Window) most(node Opt[float64]) Opt[float64] {
	stall, known := node.Get()
	if !known {
		return node
	}
	cpus, _ := w.to.CPU.Online.Get()
	return Some(min(1, stall*float64(max(1, cpus))))
}

func (w Window) ratios(now, was Pressure, seconds float64) Ratios {
	one := func(n, p Stall) StallRatio {
		return StallRatio{Some: share(n.Some, p.Some, seconds), Full: share(n.Full, p.Full, seconds)}
	}
	return Ratios{CPU: one(now.CPU, was.CPU), Memory: one(now.Memory, was.Memory), IO: one(now.IO, was.IO)}
}

func (w Window) network() NetworkState {
	n, b := w.to.Network, w.points[w.from].Network
	s := NetworkState{Network: n}
	s.ListenDropsPerSecond = w.rate(n.ListenDrops, b.ListenDrops)
	s.SoftnetSqueezedPerSecond = w.rate(n.SoftnetSqueezed, b.SoftnetSqueezed)
	sent, again := w.TCP()
	all, ok1 := sent.Get()
	retransmits, ok2 := again.Get()
	if ok1 && ok2 && all > 0 {
		s.TCPRetransmitRatio = Some(float64(retransmits) / float64(all))
	}
	return s
}

// TCP returns how many segments the host's own network namespace sent in the
// window, and how many it retransmitted. Both are absent in a window of no
// length.
func (w Window) TCP() (sent, again Opt[uint64]) {
	if w.Elapsed() <= 0 {
		return sent, again
	}
	n, b := w.to.Network, w.points[w.from].Network
	return increase(n.TCPSegmentsSent, b.TCPSegmentsSent), increase(n.TCPRetransmits, b.TCPRetransmits)
}

// Disk returns the rates of a disk of the snapshot.
func (w Window) Disk(d *Disk) Opt[DiskRates] {
	b := w.base(d.series)
	if b == nil {
		return Opt[DiskRates]{}
	}
	c, ok := d.Minus(b.disks[d.series.slot])
	seconds := (w.to.Monotonic - b.Monotonic).Seconds()
	if !ok || seconds <= 0 {
		return Opt[DiskRates]{}
	}
	return Some(DiskRates{
		WindowSeconds:         seconds,
		ReadsPerSecond:        float64(c.Reads) / seconds,
		WritesPerSecond:       float64(c.Writes) / seconds,
		ReadBytesPerSecond:    float64(c.ReadBytes) / seconds,
		WrittenBytesPerSecond: float64(c.WrittenBytes) / seconds,
		ReadAwaitSeconds:      await(c.ReadMs, c.Reads),
		WriteAwaitSeconds:     await(c.WriteMs, c.Writes),
		QueueLength:           float64(c.WeightedMs) / 1000 / seconds,
		BusyRatio:             min(1, float64(c.BusyMs)/1000/seconds),
	})
}

// InFlight is the least number of requests that a disk of the snapshot had in flight at any
// sample of the window.
func (w Window) InFlight(d *Disk) uint64 {
	least := d.InFlight
	for _, p := range w.points[max(w.from, w.first(d.series)):] {
		least = min(least, p.disks[d.series.slot].InFlight)
	}
	return least
}

func await(ms, requests uint64) Opt[float64] {
	if requests == 0 {
		return Opt[float64]{}
	}
	return Some(float64(ms) / 1000 / float64(requests))
}

// NIC returns the rates of a NIC of the snapshot.
func (w Window) NIC(n *NIC) Opt[NICRates] {
	b := w.base(n.series)
	if b == nil {
		return Opt[NICRates]{}
	}
	c, ok := n.Minus(b.nics[n.series.slot])
	seconds := (w.to.Monotonic - b.Monotonic).Seconds()
	if !ok || seconds <= 0 {
		return Opt[NICRates]{}
	}
	r := NICRates{
		WindowSeconds:            seconds,
		ReceiveBytesPerSecond:    float64(c.ReceiveBytes) / seconds,
		TransmitBytesPerSecond:   float64(c.TransmitBytes) / seconds,
		ReceivePacketsPerSecond:  float64(c.ReceivePackets) / seconds,
		TransmitPacketsPerSecond: float64(c.TransmitPackets) / seconds,
		ErrorsPerSecond:          float64(c.ReceiveErrors+c.TransmitErrors) / seconds,
		DropsPerSecond:           float64(c.ReceiveDrops+c.TransmitDrops) / seconds,
	}
	if speed, ok := n.SpeedBytesPerSecond.Get(); ok && speed > 0 {
		r.ReceiveUtilizationRatio = Some(r.ReceiveBytesPerSecond / float64(speed))
		r.TransmitUtilizationRatio = Some(r.TransmitBytesPerSecond / float64(speed))
	}
	return Some(r)
}

// Workload returns the rates of a workload of the snapshot, each divided by the
// time between its own two readings; a value that was read once has no rate.
func (w Window) Workload(l *Workload) Opt[WorkloadRates] {
	var io []WorkloadIORates
	return w.workload(l, &io)
}

// workload appends the rates of IO to a list that all workloads share.
func (w Window) workload(l *Workload, io *[]WorkloadIORates) Opt[WorkloadRates] {
	was, ok := w.past(l)
	if !ok {
		return Opt[WorkloadRates]{}
	}
	seconds := (l.At - was.at).Seconds()
	if seconds <= 0 {
		return Opt[WorkloadRates]{}
	}
	r := WorkloadRates{
		WindowSeconds:  seconds,
		CPUCores:       per(l.CPUMicroseconds, optCount(was.cpu), seconds*1e6),
		ThrottledRatio: was.throttledRatio(l),
		LimitHits:      increase(l.LimitHits, optCount(was.hits)),
		Network:        networkRates(l.Network, was.network),

		MemoryTakenPerSecond: was.memoryTaken(l),
	}
	start := len(*io)
	if *io = was.appendIORates(*io, l.IO, seconds); len(*io) > start {
		r.IO = slices.Clip((*io)[start:])
	}
	r.Pressure.CPU = was.cpuStall.ratio(l.Pressure.CPU, seconds)
	r.Pressure.Memory = was.stallPoint.memory.ratio(l.Pressure.Memory, seconds)
	r.Pressure.IO = was.stallPoint.io.ratio(l.Pressure.IO, seconds)
	return Some(r)
}

// MemoryStall returns the memory part of Workload, for rules that need it of
// every workload at every tick: the share of the window in which its tasks
// stalled on memory, and how often it reached its own limit.
func (w Window) MemoryStall(l *Workload) (stall StallRatio, limitHits Opt[uint64]) {
	was, ok := w.past(l)
	if !ok {
		return StallRatio{}, Opt[uint64]{}
	}
	return was.stallPoint.memory.ratio(l.Pressure.Memory, (l.At - was.at).Seconds()), increase(l.LimitHits, optCount(was.hits))
}

// EndedMemoryStall is the share of the window in which workloads that are gone stalled on
// memory while they met their own limit or were throttled, of all of them together. After its
// last reading each counts as it did before, until it was gone.
func (w Window) EndedMemoryStall() (share float64) {
	start := w.points[w.from].Monotonic
	for i := range w.ended {
		l := &w.ended[i]
		if l.at <= start {
			continue
		}
		was, known := w.past(&l.Workload)
		if !known {
			continue
		}
		full, _ := was.stallPoint.memory.ratio(l.Pressure.Memory, (l.At - was.at).Seconds()).Full.Get()
		share += full * (l.at - max(start, was.at)).Seconds() / w.Seconds()
	}
	return share
}

// cpuRates are the part of Workload that tells how long it waited for a CPU.
func (w Window) cpuRates(l *WorkloadState) (r WorkloadRates, ok bool) {
	if w.own {
		return l.Rates.Get()
	}
	was, ok := w.past(&l.Workload)
	if !ok {
		return r, false
	}
	seconds := (l.At - was.at).Seconds()
	if seconds <= 0 {
		return r, false
	}
	r.CPUCores = per(l.CPUMicroseconds, optCount(was.cpu), seconds*1e6)
	r.ThrottledRatio = was.throttledRatio(&l.Workload)
	r.Pressure.CPU = was.cpuStall.ratio(l.Pressure.CPU, seconds)
	return r, true
}

// CPUSupply returns how many CPUs a workload used on average, and the share of
// the window in which a task of it waited for one, less the time that its own
// quota throttled it, which the kernel counts as waiting too. That time is
// summed over CPUs, so the result is rather too small than too large.
func (w Window) CPUSupply(l *Workload) (cores, waited Opt[float64]) {
	was, ok := w.past(l)
	if !ok {
		return cores, waited
	}
	seconds := (l.At - was.at).Seconds()
	cores = per(l.CPUMicroseconds, optCount(was.cpu), seconds*1e6)
	some, ok1 := was.cpuStall.ratio(l.Pressure.CPU, seconds).Some.Get()
	held, ok2 := increase(l.ThrottledMicroseconds, optCount(was.throttled)).Get()
	if !ok1 || !ok2 || seconds <= 0 {
		return cores, waited
	}
	return cores, Some(max(0, some-float64(held)/(seconds*1e6)))
}

// OOMKills returns how many processes of a workload the kernel killed in the
// window because memory ran out.
func (w Window) OOMKills(l *Workload) Opt[uint64] {
	was, ok := w.past(l)
	if !ok {
		return Opt[uint64]{}
	}
	return increase(l.OOMKills, optCount(was.kills))
}

// seen is for how many seconds of the window a workload was there: its rates are over no more
// than that.
func (w Window) seen(l *Workload) float64 {
	return (w.to.Monotonic - w.points[max(w.from, w.first(l.series))].Monotonic).Seconds()
}

// past returns the counters of a workload at the start of the window; false if it did not
// exist before. Of a workload that was not read in the window since they are those of the
// reading before its last: what it did until that one is the newest that is known.
func (w Window) past(l *Workload) (p past, existed bool) {
	first := w.first(l.series)
	i := max(w.from, first)
	if i >= len(w.points)-1 {
		return past{}, false
	}
	p = w.columns.past(w.points[i], l.series.slot)
	for i > first && p.at == l.At {
		i--
		p = w.columns.past(w.points[i], l.series.slot)
	}
	return p, true
}

func (c stallCount) ratio(now Stall, seconds float64) StallRatio {
	return StallRatio{Some: share(now.Some, optCount(c.some), seconds), Full: share(now.Full, optCount(c.full), seconds)}
}

func (p past) throttledRatio(l *Workload) Opt[float64] {
	return per(l.ThrottledMicroseconds, optCount(p.throttled), (l.ThrottledAt-p.throttledTime()).Seconds()*1e6)
}

// memoryTaken is how fast a workload took memory: on v1 what it was charged, as
// of StatAt; on v2 its growth plus what was reclaimed from it. If that was not read
// again it took what it grew, or more; one that did not grow may have taken any.
func (p past) memoryTaken(l *Workload) Opt[float64] {
	seconds, stat := (l.At - p.at).Seconds(), (l.statAt() - p.statAt).Seconds()
	if charged := per(l.Charged, optCount(p.charged), stat/pageBytes()); !charged.IsZero() {
		return charged
	}
	now, ok1 := l.MemoryBytes.Get()
	was, ok2 := optCount(p.workloadPoint.memory).Get()
	if !ok1 || !ok2 || seconds <= 0 {
		return Opt[float64]{}
	}
	grown := (float64(now) - float64(was)) / seconds
	back, counted := per(l.Reclaimed, optCount(p.reclaimed), stat/pageBytes()).Get()
	if !counted && grown <= 0 {
		return Opt[float64]{}
	}
	return Some(grown + back)
}

// networkRates are absent if the counters were not read again, or are of
// another namespace.
func networkRates(o Opt[WorkloadNetwork], was WorkloadNetwork) Opt[WorkloadNetworkRates] {
	now, ok := o.Get()
	seconds := (now.At - was.At).Seconds()
	if !ok || was.At == 0 || seconds <= 0 || now.Namespace != was.Namespace {
		return Opt[WorkloadNetworkRates]{}
	}
	var d differ
	r := WorkloadNetworkRates{
		WindowSeconds:            seconds,
		ReceiveBytesPerSecond:    float64(d.u64(now.ReceiveBytes, was.ReceiveBytes)) / seconds,
		ReceivePacketsPerSecond:  float64(d.u64(now.ReceivePackets, was.ReceivePackets)) / seconds,
		TransmitBytesPerSecond:   float64(d.u64(now.TransmitBytes, was.TransmitBytes)) / seconds,
		TransmitPacketsPerSecond: float64(d.u64(now.TransmitPackets, was.TransmitPackets)) / seconds,
	}
	if d.decreased {
		return Opt[WorkloadNetworkRates]{}
	}
	return Some(r)
}

// appendIORates leaves out a device that is new or whose counters decreased.
func (p past) appendIORates(rates []WorkloadIORates, now []WorkloadIO, seconds float64) []WorkloadIORates {
	devices := p.onDevices()
	for i := range now {
		n := &now[i]
		was := p.on(devices, n.Number, i)
		if was == nil {
			continue
		}
		var d differ
		r := WorkloadIORates{
			Number:                n.Number,
			ReadsPerSecond:        float64(d.u64(n.Reads, was.reads)) / seconds,
			WritesPerSecond:       float64(d.u64(n.Writes, was.writes)) / seconds,
			ReadBytesPerSecond:    float64(d.u64(n.ReadBytes, was.readBytes)) / seconds,
			WrittenBytesPerSecond: float64(d.u64(n.WrittenBytes, was.written)) / seconds,
		}
		if !d.decreased {
			rates = append(rates, r)
		}
	}
	return rates
}

// increase is the difference of a counter, absent if one value is absent or the
// counter decreased.
func increase(now, was Opt[uint64]) Opt[uint64] {
	var d differ
	v := d.opt(now, was)
	if d.decreased {
		return Opt[uint64]{}
	}
	return v
}

func per(now, was Opt[uint64], unit float64) Opt[float64] {
	v, ok := increase(now, was).Get()
	if !ok || unit <= 0 {
		return Opt[float64]{}
	}
	return Some(float64(v) / unit)
}

func (w Window) rate(now, was Opt[uint64]) Opt[float64] { return per(now, was, w.Seconds()) }

// share is a difference in µs as a share of the window. The file and the clock
// are not read at one instant, so it is limited to one.
func share(now, was Opt[uint64], seconds float64) Opt[float64] {
	v, ok := per(now, was, seconds*1e6).Get()
	if !ok {
		return Opt[float64]{}
	}
	return Some(min(1, v))
}

// plus adds the values that are present.
func plus(a, b Opt[float64]) Opt[float64] {
	x, ok1 := a.Get()
	y, ok2 := b.Get()
	if !ok1 && !ok2 {
		return Opt[float64]{}
	}
	return Some(x + y)
}

// BusySeconds is the time in the modes that never decrease, without idle and
// iowait.
func (c CPU) BusySeconds() float64 {
	sum := 0.0
	for _, mode := range []string{"user", "nice", "system", "irq", "softirq", "steal"} {
		sum += c.Seconds[mode]
	}
	return sum
}

// TrendPoint has the rates between two consecutive samples.
type TrendPoint struct {
	// AgoSeconds is the time before the snapshot.
	AgoSeconds float64
	Stall      Ratios
	CPUBusy    Opt[float64]
}

// Trend returns the rates from sample to sample over all that the snapshot can
// look back on, oldest first, for plots. It is empty for a Snapshot that was
// decoded from JSON.
func (s *Snapshot) Trend() []TrendPoint {
	var trend []TrendPoint
	for i := 1; i < len(s.points); i++ {
		w := Window{points: s.points[:i+1], from: i - 1, to: s.points[i], seq: s.Sequence - uint64(len(s.points)-1-i)}
		trend = append(trend, TrendPoint{
			AgoSeconds: (s.Monotonic() - w.to.Monotonic).Seconds(), Stall: w.Pressure(), CPUBusy: w.CPUBusy(),
		})
	}
	return trend
}
