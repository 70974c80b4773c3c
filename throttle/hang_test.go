package throttle

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// stuckDisk is a kernel in which every write about a disk waits for it.
type stuckDisk struct {
	*kernel
	answers chan struct{} // closed: it does
	others  time.Time     // the last write about anything else
	refuses error
	asked   atomic.Int32 // writes about it
	mu      sync.Mutex   // guards kernel where two answer at once
}

func (d *stuckDisk) Set(k Knob, n uint64) error {
	if !k.disk() {
		d.others = time.Now()
		return d.kernel.Set(k, n)
	}
	d.asked.Add(1)
	<-d.answers
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses != nil {
		return d.refuses
	}
	return d.kernel.Set(k, n)
}

// A write that hangs costs one timeout, and holds up no limit of memory or the CPU. Whatever
// is wanted meanwhile, and whether it ends as a write or as an error: what came of it is
// known, and everything is put back.
func TestLimitWriteHangsAndEndsLate(t *testing.T) {
	memory, other := Knob{Cgroup: "/kubepods/pod9", Name: Memory}, Knob{Cgroup: "/kubepods/pod9", Name: Read, Device: "8:16"}
	for name, row := range map[string]struct {
		meanwhile map[Knob]float64
		refuses   error
		then      uint64
	}{
		"the same is wanted": {map[Knob]float64{reads: 100}, nil, 100},
		"less is wanted":     {map[Knob]float64{reads: 70}, nil, 70},
		"it is refused":      {map[Knob]float64{reads: 70}, unix.EIO, 70},
		"none is wanted":     {nil, nil, 0},
		"none, and refused":  {nil, unix.EIO, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newJournalFixture()
				d.now[memory], d.now[other] = 0, 0
				require.NoError(t, d.Journal.Set(map[Knob]float64{other: 200}))
				before := newJournalFixture().now
				before[memory], before[other] = 0, 0
				stuck := &stuckDisk{kernel: d.kernel, answers: make(chan struct{}), refuses: row.refuses}
				d.Files, d.Timeout = stuck, time.Second
				start := time.Now()
				err := d.Journal.Set(map[Knob]float64{reads: 100, writes: 90, other: 60, memory: 5, cores: 7})
				require.ErrorContains(t, err, "limit /kubepods/pod1 read 8:0: the kernel has not answered since")
				require.ErrorContains(t, err, "limit /kubepods/pod1 write 8:0: the kernel has not answered since")
				assert.Equal(t, time.Second+time.Second/leastWait, time.Since(start), "of both disks together")
				assert.EqualValues(t, 2, stuck.asked.Load(), "one worker for a disk")
				assert.Equal(t, []uint64{5, 7}, []uint64{d.now[memory], d.now[cores]})
				assert.Equal(t, start, stuck.others, "they do not wait for the disks")
				assert.False(t, d.Limits[d.at(reads)].InForce())
				for range 3 {
					start = time.Now()
					require.ErrorContains(t, d.Journal.Set(row.meanwhile), "limit /kubepods/pod1 read 8:0: the kernel has not answered since")
					assert.Zero(t, time.Since(start), "it has had its time")
					assert.True(t, slices.ContainsFunc(d.kept, func(l Limit) bool { return l.Knob == reads && l.Value == 100 }), "still known to the next agent")
				}
				assert.Equal(t, []uint64{0, 0}, []uint64{d.now[memory], d.now[cores]}, "limits of others are removed")

				close(stuck.answers)
				synctest.Wait()
				stuck.refuses = nil
				require.NoError(t, d.Journal.Set(row.meanwhile))
				assert.Equal(t, row.then, d.now[reads])
				assert.False(t, slices.ContainsFunc(d.Limits, func(l Limit) bool { return l.Foreign }))
				require.NoError(t, d.Journal.Set(nil))
				assert.Equal(t, before, d.now)
				assert.Empty(t, d.kept)
				assert.Empty(t, d.hanging)
			})
		})
	}
}
