package backup

import (
	"maps"
	"sync"
	"time"
)

// Buckets of the waits from creation to ReadyToStart, in seconds: up to a day.
func Buckets() [12]float64 {
	return [12]float64{1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400}
}

// Waits of the Backups of one Velero that this process started, a histogram.
type Waits struct {
	// Within counts the waits up to each of Buckets.
	Within [12]uint64
	Count  uint64
	Sum    time.Duration
}

// Counts are the actions of this process.
type Counts struct {
	// Writes by kind.
	Writes map[string]uint64
	// Conflicts: the Backup was changed meanwhile. Failures: the API server refused or
	// failed.
	Conflicts, Failures uint64
	// Waits by namespace.
	Waits map[string]Waits
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
	c.Writes, c.Waits = maps.Clone(c.Writes), maps.Clone(c.Waits)
	return c
}

func (t *Counters) change(do func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(&t.counts)
}

func (t *Counters) addConflict() { t.change(func(c *Counts) { c.Conflicts++ }) }
func (t *Counters) addFailure()  { t.change(func(c *Counts) { c.Failures++ }) }

func (t *Counters) addWrite(w write) {
	t.change(func(c *Counts) {
		if c.Writes == nil {
			c.Writes = map[string]uint64{}
		}
		c.Writes[string(w.kind)]++
	})
}

func (t *Counters) waited(namespace string, d time.Duration) {
	t.change(func(c *Counts) {
		if c.Waits == nil {
			c.Waits = map[string]Waits{}
		}
		w := c.Waits[namespace]
		w.Count, w.Sum = w.Count+1, w.Sum+d
		for i, limit := range Buckets() {
			if d.Seconds() <= limit {
				w.Within[i]++
			}
		}
		c.Waits[namespace] = w
	})
}
