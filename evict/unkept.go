package evict

import "time"

// keptWithin is how long nobody goes because a choice cannot be kept. Whoever
// presses a disk, or fills it, may keep it from taking the choice, and must not
// stay for that.
const keptWithin = time.Minute

// GoesUnkept says whether candidate i goes though its choice could not be kept,
// which has been so for as long as unkept says. What that costs is one pod more,
// where the agent is killed before the API server has answered. Memory below its
// floor waits for no disk that has not taken it by then.
func (d *Decision) GoesUnkept(i int, unkept time.Duration) bool {
	return unkept >= keptWithin || d.Candidates[i].Asked.Urgent
}
