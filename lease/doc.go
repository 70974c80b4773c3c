// Package lease reports the agent of a node to the API server: the status loop
// writes the agent's conditions to the Node and is the only writer of
// Node.status.conditions in Plimsoll; the heartbeat renews a Lease, and nothing else
// on the node can delay it. The package does not depend on the rest of Plimsoll: what
// to write is passed in.
//
// # Usage
//
//	status := &lease.Status{Node: "n1", Nodes: client.CoreV1(), Conditions: conditions, Log: log}
//	err := status.Run(ctx) // until ctx is done
//
//	line, err := lease.NewConnection(config) // a connection of its own
//	beat := &lease.Heartbeat{Node: "n1", Namespace: lease.Namespace, Holder: "n1", Connection: line, Interval: …}
//	err = beat.Run(ctx)
//
// # Concurrency
//
// Run belongs to one goroutine, in which it also calls Conditions, Annotations and
// OnAttempt. Wake, Reread and Writes may be called from any. A Connection reads its files
// in another one, which ends with the read.
package lease
