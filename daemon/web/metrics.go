package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// metricsHandler answers in the Prometheus text format 0.0.4. A scrape reads
// only the last published State: it never touches the kernel and never waits
// for a tick. Scrapes may run concurrently.
//
// An absent measurement has no series, and a family without series is omitted.
type metricsHandler struct {
	// agent is used before the first tick.
	agent view.Agent
	// state is the last published State; nil before the first tick.
	state func() *view.State
	// pods is nil where series of workloads are disabled.
	pods *PodSeries

	scratch sync.Pool // of *scrape
}

// scrape is the reusable buffers of one answer.
type scrape struct {
	text []byte
	rows []podRow
	zip  *gzip.Writer
}

// ServeHTTP answers with gzip when the client accepts it.
func (m *metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := m.state()
	if s == nil {
		s = &view.State{Agent: m.agent}
	}
	c, ok := m.scratch.Get().(*scrape)
	if !ok {
		c = &scrape{}
	}
	defer m.scratch.Put(c)
	c.text, c.rows = m.pods.append(appendMetrics(c.text[:0], s), s, c.rows)

	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	// A write fails when the client is gone.
	if acceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		_ = c.writeGzip(w)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(c.text)))
	_, _ = w.Write(c.text)
}

func (c *scrape) writeGzip(w io.Writer) error {
	if c.zip == nil {
		zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		c.zip = zip
	}
	c.zip.Reset(w)
	defer c.zip.Reset(io.Discard) // releases the connection
	if _, err := c.zip.Write(c.text); err != nil {
		return err
	}
	return c.zip.Close()
}

// acceptsGzip reports whether the client accepts gzip by name and not with
// weight 0 (RFC 9110, 12.5.3). A wildcard is ignored.
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return !isZeroWeight(weight)
			}
		}
	}
	return false
}

// isZeroWeight recognizes q=0, q=0.0 and so on.
func isZeroWeight(weight string) bool {
	name, value, found := strings.Cut(weight, "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
		return false
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return err == nil && q == 0
}

// appendMetrics appends all series of a State to b. A State without Snapshot or
// Levels has only those of the agent itself.
func appendMetrics(b []byte, s *view.State) []byte {
	b = appendAgent(b, &s.Agent)
	b = appendRecording(b, s.Agent.Recording)
	if s.Snapshot != nil {
		b = appendTick(b, s)
		b = appendTriggers(b, s.Agent.Triggers)
		b = appendProbes(b, s.Snapshot.Probes)
		b = appendHost(b, s.Snapshot)
		b = appendNUMA(b, s.Snapshot.NUMANodes)
		b = appendPressure(b, &s.Snapshot.Pressure)
		b = appendDisks(b, s.Snapshot.Disks)
		b = appendNICs(b, s.Snapshot.NICs)
		b = appendFilesystems(b, s.Snapshot.Filesystems)
		b = appendExhaustion(b, s.Snapshot.Exhaustion)
		b = appendContention(b, s)
	}
	if s.Levels != nil {
		b = appendVerdicts(b, s)
		b = appendKnees(b, s.Levels.Disks)
	}
	b = appendOuter(b, s.Outer)
	return appendCluster(b, s)
}
