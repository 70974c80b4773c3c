package probes

import (
	"bytes"
	"errors"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var errNoCPU = errors.New("no line cpu or no line btime in /proc/stat")

// userHZ is the unit of /proc/stat, in all kernels that are in use.
const userHZ = 100

// cpuModes are the columns of a line cpu.
func cpuModes() [8]string {
	return [8]string{"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}
}

// readCPU reads the totals of /proc/stat.
func readCPU(of *procFiles, s *snapshot.Sample) error {
	b, err := of.read("stat")
	if err != nil {
		return err
	}
	total, online, err := parseStat(b)
	if err != nil {
		return err
	}
	s.CPU.Seconds = make(map[string]float64, len(total))
	for i, mode := range cpuModes() {
		s.CPU.Seconds[mode] = float64(total[i]) / userHZ
	}
	if online > 0 {
		s.CPU.Online = snapshot.Some(online)
	}
	return nil
}

// parseStat returns the ticks of all CPUs, and how many CPUs there are. Of their lines, and
// of the interrupts, whose line is long, nothing is used. A total of zero, or a file that
// ends before btime, was not read.
func parseStat(b []byte) (total [8]uint64, online int, err error) {
	whole := false
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		switch key, rest := parse.Field(line); {
		case string(key) == "cpu":
			if total, err = cpuTicks(rest); err != nil {
				return total, 0, parse.LineError(line, err)
			}
		case bytes.HasPrefix(key, []byte("cpu")):
			online++
		case string(key) == "btime":
			value, _ := parse.Field(rest)
			boot, err := parse.Uint(value)
			if err != nil {
				return total, 0, parse.LineError(line, err)
			}
			whole = boot > 0
		}
	}
	if !whole || total == [8]uint64{} {
		return total, 0, errNoCPU
	}
	return total, online, nil
}

// cpuTicks parses a line cpu, of which old kernels lack the last columns.
func cpuTicks(b []byte) (ticks [8]uint64, err error) {
	for i := range ticks {
		var field []byte
		if field, b = parse.Field(b); len(field) == 0 {
			return ticks, nil
		}
		if ticks[i], err = parse.Uint(field); err != nil {
			return ticks, err
		}
	}
	return ticks, nil
}
