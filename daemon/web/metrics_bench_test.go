package web

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// manyDevices is a large machine: 250 disks and 250 NICs are 5000 series.
func manyDevices() *view.State {
	s := &view.State{Snapshot: &snapshot.Snapshot{}}
	for i := range uint64(250) {
		s.Snapshot.Disks = append(s.Snapshot.Disks, snapshot.DiskState{
			Disk: snapshot.Disk{Name: fmt.Sprintf("nvme%dn1", i), DiskCounters: snapshot.DiskCounters{
				Reads: i * 1_234_567, Writes: i * 7_654_321, ReadBytes: i << 32, WrittenBytes: i << 31,
				ReadMs: i * 98_765_432, WriteMs: i * 87_654_321, BusyMs: i * 7_654_321,
			}},
			Rates: snapshot.Some(snapshot.DiskRates{
				ReadsPerSecond: 100 + float64(i), WritesPerSecond: 50, ReadAwaitSeconds: snapshot.Some(0.0012345), WriteAwaitSeconds: snapshot.Some(0.0054321),
				QueueLength: float64(i) / 7, BusyRatio: float64(i) / 251,
			}),
		})
		s.Snapshot.NICs = append(s.Snapshot.NICs, snapshot.NICState{
			NIC: snapshot.NIC{
				Name: fmt.Sprintf("veth%08x", i*2_654_435_761), SpeedBytesPerSecond: snapshot.Some[uint64](1_250_000_000),
				NICCounters: snapshot.NICCounters{
					ReceiveBytes: i << 33, ReceivePackets: i << 20, ReceiveErrors: i, ReceiveDrops: i * 3,
					TransmitBytes: i << 34, TransmitPackets: i << 21, TransmitErrors: i, TransmitDrops: i * 5,
				},
			},
			Rates: snapshot.Some(snapshot.NICRates{ReceiveUtilizationRatio: snapshot.Some(float64(i) / 257), TransmitUtilizationRatio: snapshot.Some(float64(i) / 263)}),
		})
	}
	return s
}

// peerRegistry has the same series with the same values in client_golang's own
// counters and gauges, ready to be gathered.
func peerRegistry(t testing.TB, families map[string]*dto.MetricFamily) *prometheus.Registry {
	r := prometheus.NewRegistry()
	for name, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: f.GetHelp()}, labels)
		total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: f.GetHelp()}, labels)
		if f.GetType() == dto.MetricType_COUNTER {
			require.NoError(t, r.Register(total))
		} else {
			require.NoError(t, r.Register(vec))
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			total.WithLabelValues(values...).Add(m.GetCounter().GetValue())
			vec.WithLabelValues(values...).Set(m.GetGauge().GetValue())
		}
	}
	return r
}

// encodePeer is what promhttp does for a scrape without compression.
func encodePeer(t testing.TB, w io.Writer, g prometheus.Gatherer) {
	families, err := g.Gather()
	require.NoError(t, err)
	e := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		require.NoError(t, e.Encode(f))
	}
}

func countSeries(families map[string]*dto.MetricFamily) int {
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

func TestPeerBenchmarkSameSeries(t *testing.T) {
	for name, m := range large() {
		ours := parseMetrics(t, metricsBody(t, getMetrics(t, m)))
		require.Equal(t, m.series, countSeries(ours), name)
		var text bytes.Buffer
		encodePeer(t, &text, peerRegistry(t, ours))
		peers := parseMetrics(t, text.Bytes())
		require.Equal(t, familyNames(ours), familyNames(peers), name)
		require.Equal(t, counterValues(ours), counterValues(peers), name)
	}
}

// largeScrape is a handler and how many series it answers with.
type largeScrape struct {
	*metricsHandler
	series int
}

// large are two nodes of about 5000 series: by devices, and by pods. Each
// scrape finds a new sample.
func large() map[string]largeScrape {
	return map[string]largeScrape{
		"devices": {&metricsHandler{state: ticking(manyDevices())}, 250*(10+10) + 5},
		"pods":    {&metricsHandler{state: ticking(manyPods(250)), pods: NewPodSeries(250, 10_000)}, 250*20 + 59},
	}
}

// ticking is the same state with the next sequence number each time.
func ticking(s *view.State) func() *view.State {
	sequence := s.Snapshot.Sequence
	return func() *view.State {
		sequence++
		now, snapshot := *s, *s.Snapshot
		snapshot.Sequence = sequence
		now.Snapshot = &snapshot
		return &now
	}
}

// nowhere is a client that reads at once.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// BenchmarkMetrics answers with 5000 series beside client_golang in the
// same run, turn and turn about. "peer/ours" is the ratio of their CPU times.
func BenchmarkMetrics(b *testing.B) {
	for name, m := range large() {
		registry := peerRegistry(b, parseMetrics(b, metricsBody(b, getMetrics(b, m))))
		peer := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
		b.Run(name+"/text", func(b *testing.B) { sideBySide(b, scrapes(b, m, "identity"), scrapes(b, peer, "identity")) })
		b.Run(name+"/gzip", func(b *testing.B) { sideBySide(b, scrapes(b, m, "gzip"), scrapes(b, peer, "gzip")) })
	}
}

func scrapes(b *testing.B, h http.Handler, encoding string) func() {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", http.NoBody)
	require.NoError(b, err)
	r.Header.Set("Accept-Encoding", encoding)
	return func() { h.ServeHTTP(nowhere{http.Header{}}, r) }
}

// sideBySide measures CPU time of the whole process, so that neither other
// work on the machine nor the peer's goroutines count wrong.
func sideBySide(b *testing.B, ours, peer func()) {
	var our, its time.Duration
	for b.Loop() {
		start := cpuTime(b)
		ours()
		between := cpuTime(b)
		peer()
		our += between - start
		its += cpuTime(b) - between
	}
	b.ReportMetric(float64(our.Nanoseconds())/float64(b.N), "ours-cpu-ns")
	b.ReportMetric(float64(its.Nanoseconds())/float64(b.N), "peer-cpu-ns")
	b.ReportMetric(float64(its)/float64(our), "peer/ours")
	b.ReportMetric(0, "ns/op")
}

func cpuTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	require.NoError(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// BenchmarkMetricsAlone is for allocations and profiles.
func BenchmarkMetricsAlone(b *testing.B) {
	for name, m := range large() {
		b.Run(name, func(b *testing.B) {
			scrape := scrapes(b, m, "identity")
			b.ReportAllocs()
			for b.Loop() {
				scrape()
			}
		})
	}
}
