// Package durations learns how long the Backups of each Schedule take.
//
// # Usage
//
// Add each Backup that has ended to a History, and ask it for an Estimate of the next one:
// a median and an interval that it is in with a probability of 90 %. Where too little is
// known, the Estimate has no value and says so.
//
// # How
//
// The median of the newest runs of the same kind that began within 3 h of the same time of the
// day in UTC, where there are three, predicts the next; where sizes are known, it is scaled by
// them. The interval is a conformal one: the same prediction is made for
// each run of the past from those before it, and the interval is as wide as these
// predictions were wrong, so it needs no assumption on how durations are distributed. The
// errors of a Schedule with few runs are those of all Schedules. Failed runs teach no
// duration, and an outlier widens the interval and moves the median little.
//
// # Who writes it
//
// Times and sizes are in the status of Backups and data mover loads, which Velero writes
// and those who run it. A wrong one changes the order among Backups that have deadlines, and
// forecasts; the bound on waiting does not depend on it.
//
// # Concurrency
//
// A History belongs to one goroutine.
package durations
