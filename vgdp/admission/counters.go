package admission

import (
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Buckets of the waits from creation to the ticket, in seconds: up to half a day.
func Buckets() []float64 {
	return []float64{0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200}
}

// Counts are the actions of this process.
type Counts struct {
	// Writes by kind.
	Writes counters.By[Kind]
	// Conflicts: the load was changed meanwhile. Failures: the API server refused or
	// failed.
	Conflicts, Failures uint64
	// Bypassed were accepted without the ticket that they needed, by Velero.
	Bypassed counters.By[string]
	// Overdue got a ticket in spite of pressure.
	Overdue uint64
	// Waits of the loads to which this process issued tickets, by kind.
	Waits counters.Histograms[vgdp.Kind]
}

// Clone copies the counts.
func (c Counts) Clone() Counts {
	c.Writes, c.Bypassed, c.Waits = c.Writes.Clone(), c.Bypassed.Clone(), c.Waits.Clone()
	return c
}
