//go:build plimsollstuck

package daemon

import (
	"os"
	"time"
)

const stuckAfter = 4 * time.Second

// stick hangs once the file named by PLIMSOLL_STUCK exists.
func stick() {
	if _, err := os.Stat(os.Getenv("PLIMSOLL_STUCK")); err == nil {
		select {}
	}
}
