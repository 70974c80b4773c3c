//go:build !plimsollstuck

package process

import "time"

// StuckAfter is the age of a loop's last pass from which it is stuck, see
// pulse.go.
const StuckAfter = 3 * time.Minute

// testHang is where a test can make a loop hang (build tag plimsollstuck). Each
// request of a loop has a deadline, so nothing from outside can.
func testHang() {}
