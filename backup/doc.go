// Package backup is the queue of Velero Backups: which may start, in which order
// the others wait, and for which Backup.
//
// # Usage
//
// Decide is the queue: a pure function of the Backups, the namespaces that exist,
// the configuration and the time. Its state between two calls is in the Backups
// themselves, so that the next leader, also after a crash, decides the same.
//
// # Concurrency
//
// What Decide takes and returns are values. Namespaces caches resolved patterns
// and belongs to one goroutine.
//
// The rules are those of Velero's own queue (Concurrent Backup Processing, Velero
// 1.18); differences are commented.
package backup
