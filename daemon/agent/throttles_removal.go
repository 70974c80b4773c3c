package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/state"
)

// RemoveLimits removes the cgroup limits that this machine's agent, which does not run, has left
// on pods.
func RemoveLimits(c *config.Agent, out io.Writer, log *slog.Logger) error {
	file := state.File[savedThrottles]{Path: filepath.Join(c.State.Dir, throttlesFile), UntilBoot: true}
	kept, err := state.Read(new(state.Writer), stateTimeout, file.Load)
	if errors.Is(err, state.ErrNoState) || err == nil && len(kept.Limits) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the limits of throttled pods, which stay until their pods end: %w", err)
	}
	host, err := probes.NewHost(probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}, c.Workloads.Roots)
	if err != nil {
		return err
	}
	m := emptyThrottles(c.State.Dir, bootID(c.Paths.Procfs), host, log)
	m.take(kept)
	clear(m.list)
	err = errors.Join(m.journal.Set(nil), m.saveIfChanged()) // those of an earlier boot ended with it
	for _, k := range m.journal.Restored {
		fmt.Fprintf(out, "%s: limit removed, which an agent that no longer runs had left\n", k)
	}
	for _, k := range m.journal.Left {
		fmt.Fprintf(out, "%s: left: another program changed it\n", k)
	}
	if err != nil {
		return fmt.Errorf("remove limits of throttled pods: %w", err)
	}
	return nil
}
