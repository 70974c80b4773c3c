// Package uploads plays the data mover loads of Backups forward: when those of each Backup
// end, and what the last of them waits for.
//
// # Usage
//
// The admission of data mover loads makes a State of one Velero now and then. NewPlayer
// learns from those that have ended how long a load takes, and Play plays the others
// forward, once with medians or several times with drawn durations.
//
// # How
//
// Loads go on in the order of the admission: each takes a slot of prepareQueueLength until
// it is prepared, and a place on one of its nodes until it ends. Pressure stays as it is, and
// holds a load no longer than the admission does. A load that has not begun when Velero
// cancels it ends then. How long a load takes is told by its progress, else by the newest
// ones of its volume, else of its kind; draws are as wide as these predictions were wrong.
// What is not played: loads and pressure to come, and a restore that passes a load which has
// no slot.
//
// # Who writes it
//
// Loads are written by Velero and its node-agents, their progress by data movers, and their
// names and nodes follow from objects of tenants. Numbers are bounded: no load is played to
// end after Velero cancels it, nor before the forecast. By a lie the forecast of the liar's
// own Backup is wrong, and of those that wait for its namespaces or for a place behind it:
// an Event and an alert too many or too few. No load and no Backup is started or held by it.
// Sizes scale how long a Backup is expected to take (package durations) by 4 at most, which
// orders its loads within their rank.
//
// # Concurrency
//
// A State is not changed once it is made. A Player belongs to one goroutine.
package uploads
