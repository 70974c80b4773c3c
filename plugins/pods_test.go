package plugins

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// podNode is a made-up node of pods that the API server tells of.
type podNode struct {
	*life
	pods        []snapshot.Pod
	list        []snapshot.Workload
	reclaimable snapshot.Reclaimable
	absent      snapshot.Absent
	standalone  bool
	cluster     *snapshot.Cluster
}

func newPodNode(t *testing.T, c Config) *podNode {
	t.Helper()
	return &podNode{life: newLife(t, c)}
}

// pod adds one with its cgroup.
func (w *podNode) pod(name string, p snapshot.Pod) *podNode {
	p.UID, p.Namespace, p.Name = name, "ns", name
	w.pods = append(w.pods, p)
	w.list = append(w.list, snapshot.Workload{
		Cgroup: "/kubepods/burstable/pod" + name, Kind: snapshot.KindPod, Name: "pod " + name, PodUID: name, Inode: uint64(len(w.list) + 1),
		CPUMicroseconds: snapshot.Some[uint64](0), ThrottledMicroseconds: snapshot.Some[uint64](0),
		MemoryBytes: snapshot.Some[uint64](0), InactiveFileBytes: snapshot.Some[uint64](0), RSSBytes: snapshot.Some[uint64](0), LimitHits: snapshot.Some[uint64](0),
		Pressure: snapshot.Pressure{CPU: snapshot.Stall{Some: snapshot.Some[uint64](0)}, Memory: snapshot.Stall{Some: snapshot.Some[uint64](0), Full: snapshot.Some[uint64](0)}},
	})
	return w
}

// runs lets a pod have so many CPUs in the next second, wait for one for this
// share of it, and be held back by its own quota for another.
func (w *podNode) runs(i int, cores, waited, held float64) {
	add := func(to *snapshot.Opt[uint64], seconds float64) {
		if n, ok := to.Get(); ok {
			*to = snapshot.Some(n + uint64(1e6*seconds))
		}
	}
	l := &w.list[i]
	add(&l.CPUMicroseconds, cores)
	add(&l.Pressure.CPU.Some, waited)
	add(&l.ThrottledMicroseconds, held)
}

// changed tells the API server's pods anew.
func (w *podNode) changed() { w.cluster = nil }

// pass is one second.
func (w *podNode) pass() []Verdict {
	w.t.Helper()
	return w.second(func(s *snapshot.Sample) {
		s.Workloads = append(s.Workloads, w.list...)
		if w.standalone {
			return
		}
		if w.cluster == nil {
			w.cluster = snapshot.NewCluster(append([]snapshot.Pod{}, w.pods...), w.reclaimable, w.absent)
		}
		s.Cluster = w.cluster
	})
}

// for so many seconds the same happens.
func (w *podNode) repeat(d time.Duration, do func()) (v Verdict) {
	w.t.Helper()
	for range int(d / time.Second) {
		if do != nil {
			do()
		}
		v = w.pass()[0]
	}
	return v
}
