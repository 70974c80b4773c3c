// Package backup is the queue of Velero Backups: it says which may start, in
// which order the others wait, and for whom.
//
// # Usage
//
// Decide is the queue, a pure function of the Backups, the namespaces that
// exist, the configuration and the time. What it remembers between two calls is
// in the objects themselves, so that whoever asks next, after a crash or as
// another leader, decides the same.
//
// # Concurrency
//
// Decide and what it takes and gives are values. Namespaces keeps what it has
// resolved and belongs to one goroutine.
//
// The rules are those of Velero's own queue (Concurrent Backup Processing,
// Velero 1.18), and where they differ the comment says so.
package backup
