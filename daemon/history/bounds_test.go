package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const mebibyte = 1 << 20

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func saved(t *testing.T, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Prepare()(&b))
	return b.Bytes()
}

// node is a node with pods, services, disks, NICs and rules, whose values move.
type node struct {
	scene
	random   *rand.Rand
	pods     []snapshot.WorkloadState
	services []snapshot.WorkloadState
	next     int
}

func newNode(pods int) *node {
	n := &node{scene: scene{at: noon(0), disks: map[string]float64{}}, random: rand.New(rand.NewPCG(1, 2))}
	for range pods {
		n.pods = append(n.pods, n.pod())
	}
	for i := range 60 {
		n.services = append(n.services, workload(fmt.Sprintf("/system.slice/service-%02d.service", i), 0, 1e6, 0, 0))
	}
	for i := range pods {
		n.nics = append(n.nics, snapshot.NICState{NIC: snapshot.NIC{Name: fmt.Sprintf("veth%d", i), Kind: "veth"}})
	}
	for i := range 12 {
		n.verdicts = append(n.verdicts, plugins.Verdict{Plugin: "disk-contention", Resource: plugins.Disk, Scope: fmt.Sprintf("nvme%dn1", i), Threshold: snapshot.Some(0.02), Unit: "seconds"})
	}
	return n
}

// pod is a new one.
func (n *node) pod() snapshot.WorkloadState {
	w := workload(podCgroup(n.next), 0.2, 1e8, 2e6, 0.01)
	w.Pod = &snapshot.Pod{Namespace: "namespace-of-it", Name: fmt.Sprintf("deployment-5d8f9c7b6-%05d", n.next)}
	n.next++
	return w
}

// step is the next step: share of the values move, each within an octave; new pods come
// for old ones.
func (n *node) step(share float64, churn int) {
	n.at = n.at.Add(fineStep)
	for range churn {
		n.pods[n.random.IntN(len(n.pods))] = n.pod()
	}
	moves := func(v float64) float64 {
		if n.random.Float64() < share {
			return v * (0.75 + n.random.Float64()/2)
		}
		return v
	}
	for i := range n.pods {
		w := &n.pods[i]
		r, _ := w.Rates.Get()
		r.CPUCores, r.IO[0].ReadBytesPerSecond = snapshot.Some(moves(0.2)), moves(2e6)
		r.Pressure.IO.Some, r.Pressure.Memory.Some = snapshot.Some(moves(0.01)), snapshot.Some(moves(0.005))
		w.Rates, w.WorkingSetBytes = snapshot.Some(r), snapshot.Some(uint64(moves(1e8)))
	}
	n.workloads = append(append(n.workloads[:0], n.pods...), n.services...)
	n.busy = snapshot.Some(moves(0.5))
	for _, v := range n.verdicts {
		n.disks[v.Scope] = moves(1e7)
	}
}

// A whole day of 250 pods (25 in short), of which each second one lives for less than a
// day. Half of all values change with each step.
func TestStoreSize(t *testing.T) {
	pods, most := live.Times(25, 250), live.Times(2, 8)*mebibyte
	n := newNode(pods)
	before := heap()
	store := &Store{}
	for i := range 24 * 360 {
		churn := 0
		if i%(70*250/pods) == 0 {
			churn = 1
		}
		n.step(0.5, churn)
		n.add(store)
	}
	after := heap()
	file := saved(t, store)
	t.Logf("heap %.2f MiB, file %.2f MiB, %d names", float64(after-before)/mebibyte, float64(len(file))/mebibyte, len(store.all))
	assert.Less(t, after-before, uint64(most))
	assert.Less(t, len(file), most)
	a := store.Answer(rangeOf(t, "day", n.at), n.workloads[0].Cgroup)
	known := 0
	for _, v := range a.Node["cpuBusyRatio"].Mean {
		if v == v {
			known++
		}
	}
	assert.InDelta(t, 1440, known, 3, "it is the whole day")
	whole := 0
	for _, pod := range n.workloads {
		for _, v := range store.Answer(rangeOf(t, "day", n.at), pod.Cgroup).Workloads[0].Values["cpuCores"].Mean[:60] {
			if v == v {
				whole++
				break
			}
		}
	}
	assert.Greater(t, whole, 170*pods/250, "of workloads too")
	runtime.KeepAlive(n)
}

// Whatever names and values are, the store stays as small.
func TestStoreBounds(t *testing.T) {
	t.Run("values that have no pattern", storesWildValues)
	t.Run("a hundred new pods with each step", storesChurn)
	t.Run("names without end", storesEndlessNames)
	t.Run("a name that is too long is still no other's", func(t *testing.T) {
		long := strings.Repeat("x", 1000)
		assert.NotEqual(t, bounded(long+"a"), bounded(long+"b"))
		assert.LessOrEqual(t, len(bounded(long)), maxName)
	})
}

