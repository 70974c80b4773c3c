package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// oomScore is that of pods critical to a node: the heartbeat must be among the
// last to be killed, beside the kubelet.
const oomScore = -997

// protectProcess protects the process when memory is short: its pages stay in RAM
// (mlockall), and the OOM killer prefers other processes (oom_score_adj). It
// returns what it lacks the rights for; the agent runs all the same.
func protectProcess() []string {
	var notes []string
	// MCL_ONFAULT: pages that are never used take no memory.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		notes = append(notes, fmt.Sprintf("memory is not locked (mlockall: %s; needs CAP_IPC_LOCK): the heartbeat may be late while the node swaps", err))
	}
	if err := lowerOOMScore("/proc/self/oom_score_adj"); err != nil {
		notes = append(notes, fmt.Sprintf("oom_score_adj is not lowered (%s; needs CAP_SYS_RESOURCE): the OOM killer may end the agent like any other process", err))
	}
	return notes
}

// lowerOOMScore lowers oom_score_adj unless it is as low already.
func lowerOOMScore(path string) error {
	was, err := os.ReadFile(path)
	if err != nil {
		return pathless(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(was))); err == nil && n <= oomScore {
		return nil
	}
	return pathless(os.WriteFile(path, []byte(strconv.Itoa(oomScore)), 0))
}

func pathless(err error) error {
	if p, is := errors.AsType[*os.PathError](err); is {
		return p.Err
	}
	return err
}
