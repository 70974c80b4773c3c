package web

import (
	"cmp"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// busySecond is what one second of a disk with 2000 requests in flight adds to
// the kernel's milliseconds: their 32 bits wrap every 36 minutes.
const busySecond = 2_000_000

// hourStart is shortly before a wrap.
const hourStart = 1<<32 - 100*busySecond

// secondOfHour is the kernel's counters in second i of a busy hour.
func secondOfHour(i uint64) *snapshot.Sample {
	wrapped := func(perSecond uint64) uint64 { return uint64(uint32(hourStart + i*perSecond)) }
	return &snapshot.Sample{
		Monotonic: time.Duration(i) * time.Second, Boottime: time.Duration(i) * time.Second, BootID: "boot",
		CPU:      snapshot.CPU{Seconds: map[string]float64{"user": float64(i), "idle": float64(i % 7)}, Online: snapshot.Some(2)},
		Memory:   snapshot.Memory{Refaults: snapshot.Some(i * 5), OOMKills: snapshot.Some(i / 600)},
		Network:  snapshot.Network{TCPRetransmits: snapshot.Some(i), ListenDrops: snapshot.Some(i / 2), SoftnetSqueezed: snapshot.Some(i / 3)},
		Pressure: snapshot.Pressure{IO: snapshot.Stall{Some: snapshot.Some(i * 999_999), Full: snapshot.Some(i * 333_333)}},
		Disks: []snapshot.Disk{{Name: "nvme0n1", Number: "259:0", DiskCounters: snapshot.DiskCounters{
			Reads: i * 100, Writes: i * 50, ReadBytes: i << 24, WrittenBytes: i << 23,
			ReadMs: wrapped(busySecond), WriteMs: wrapped(busySecond / 2), BusyMs: wrapped(1000), WeightedMs: wrapped(3 * busySecond),
		}}},
		NICs: []snapshot.NIC{{Name: "eth0", NICCounters: snapshot.NICCounters{
			ReceiveBytes: 1<<33 + i<<27, TransmitBytes: 1<<33 + i<<26, ReceivePackets: i, TransmitPackets: i,
		}}},
	}
}

// counterValues is the value of every counter series, by name and labels.
func counterValues(families map[string]*dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for name, f := range families {
		if f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		for _, m := range f.GetMetric() {
			values[series(name, m.GetLabel())] = m.GetCounter().GetValue()
		}
	}
	return values
}

// series names one, whatever the order of its labels is.
func series(name string, labels []*dto.LabelPair) string {
	byName := func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) }
	for _, l := range slices.SortedFunc(slices.Values(labels), byName) {
		name += " " + l.GetName() + "=" + l.GetValue()
	}
	return name
}

func TestMetricsCountersNeverDecrease(t *testing.T) {
	h := snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
	var first, last map[string]float64
	var text []byte
	for i := range uint64(3601) {
		snapshot := h.Add(secondOfHour(i))
		if i%15 != 0 {
			continue
		}
		text = appendMetrics(text[:0], &view.State{Snapshot: snapshot})
		now := counterValues(parseMetrics(t, text))
		if first == nil {
			first, last = now, now
		}
		require.Len(t, now, len(first), "series come or go in second %d", i)
		for key, was := range last {
			require.GreaterOrEqual(t, now[key], was, "%s in second %d", key, i)
		}
		last = now
	}
	for name, want := range map[string]float64{
		"disk_read_time_seconds_total":  3600 * busySecond / 1000,
		"disk_write_time_seconds_total": 3600 * busySecond / 2000,
		"disk_io_time_seconds_total":    3600,
	} {
		key := "plimsoll_" + name + " device=nvme0n1 layer=unknown"
		require.Contains(t, last, key)
		assert.InDelta(t, want, last[key]-first[key], 1e-3, name)
	}
}

func TestMetricsCPUModesThatDecrease(t *testing.T) {
	var h snapshot.History
	text := string(appendMetrics(nil, &view.State{Snapshot: h.Add(secondOfHour(6))}))
	assert.Contains(t, text, `plimsoll_cpu_seconds_total{mode="user"} 6`)
	assert.NotContains(t, text, `mode="idle"`)
}
