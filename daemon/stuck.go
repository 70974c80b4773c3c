//go:build !plimsollstuck

package daemon

import "time"

// stuckAfter so long without a look a loop is stuck, see pulse.go.
const stuckAfter = 3 * time.Minute

// stick marks where a loop may be stuck; only a program that is built for tests
// (tag plimsollstuck) looks at it. Each call of a loop has a deadline, so that
// nothing outside makes it stuck.
func stick() {}
