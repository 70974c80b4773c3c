// Package conformance examines an outer plugin of any language as a host meets
// it: it starts the plugin, registers it, asks ordinary and odd questions, stops,
// ends and restarts it, and reports what a host may rely on.
//
// # Usage
//
//	report, err := conformance.Test(ctx, conformance.Options{Command: []string{"./myplugin", "--dir", "{dir}"}})
//
// Test observes and Evaluate decides: Evaluate is pure, and a report follows from
// the Observations alone.
//
// # Trust
//
// A plugin may send anything. What it sends is reduced to a few facts as soon as
// it is read; its texts are cut and quoted before a person sees them.
//
// # Concurrency
//
// Test belongs to one goroutine. It starts others for calls at the same time and
// waits for them.
package conformance
