package backup

import "github.com/plimsoll-dev/plimsoll/counters"

// Buckets of the waits from creation to ReadyToStart, in seconds: up to a day.
func Buckets() []float64 {
	return []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400}
}

// Counts are the actions of this process.
type Counts struct {
	// Writes by kind.
	Writes counters.By[string]
	// Conflicts: the Backup was changed meanwhile. Failures: the API server refused or
	// failed, or its answer was not waited for.
	Conflicts, Failures uint64
	// Waits of the Backups that this process started, by namespace.
	Waits counters.Histograms[string]
}

// Clone copies the counts.
func (c Counts) Clone() Counts {
	c.Writes, c.Waits = c.Writes.Clone(), c.Waits.Clone()
	return c
}
