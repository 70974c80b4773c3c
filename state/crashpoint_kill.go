//go:build plimsollkill

package state

import (
	"os"
	"strconv"
	"syscall"
)

// crashPoint kills this process at the nth crash point after the file
// PLIMSOLL_KILL_ARMED exists, n being PLIMSOLL_KILL_AT. The count is kept in that
// file, a byte for each.
func crashPoint() {
	f, err := os.OpenFile(os.Getenv("PLIMSOLL_KILL_ARMED"), os.O_APPEND|os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write([]byte{'.'}) // on failure the test finds that nothing was killed
	info, err := f.Stat()
	at, wrong := strconv.ParseInt(os.Getenv("PLIMSOLL_KILL_AT"), 10, 64)
	if err == nil && wrong == nil && info.Size() == at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
