package probes

import (
	"math"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// sectorBytes is the unit of /proc/diskstats and /sys/block/X/size, whatever
// the device's own sector size (kernel Documentation/block/stat.rst).
const sectorBytes = 512

// diskLine is one line of /proc/diskstats; name and rest point into the buffer.
type diskLine struct {
	major, minor uint64
	name, rest   []byte
}

// parseDiskLine parses the device's number and name.
func parseDiskLine(line []byte) (l diskLine, err error) {
	var major, minor []byte
	major, line = parse.Field(line)
	minor, line = parse.Field(line)
	l.name, l.rest = parse.Field(line)
	if l.major, err = parse.Uint(major); err != nil {
		return l, err
	}
	if l.minor, err = parse.Uint(minor); err != nil {
		return l, err
	}
	if len(l.name) == 0 {
		return l, parse.ErrShortLine
	}
	return l, nil
}

// counters parses the first eleven columns after the name, which every kernel
// since 2.6 has (Documentation/admin-guide/iostats.rst): reads, merged,
// sectors, ms; the same for writes; in flight, ms busy, ms weighted.
func (l diskLine) counters() (c snapshot.DiskCounters, err error) {
	var columns [11]uint64
	rest := l.rest
	for i := range columns {
		var field []byte
		if field, rest = parse.Field(rest); len(field) == 0 {
			return c, parse.ErrShortLine
		}
		if columns[i], err = parse.Uint(field); err != nil {
			return c, err
		}
	}
	if max(columns[2], columns[6]) > math.MaxUint64/sectorBytes {
		return c, parse.ErrTooLarge
	}
	return snapshot.DiskCounters{
		Reads: columns[0], ReadBytes: columns[2] * sectorBytes, ReadMs: columns[3],
		Writes: columns[4], WrittenBytes: columns[6] * sectorBytes, WriteMs: columns[7],
		InFlight: columns[8], BusyMs: columns[9], WeightedMs: columns[10],
	}, nil
}
