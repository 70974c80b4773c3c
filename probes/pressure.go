package probes

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// readStall reads a file of /proc/pressure, or returns the reason why there is
// no stall. withFull is false for cpu, whose full means nothing on a whole
// node.
func (p *procFiles) readStall(path string, withFull bool) (snapshot.Stall, string) {
	b, err := p.readPath(path)
	if err != nil {
		return snapshot.Stall{}, psi.Reason(err)
	}
	st, err := psi.Parse(b)
	if err != nil {
		return snapshot.Stall{}, fmt.Sprintf("%s: %v", path, err)
	}
	if !withFull {
		st.Full = snapshot.Opt[uint64]{}
	}
	return st, ""
}

func readPressure(of *procFiles, s *snapshot.Sample) error {
	absent := map[string][]string{} // resources by reason, to print each reason once
	read := func(resource string, full bool) snapshot.Stall {
		st, why := of.readStall(filepath.Join(of.root, "pressure", resource), full)
		if why != "" {
			s.Pressure.Absent.Because(resource, why)
			absent[why] = append(absent[why], resource)
		}
		return st
	}
	s.Pressure.CPU = read("cpu", false)
	s.Pressure.Memory = read("memory", true)
	s.Pressure.IO = read("io", true)
	var errs []error
	for _, why := range slices.Sorted(maps.Keys(absent)) {
		errs = append(errs, fmt.Errorf("%s: %s", strings.Join(absent[why], ", "), why))
	}
	return oneLine(errs)
}
