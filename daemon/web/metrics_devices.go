package web

import (
	"cmp"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// appendDevice appends the labels of a device. Devices of two layers repeat the
// same IO: sum over the layer leaf only.
func appendDevice(b []byte, name string, layer snapshot.Layer) []byte {
	return appendLabels(b, "device", name, "layer", cmp.Or(string(layer), "unknown"))
}

// appendDisks appends all whole disks.
func appendDisks(b []byte, disks []snapshot.DiskState) []byte {
	label := func(b []byte, d *snapshot.DiskState) []byte { return appendDevice(b, d.Name, d.Layer) }
	b = appendFamilies(b, disks, label, []family[snapshot.DiskState]{
		{
			"plimsoll_disk_reads_completed_total", counter, "Reads completed (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendCount(b, d.Reads) },
		},
		{
			"plimsoll_disk_writes_completed_total", counter, "Writes completed (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendCount(b, d.Writes) },
		},
		{
			"plimsoll_disk_read_bytes_total", counter, "Bytes read (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendCount(b, d.ReadBytes) },
		},
		{
			"plimsoll_disk_written_bytes_total", counter, "Bytes written (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendCount(b, d.WrittenBytes) },
		},
		{
			"plimsoll_disk_read_time_seconds_total", counter, "Time of all reads together, queue included (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendScaled(b, d.ReadMs, 1e3) },
		},
		{
			"plimsoll_disk_write_time_seconds_total", counter, "Time of all writes together, queue included (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendScaled(b, d.WriteMs, 1e3) },
		},
		{
			"plimsoll_disk_io_time_seconds_total", counter, "Time in which a request was in flight (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendScaled(b, d.BusyMs, 1e3) },
		},
	})
	return appendDiskRates(b, disks)
}

// appendDiskRates appends the rates that rules judge.
func appendDiskRates(b []byte, disks []snapshot.DiskState) []byte {
	label := func(b []byte, d *snapshot.DiskState) []byte { return appendDevice(b, d.Name, d.Layer) }
	return appendFamilies(b, disks, label, []family[snapshot.DiskState]{
		{
			"plimsoll_disk_await_seconds", gauge, "Mean time of the requests completed in the window, queue included; absent without one (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte { return appendOptFloat(b, await(d.Rates)) },
		},
		{
			"plimsoll_disk_queue_length", gauge, "Mean number of requests in flight in the window (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte {
				r, ok := d.Rates.Get()
				return appendIf(b, ok, r.QueueLength)
			},
		},
		{
			"plimsoll_disk_utilization_ratio", gauge, "Share of the window with a request in flight; on NVMe and RAID no sign of saturation (/proc/diskstats).",
			func(b []byte, d *snapshot.DiskState) []byte {
				r, ok := d.Rates.Get()
				return appendIf(b, ok, r.BusyRatio)
			},
		},
	})
}

// await is the mean over reads and writes, weighted by their numbers.
func await(rates snapshot.Opt[snapshot.DiskRates]) snapshot.Opt[float64] {
	r, ok := rates.Get()
	if !ok {
		return snapshot.Opt[float64]{}
	}
	requests, seconds := 0.0, 0.0
	if mean, ok := r.ReadAwaitSeconds.Get(); ok {
		requests += r.ReadsPerSecond
		seconds += r.ReadsPerSecond * mean
	}
	if mean, ok := r.WriteAwaitSeconds.Get(); ok {
		requests += r.WritesPerSecond
		seconds += r.WritesPerSecond * mean
	}
	if requests == 0 {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(seconds / requests)
}

// appendNICs appends the network devices of the host, but no veths: each pod has one, of a new
// name, and a user who makes pods would make eight series with each. What pods sent and received is
// in the series of single pods.
func appendNICs(b []byte, all []snapshot.NICState) []byte {
	var nics []snapshot.NICState
	for i := range all {
		if all[i].Kind != "veth" {
			nics = append(nics, all[i])
		}
	}
	label := func(b []byte, n *snapshot.NICState) []byte { return appendDevice(b, n.Name, n.Layer) }
	b = appendFamilies(b, nics, label, nicCounters())
	return appendFamilies(b, nics, label, []family[snapshot.NICState]{
		{
			"plimsoll_network_speed_bytes_per_second", gauge, "Speed of the link in each direction; absent when the driver does not know it (/sys/class/net speed).",
			func(b []byte, n *snapshot.NICState) []byte { return appendOptCount(b, n.SpeedBytesPerSecond) },
		},
		{
			"plimsoll_network_utilization_ratio", gauge, "Share of the link's speed used in the window, of the busier direction (/proc/net/dev).",
			func(b []byte, n *snapshot.NICState) []byte { return appendOptFloat(b, utilization(n.Rates)) },
		},
	})
}

func nicCounters() []family[snapshot.NICState] {
	return []family[snapshot.NICState]{
		{
			"plimsoll_network_receive_bytes_total", counter, "Bytes received (/proc/net/dev).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.ReceiveBytes) },
		},
		{
			"plimsoll_network_transmit_bytes_total", counter, "Bytes sent (/proc/net/dev).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.TransmitBytes) },
		},
		{
			"plimsoll_network_receive_packets_total", counter, "Packets received (/proc/net/dev).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.ReceivePackets) },
		},
		{
			"plimsoll_network_transmit_packets_total", counter, "Packets sent (/proc/net/dev).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.TransmitPackets) },
		},
		{
			"plimsoll_network_receive_errors_total", counter, "Receive errors (/proc/net/dev errs).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.ReceiveErrors) },
		},
		{
			"plimsoll_network_transmit_errors_total", counter, "Transmit errors (/proc/net/dev errs).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.TransmitErrors) },
		},
		{
			"plimsoll_network_receive_drops_total", counter, "Packets dropped on receive (/proc/net/dev drop).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.ReceiveDrops) },
		},
		{
			"plimsoll_network_transmit_drops_total", counter, "Packets dropped on transmit (/proc/net/dev drop).",
			func(b []byte, n *snapshot.NICState) []byte { return appendCount(b, n.TransmitDrops) },
		},
	}
}

// utilization is the higher of the two directions; a link is full duplex.
func utilization(rates snapshot.Opt[snapshot.NICRates]) snapshot.Opt[float64] {
	r, _ := rates.Get() // without rates there is no direction either
	in, ok1 := r.ReceiveUtilizationRatio.Get()
	out, ok2 := r.TransmitUtilizationRatio.Get()
	if !ok1 && !ok2 {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(max(in, out))
}

// appendIf appends the value if ok.
func appendIf(b []byte, ok bool, v float64) []byte {
	if !ok {
		return b
	}
	return appendFloat(b, v)
}
