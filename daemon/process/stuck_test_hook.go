//go:build plimsollstuck

package process

import (
	"os"
	"time"
)

const StuckAfter = 4 * time.Second

// testHang hangs once the file named by PLIMSOLL_STUCK exists.
func testHang() {
	if _, err := os.Stat(os.Getenv("PLIMSOLL_STUCK")); err == nil {
		select {}
	}
}
