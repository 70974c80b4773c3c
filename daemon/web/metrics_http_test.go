package web

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func getMetrics(t testing.TB, m http.Handler, encodings ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header["Accept-Encoding"] = encodings
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w
}

func metricsBody(t testing.TB, w *httptest.ResponseRecorder) []byte {
	t.Helper()
	var r io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(w.Body)
		require.NoError(t, err)
		r = zip
	}
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return b
}

func TestMetricsContentType(t *testing.T) {
	w := getMetrics(t, &metricsHandler{state: fullState})
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "Accept-Encoding", w.Header().Get("Vary"))
	assert.Equal(t, string(appendMetrics(nil, fullState())), string(metricsBody(t, w)))
}

func TestMetricsGzipOnlyWhereAccepted(t *testing.T) {
	m := &metricsHandler{state: fullState}
	want := string(appendMetrics(nil, fullState()))
	for _, c := range []struct {
		accept []string
		zipped bool
	}{
		{nil, false},
		{[]string{"gzip"}, true},
		{[]string{"deflate, GZIP;q=0.5"}, true},
		{[]string{"br", "zstd , gzip"}, true},
		{[]string{"gzip;q=1.0"}, true},
		{[]string{"gzip;q=0"}, false},
		{[]string{"gzip; q=0.000, br"}, false},
		{[]string{"*"}, false},
		{[]string{"identity"}, false},
		{[]string{"gzipped"}, false},
	} {
		w := getMetrics(t, m, c.accept...)
		assert.Equal(t, c.zipped, w.Header().Get("Content-Encoding") == "gzip", "%q", c.accept)
		if c.zipped {
			assert.Less(t, w.Body.Len(), len(want)/2, "zipped is smaller")
		}
		assert.Equal(t, want, string(metricsBody(t, w)), "%q", c.accept)
	}
}

func TestMetricsBeforeFirstTick(t *testing.T) {
	agent := fullState().Agent
	for name, m := range map[string]*metricsHandler{
		"nothing published":         {agent: agent, state: func() *view.State { return nil }},
		"a State without a sample":  {state: func() *view.State { return &view.State{Agent: agent} }},
		"another Agent has no part": {agent: view.Agent{Version: "v0"}, state: func() *view.State { return &view.State{Agent: agent} }},
	} {
		families := parseMetrics(t, metricsBody(t, getMetrics(t, m)))
		assert.Equal(t, []string{
			"plimsoll_build_info", "plimsoll_config_last_reload_successful", "plimsoll_start_time_seconds",
		}, familyNames(families), name)
		labels := families["plimsoll_build_info"].GetMetric()[0].GetLabel()
		assert.Equal(t, "v1.2.3", labels[slices.IndexFunc(labels, func(l *dto.LabelPair) bool { return l.GetName() == "version" })].GetValue(), name)
		assert.Equal(t, 1_800_000_000.25, families["plimsoll_start_time_seconds"].GetMetric()[0].GetGauge().GetValue(), name)
	}
}

func TestMetricsVersionBeforeFirstTick(t *testing.T) {
	s := &Server{Version: "v9", State: func() *view.State { return nil }}
	assert.Contains(t, string(metricsBody(t, getMetrics(t, s.metrics()))), `plimsoll_build_info{version="v9",`)
	s.State, s.Cluster = fullState, fullCluster
	assert.Equal(t, string(appendMetrics(nil, fullState())), string(metricsBody(t, getMetrics(t, s.metrics()))), "then the State's")
}

// goneClient takes the headers and then no byte.
type goneClient struct{ http.ResponseWriter }

func (goneClient) Write([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

func TestMetricsClientGoneMidAnswer(t *testing.T) {
	m := &metricsHandler{state: fullState}
	want := string(appendMetrics(nil, fullState()))
	for range 10 {
		r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.Header.Set("Accept-Encoding", "gzip")
		m.ServeHTTP(goneClient{httptest.NewRecorder()}, r)
		assert.Equal(t, want, string(metricsBody(t, getMetrics(t, m, "gzip"))))
	}
}

// numbered is a State in which every counter of its disks is n.
func numbered(n uint64) *view.State {
	s := &view.State{Snapshot: &snapshot.Snapshot{}, Levels: &plugins.Levels{}}
	for _, name := range []string{"sda", "sdb", "sdc"} {
		s.Snapshot.Disks = append(s.Snapshot.Disks, snapshot.DiskState{Disk: snapshot.Disk{
			Name: name, DiskCounters: snapshot.DiskCounters{Reads: n, Writes: n, ReadBytes: n, WrittenBytes: n},
		}})
	}
	return s
}

func TestMetricsScrapeIsOneTick(t *testing.T) {
	var published atomic.Pointer[view.State]
	published.Store(numbered(1))
	m := &metricsHandler{state: published.Load}
	var scrapes sync.WaitGroup
	for client := range 4 {
		scrapes.Go(func() {
			encodings := []string{"identity", "gzip"}
			last := 0.0
			for i := range 50 {
				n := oneNumber(t, metricsBody(t, getMetrics(t, m, encodings[(client+i)%2])))
				assert.GreaterOrEqual(t, n, last, "ticks do not go back")
				last = n
			}
		})
	}
	done := make(chan struct{})
	go func() { scrapes.Wait(); close(done) }()
	for n := uint64(2); ; n++ {
		select {
		case <-done:
			return
		default:
			published.Store(numbered(n))
		}
	}
}

// oneNumber is the value that all counters of the disks share.
func oneNumber(t *testing.T, text []byte) float64 {
	seen := map[float64]bool{}
	for _, name := range []string{"reads_completed", "writes_completed", "read_bytes", "written_bytes"} {
		series := parseMetrics(t, text)["plimsoll_disk_"+name+"_total"].GetMetric()
		assert.Len(t, series, 3)
		for _, s := range series {
			seen[s.GetCounter().GetValue()] = true
		}
	}
	assert.Len(t, seen, 1, "a scrape mixes ticks")
	for n := range seen {
		return n
	}
	return 0
}
