package web

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestPodSeriesSameOnEachAddress(t *testing.T) {
	var state atomic.Pointer[view.State]
	s := &Server{State: state.Load, Pods: NewPodSeries(1, 1000)}
	one, other := s.metrics(), s.metrics()
	state.Store(sampled(1, using("a", 9), using("b", 3)))
	assert.Equal(t, []string{"a"}, namesIn(t, string(metricsBody(t, getMetrics(t, one)))))
	state.Store(sampled(2, using("a", 3), using("b", 9)))
	text := metricsBody(t, getMetrics(t, other))
	assert.Equal(t, []string{"b"}, namesIn(t, string(text)))
	assert.Equal(t, 2.0, droppedBy(t, string(text)), "one count for all clients")
}

// Two Prometheis scrape while samples follow one another and pods are renamed.
func TestPodSeriesConcurrentScrapes(t *testing.T) {
	var state atomic.Pointer[view.State]
	state.Store(manyPods(20))
	s := &Server{State: state.Load, Pods: NewPodSeries(10, 1000)}
	h := s.metrics()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			last := -1.0
			for range 30 {
				text := string(metricsBody(t, getMetrics(t, h, "gzip")))
				assert.Len(t, podValues(t, text, "plimsoll_pod_memory_bytes"), 10)
				now := droppedBy(t, text)
				assert.GreaterOrEqual(t, now, last, "a counter never goes back")
				last = now
			}
		})
	}
	for i := range uint64(60) {
		next := manyPods(20)
		next.Snapshot.Sequence = i + 2
		if i%3 == 0 {
			next.Cluster.PodOf = nil
		}
		if i%2 == 0 {
			next.Snapshot.Disks = nil
		}
		state.Store(next)
		runtime.Gosched()
	}
	group.Wait()
}

// stuckClient takes nothing until it is let go.
type stuckClient struct {
	http.ResponseWriter
	began, letGo chan struct{}
}

func (c stuckClient) Write(b []byte) (int, error) {
	close(c.began)
	<-c.letGo
	return len(b), nil
}

func TestPodSeriesSlowClientDelaysNone(t *testing.T) {
	h := (&Server{State: func() *view.State { return manyPods(3) }, Pods: NewPodSeries(10, 1000)}).metrics()
	stuck := stuckClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var group sync.WaitGroup
	group.Go(func() { h.ServeHTTP(stuck, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)) })
	<-stuck.began
	answered := make(chan int, 1)
	group.Go(func() { answered <- len(namesIn(t, string(metricsBody(t, getMetrics(t, h))))) })
	select {
	case n := <-answered:
		assert.Equal(t, 3, n)
	case <-deadline.After(10 * time.Second):
		assert.Fail(t, "the second scrape waits for the first one's client")
	}
	close(stuck.letGo)
	group.Wait()
}

func TestPodSeriesReleasesSnapshot(t *testing.T) {
	var state atomic.Pointer[view.State]
	h := (&Server{State: state.Load, Pods: NewPodSeries(10, 1000)}).metrics()
	state.Store(manyPods(5))
	scraped := weak.Make(state.Load().Snapshot)
	workloads, disks := weak.Make(&state.Load().Snapshot.Workloads[0]), weak.Make(&state.Load().Snapshot.Disks[0])
	getMetrics(t, h, "gzip")
	state.Store(sampled(2))
	deadline.Eventually(t, func() bool {
		runtime.GC()
		return scraped.Value() == nil && workloads.Value() == nil && disks.Value() == nil
	}, 10*time.Second, time.Millisecond, "what is kept between scrapes must not hold two minutes of samples")

	_, room := NewPodSeries(10, 1000).append(nil, manyPods(5), nil)
	require.GreaterOrEqual(t, cap(room), 5)
	for _, row := range room[:5] {
		assert.Zero(t, row, "nor the room for the next scrape")
	}
}

// Names of any bytes come back through Prometheus's own parser as values of
// the labels they belong to.
func FuzzPodNames(f *testing.F) {
	f.Add("shop", "cart-66b8d", "/system.slice/a.service", "sda")
	f.Add(`a"b\`, "x\ny", "/\xff} 1\nplimsoll_x 2", `"`)
	f.Add("{", ",workload_pod=\"x\"", "/\x00", "\\")
	f.Fuzz(func(t *testing.T, namespace, pod, cgroup, device string) {
		if namespace == "" || pod == "" || cgroup == "" {
			t.Skip("no API server lists such a pod, no kernel such a cgroup")
		}
		s := manyPods(1)
		s.Cluster.PodOf = func(string) (pods.Pod, bool) { return pods.Pod{Namespace: namespace, Name: pod}, true }
		s.Snapshot.Disks[0].Name = device
		other := using("", 1)
		other.Cgroup = cgroup
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, other)
		families := parseMetrics(t, []byte(podText(NewPodSeries(10, 1000), s)))
		require.Len(t, families["plimsoll_pod_memory_bytes"].GetMetric(), 2)
		require.Len(t, families["plimsoll_pod_disk_reads_completed_total"].GetMetric(), 1)
		got := map[string]string{}
		for _, m := range append(families["plimsoll_pod_disk_reads_completed_total"].GetMetric(), families["plimsoll_pod_memory_bytes"].GetMetric()...) {
			for _, l := range m.GetLabel() {
				got[l.GetName()] = l.GetValue()
			}
		}
		for label, want := range map[string]string{"workload_namespace": namespace, "workload_pod": pod, "cgroup": cgroup, "device": device} {
			require.True(t, utf8.ValidString(got[label]))
			if utf8.ValidString(want) {
				require.Equal(t, want, got[label])
			}
		}
	})
}

func TestPodSeriesOfRootCgroup(t *testing.T) {
	assert.Contains(t, podText(NewPodSeries(1, 1000), sampled(1, snapshot.WorkloadState{Workload: snapshot.Workload{MemoryBytes: snapshot.Some[uint64](4)}})), `{cgroup="/"} 4`)
}
