package snapshot

import "strings"

// differ subtracts counters. After a counter that decreased it is broken, and
// its differences mean nothing.
type differ struct{ decreased bool }

func (d *differ) u64(now, was uint64) uint64 {
	if now < was {
		d.decreased = true
		return 0
	}
	return now - was
}

// ms32 subtracts milliseconds that may have wrapped at 32 bits. On unwrapped
// values it is a plain difference, as long as that is below 2³² ms.
func (d *differ) ms32(now, was uint64) uint64 { return uint64(uint32(now) - uint32(was)) }

// opt is absent if one of the two is.
func (d *differ) opt(now, was Opt[uint64]) Opt[uint64] {
	n, ok := now.Get()
	w, was2 := was.Get()
	if !ok || !was2 {
		return Opt[uint64]{}
	}
	return Some(d.u64(n, w))
}

// Minus returns the increase since p, and false if a counter decreased.
func (c DiskCounters) Minus(p DiskCounters) (DiskCounters, bool) {
	var d differ
	return DiskCounters{
		Reads: d.u64(c.Reads, p.Reads), Writes: d.u64(c.Writes, p.Writes),
		ReadBytes: d.u64(c.ReadBytes, p.ReadBytes), WrittenBytes: d.u64(c.WrittenBytes, p.WrittenBytes),
		ReadMs: d.ms32(c.ReadMs, p.ReadMs), WriteMs: d.ms32(c.WriteMs, p.WriteMs),
		BusyMs: d.ms32(c.BusyMs, p.BusyMs), WeightedMs: d.ms32(c.WeightedMs, p.WeightedMs),
	}, !d.decreased
}

// Minus returns the increase since p, and false if a counter decreased.
func (c NICCounters) Minus(p NICCounters) (NICCounters, bool) {
	var d differ
	return NICCounters{
		ReceiveBytes: d.u64(c.ReceiveBytes, p.ReceiveBytes), ReceivePackets: d.u64(c.ReceivePackets, p.ReceivePackets),
		ReceiveErrors: d.u64(c.ReceiveErrors, p.ReceiveErrors), ReceiveDrops: d.u64(c.ReceiveDrops, p.ReceiveDrops),
		TransmitBytes: d.u64(c.TransmitBytes, p.TransmitBytes), TransmitPackets: d.u64(c.TransmitPackets, p.TransmitPackets),
		TransmitErrors: d.u64(c.TransmitErrors, p.TransmitErrors), TransmitDrops: d.u64(c.TransmitDrops, p.TransmitDrops),
	}, !d.decreased
}

func compare(a, b string) int { return strings.Compare(a, b) }
