// Package objective is what users want of Backups: how old the newest good one may
// become (RPO), in which window of the day they run, and their priority.
//
// # Usage
//
// Resolve reads the annotations of a Backup's Schedule, of the Backup and of its
// namespace; what is wrong becomes a Problem and the default holds. Due is what an
// objective means for one Backup: when it may start, and by when it is to be complete.
//
// # Who writes it
//
// Schedules and Backups are written by those who run Velero. A namespace belongs to a
// tenant, whose annotations reach no further than Bounds: its Backup is never due
// earlier than Bounds.Least after it could start, and has no priority above
// Bounds.Priority. Due tells which times a tenant chose: where not all deadlines can be
// met, these are given up, and none for them.
//
// # Concurrency
//
// All of it is values and pure functions. Zones are those of the program's own time zone
// database (time/tzdata) where the machine has none.
package objective
