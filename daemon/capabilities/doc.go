// Package capabilities tells which parts of Plimsoll a cluster has what they need for,
// and what follows where it does not: older Kubernetes versions serve fewer kinds.
//
// # Usage
//
//	cluster, err := capabilities.Read(ctx, client, now) // a few GETs
//	list := capabilities.List(&cluster)                 // pure
//
//	w := &capabilities.Watcher{Client: client, Now: clock.Now, Log: log}
//	err := w.Run(ctx) // reads every minute, so also after an upgrade of the cluster
//	list := w.List()
//
// # Concurrency
//
// Run belongs to one goroutine; List and JobWorks may be called from any.
package capabilities
