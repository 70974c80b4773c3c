package probes

import (
	"errors"

	"github.com/prometheus/procfs"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var errNoCPU = errors.New("no line cpu or no line btime in /proc/stat")

// readCPU reads the totals of /proc/stat.
func readCPU(proc procfs.FS, s *snapshot.Sample) error {
	st, err := proc.Stat()
	if err != nil {
		return err
	}
	// The parser returns zero for a missing line. A total of zero, or a file
	// that ends before btime, was not read.
	t := st.CPUTotal
	if st.BootTime == 0 || t == (procfs.CPUStat{}) {
		return errNoCPU
	}
	s.CPU.Seconds = map[string]float64{
		"user": t.User, "nice": t.Nice, "system": t.System, "idle": t.Idle,
		"iowait": t.Iowait, "irq": t.IRQ, "softirq": t.SoftIRQ, "steal": t.Steal,
	}
	if len(st.CPU) > 0 {
		s.CPU.Online = snapshot.Some(len(st.CPU))
	}
	return nil
}