func storesWildValues(t *testing.T) {
	n := newNode(250)
	before, largest := heap(), 0
	store := &Store{}
	for i := range live.Times(3, 12) * 360 {
		n.step(0, 0)
		for w := range n.workloads {
			r, _ := n.workloads[w].Rates.Get()
			r.CPUCores = snapshot.Some(100 * n.random.Float64() * n.random.Float64() * n.random.Float64())
			r.IO[0].ReadBytesPerSecond = float64(n.random.Uint64() >> n.random.IntN(60))
			r.Pressure.IO.Some = snapshot.Some(n.random.ExpFloat64())
			r.Pressure.Memory.Some = snapshot.Some(float64(uint64(1) << n.random.IntN(40)))
			n.workloads[w].Rates = snapshot.Some(r)
			n.workloads[w].WorkingSetBytes = snapshot.Some(n.random.Uint64() >> (24 + n.random.IntN(30)))
		}
		n.add(store)
		if i%100 == 0 {
			largest = max(largest, storeSize(store))
		}
	}
	after := heap()
	t.Logf("heap %.2f MiB, largest by its own count %.2f MiB", float64(after-before)/mebibyte, float64(largest)/mebibyte)
	assert.LessOrEqual(t, largest, maxBytes)
	assert.Less(t, after-before, uint64(8*mebibyte))
	assert.Less(t, len(saved(t, store)), maxFileBytes)
	runtime.KeepAlive(n)
}

func storesChurn(t *testing.T) {
	n := newNode(0)
	store := &Store{}
	hours := live.Times(1, 3)
	for range hours * 360 {
		n.pods = n.pods[:0]
		for range 100 {
			n.pods = append(n.pods, n.pod())
		}
		n.step(1, 0)
		n.add(store)
	}
	assert.LessOrEqual(t, storeSize(store), maxBytes)
	a := store.Answer(rangeOf(t, "day", n.at), "/system.slice/service-01.service")
	known := 0
	for _, v := range a.Workloads[0].Values["workingSetBytes"].Mean {
		if v == v {
			known++
		}
	}
	assert.Greater(t, known, 57*hours, "what runs all the time has lost nothing")
}

func storesEndlessNames(t *testing.T) {
	store, s := &Store{}, scene{at: noon(0)}
	for i := range 8 {
		s.at = s.at.Add(fineStep)
		s.disks, s.verdicts, s.workloads = map[string]float64{}, nil, nil
		for k := range 200 {
			name := strings.Repeat("\xff<", 3000) + fmt.Sprint(i, k)
			s.disks[name] = 1
			s.verdicts = append(s.verdicts, plugins.Verdict{Plugin: name, Scope: name, Unit: name, Resource: plugins.Resource(name)}, plugins.Verdict{Plugin: name, Scope: "x" + name})
		}
		for k := range 3000 {
			s.workloads = append(s.workloads, workload("/"+strings.Repeat("é", 4000)+fmt.Sprint(i, k), 1, 1, 1, 1))
		}
		s.add(store)
		for _, one := range store.all {
			require.LessOrEqual(t, len(one.name), 2*maxName+1)
		}
		require.LessOrEqual(t, storeSize(store), maxBytes)
		for k := kindNode; k < kindEnd; k++ {
			require.LessOrEqual(t, store.live[k], k.maxLive())
			if k != kindWorkload {
				require.LessOrEqual(t, len(store.byName[k]), k.maxLive())
			}
		}
	}
	assert.Greater(t, store.Omitted(), 2000, "it is said")
	assert.Less(t, len(saved(t, store)), maxFileBytes)
	assert.NoError(t, (&Store{}).Load(bytes.NewReader(saved(t, store))))
}

func storeSize(s *Store) int {
	bytes := 0
	for _, one := range s.all {
		bytes += one.size()
	}
	return bytes
}

// BenchmarkAdd is a tick of a node with 250 pods: nine of ten keep only levels.
func BenchmarkAdd(b *testing.B) {
	for name, between := range map[string]time.Duration{"tick": time.Second, "step": fineStep} {
		b.Run(name, func(b *testing.B) {
			n := newNode(250)
			n.step(1, 0)
			store := &Store{}
			snap, levels := n.state()
			b.ReportAllocs()
			for b.Loop() {
				snap.Time = snap.Time.Add(between)
				store.Add(snap, levels)
			}
		})
	}
}
