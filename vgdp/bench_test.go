package vgdp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// large is a cluster of so many nodes in 20 zones, a twelfth of them pressed, and
// loads of 200 Backups: a half of them bound to nodes, the others to zones.
func large(n, loads int) Input {
	r := rand.New(rand.NewPCG(1, 1))
	fleet := nodes(n, 4)
	in := world(400, nil)
	for i := range fleet {
		fleet[i].Labels["zone"] = fmt.Sprint(i % 20)
		if i%12 == 0 {
			in.Pressure[fleet[i].Name] = Pressure{Budget: new(1), Why: "disk soft on nvme0n1"}
		}
	}
	in.Topology = NewTopology(fleet)
	var places []Place
	for zone := range 20 {
		pv := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint(zone)}},
		}}}}
		places = append(places, NewPlace(PlaceSpec{Volumes: []*corev1.NodeSelector{pv}}))
	}
	kinds := []Kind{DataUpload, DataDownload, PodVolumeBackup, PodVolumeRestore}
	for i := range loads {
		l := load(fmt.Sprintf("l%05d", i), kinds[i%4], of(fmt.Sprint("b", r.IntN(200))), made(at(-time.Duration(r.IntN(3*3600))*time.Second)))
		l.Scheduled = r.IntN(3) > 0
		if l.bound() {
			l.Node = fleet[r.IntN(n)].Name
		} else {
			l.Place = places[r.IntN(20)]
		}
		in.Loads = append(in.Loads, l)
	}
	return in
}

func BenchmarkDecide(b *testing.B) {
	for _, limit := range []int{4, 400, 0} {
		b.Run(fmt.Sprintf("5000 nodes, 50000 loads, limit %d", limit), func(b *testing.B) {
			in := large(5000, 50000)
			in.Veleros["velero"] = Velero{Epoch: 7, PrepareLimit: limit}
			b.ReportAllocs()
			start := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)
			for b.Loop() {
				Decide(in)
			}
			took := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID) - start
			b.ReportMetric(took.Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkModel is the slow and plain decision beside this one, about loads that
// it can still manage: each is bound to a node.
func BenchmarkModel(b *testing.B) {
	in := large(20, 200) // with five times as many the model takes a hundred times as long
	in.Veleros["velero"] = Velero{Epoch: 7, PrepareLimit: 40}
	for i := range in.Loads {
		if l := &in.Loads[i]; l.Node == "" {
			l.Node = in.Topology.nodes[i%20].Name
		}
	}
	var ours, its time.Duration
	for b.Loop() {
		start := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)
		d := Decide(in)
		between := cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)
		m := model{in: in}
		admit, waits := m.decide()
		ours, its = ours+between-start, its+cpuTime(b, unix.CLOCK_PROCESS_CPUTIME_ID)-between
		require.Len(b, d.Admit, len(admit))
		require.Len(b, d.Waiting, len(waits))
	}
	b.ReportMetric(ours.Seconds()*1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(its.Seconds()*1000/float64(b.N), "model-cpu-ms/op")
}

func BenchmarkTopology(b *testing.B) {
	for _, volumes := range []string{"zones", "local disks"} {
		b.Run(volumes, func(b *testing.B) {
			in := large(5000, 50000)
			if volumes == "local disks" {
				in.onLocalDisks()
			}
			for b.Loop() {
				in.Topology = NewTopology(in.Topology.nodes)
				for i := range in.Loads {
					in.Topology.ReachOf(&in.Loads[i])
				}
			}
		})
	}
}

// onLocalDisks puts each volume on one node, so that there are as many places as nodes.
func (in *Input) onLocalDisks() {
	for i := range in.Loads {
		if l := &in.Loads[i]; l.Node == "" {
			l.Place = Place{}.With(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{in.Topology.nodes[i%len(in.Topology.nodes)].Name}},
			}}}})
		}
	}
}

// cpuTime of this process or thread: what others take from it does not count.
func cpuTime(tb testing.TB, clock int32) time.Duration {
	tb.Helper()
	var ts unix.Timespec
	require.NoError(tb, unix.ClockGettime(clock, &ts))
	return time.Duration(ts.Nano())
}

// The bound is twice what is promised.
func TestDecideLargeClusterFast(t *testing.T) {
	size := 5000
	if race {
		size = 100
	}
	in := large(size, 10*size)
	Decide(in) // the fleet finds out who can run where
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	for range 9 {
		start := cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID)
		Decide(in)
		took = append(took, cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID)-start)
	}
	slices.Sort(took)
	t.Logf("a decision for %d loads on %d nodes takes %v of a processor, from %v to %v", 10*size, size, took[4], took[0], took[8])
	assert.Less(t, took[0], 100*time.Millisecond)
}
