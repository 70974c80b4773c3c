package admission

import (
	"maps"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Buckets of the waits from creation to the ticket, in seconds: up to half a day.
func Buckets() [12]float64 {
	return [12]float64{0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200}
}

// Waits of the loads to which this process issued tickets, a histogram.
type Waits struct {
	// Within counts the waits up to each of Buckets.
	Within [12]uint64
	Count  uint64
	Sum    time.Duration
}

func (w *Waits) add(d time.Duration) {
	w.Count, w.Sum = w.Count+1, w.Sum+d
	for i, limit := range Buckets() {
		if d.Seconds() <= limit {
			w.Within[i]++
		}
	}
}

// Counts are the actions of this process.
type Counts struct {
	// Writes by kind.
	Writes map[Kind]uint64
	// Conflicts: the load was changed meanwhile. Failures: the API server refused or
	// failed.
	Conflicts, Failures uint64
	// Bypassed were accepted without the ticket that they needed.
	Bypassed map[string]uint64 // by Velero
	// Overdue got a ticket in spite of pressure.
	Overdue uint64
	// Waits by kind.
	Waits map[vgdp.Kind]Waits
}

// Counters counts; its methods may be called from any goroutine.
type Counters struct {
	mu     sync.Mutex // guards counts
	counts Counts
}

// Counts so far.
func (t *Counters) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Writes, c.Waits, c.Bypassed = maps.Clone(c.Writes), maps.Clone(c.Waits), maps.Clone(c.Bypassed)
	return c
}

func (t *Counters) change(do func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts.Writes == nil {
		t.counts.Writes, t.counts.Waits, t.counts.Bypassed = map[Kind]uint64{}, map[vgdp.Kind]Waits{}, map[string]uint64{}
	}
	do(&t.counts)
}

func (t *Counters) addConflict()    { t.change(func(c *Counts) { c.Conflicts++ }) }
func (t *Counters) addFailure()     { t.change(func(c *Counts) { c.Failures++ }) }
func (t *Counters) overdue()        { t.change(func(c *Counts) { c.Overdue++ }) }
func (t *Counters) addWrite(k Kind) { t.change(func(c *Counts) { c.Writes[k]++ }) }

func (t *Counters) bypassed(velero string) { t.change(func(c *Counts) { c.Bypassed[velero]++ }) }

func (t *Counters) waited(k vgdp.Kind, d time.Duration) {
	t.change(func(c *Counts) {
		w := c.Waits[k]
		w.add(d)
		c.Waits[k] = w
	})
}
