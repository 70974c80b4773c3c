// Package history keeps an hour and a day of what the agent published, and draws it.
//
// # What is kept
//
// An hour in steps of 10 s, and a day in steps of a minute with the mean and the
// highest value of each: the pressure of the node, its disks and NICs, the level of
// each rule, and the main numbers of each workload (columns.go). What was not measured
// is unknown, which is a gap and never 0. The store is bounded in bytes and in names,
// whatever the names are (bounds.go).
//
// # Usage
//
//	store := &history.Store{}
//	store.Add(snapshot, levels)                     // each published state
//	r, err := history.ParseRange(req.URL.Query(), time.Now())  // ?range=hour|day&at=RFC3339
//	plots := store.Workload("shop/db-0", r)         // or Device("sda", r), Node(r)
//	for i := range plots {
//		plots[i].Marks = marks                  // decisions, with their links
//	}
//	… {{range .Plots}}{{.HTML}}{{end}}              // in a template
//
// A page that shows plots has Style in its style element. Style uses the variables of
// the status page (--card, --ink, --soft-ink, --line, --fill, --track, --soft,
// --soft-bg, --hard, --hard-bg). A plot is as wide as what it is in, from 300 px on,
// needs no script and loads nothing.
//
// # Concurrency
//
// All methods of a Store may be called from any goroutine. A Plot is a value of its
// own.
package history
