package probes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// diskFacts is a disk as it was last read.
type diskFacts struct {
	// Disk has the counters of the last read and the facts of the last look.
	snapshot.Disk
	major, minor uint64
	removable    bool
	// medium is the open file diskseq, for devices whose medium may change:
	// loop devices and removable disks.
	medium *os.File
	// skippedRead is the number of the read that leaves the disk out.
	skippedRead int
}

// diskProbe reads the disks.
type diskProbe struct {
	*registry[diskFacts]
	procfs string
	lines  []byte // reused for each read
}

func newDiskProbe(paths Paths) diskProbe {
	r := newRegistry[diskFacts](filepath.Join(paths.Sysfs, "block"))
	r.forget = func(f *diskFacts) { f.closeMedium() }
	return diskProbe{registry: r, procfs: paths.Procfs}
}

// read reads /proc/diskstats: whole disks only (those listed in
// /sys/block), without loop, ram and zram devices that have done no IO.
func (p *diskProbe) read(s *snapshot.Sample) error {
	path := filepath.Join(p.procfs, "diskstats")
	err, unlisted := p.readStable(func() (err error) {
		p.lines, err = readWhole(unix.AT_FDCWD, path, p.lines)
		return err
	})
	if err = cmp.Or(err, unlisted); err != nil {
		return err // without the listing partitions look like disks
	}
	if len(p.lines) == 0 && len(p.devices) > 0 {
		return errNoDiskstats
	}
	s.Disks = make([]snapshot.Disk, 0, len(p.devices))
	for line := range bytes.Lines(p.lines) {
		err = cmp.Or(err, p.add(s, bytes.TrimRight(line, "\n")))
	}
	if p.changed {
		layerDisks(p.devices)
		p.changed = false
	}
	for i := range s.Disks {
		s.Disks[i].Layer = p.devices[s.Disks[i].Name].facts.Layer
	}
	return err
}

// A device of /sys/block without a line is no error: hidden paths of NVMe
// multipath have none.
var errNoDiskstats = errors.New("/proc/diskstats is empty")

// add appends the disk of one line, unless the line is of a partition.
func (p *diskProbe) add(s *snapshot.Sample, line []byte) error {
	l, err := parseDiskLine(line)
	if err != nil {
		return parse.LineError(line, err)
	}
	d, whole := p.devices[string(l.name)]
	if !whole || !p.stable(d) {
		return nil
	}
	c, err := l.counters()
	if err != nil {
		return parse.LineError(line, err)
	}
	if precreated(d.name) && c.Reads == 0 && c.Writes == 0 {
		return nil
	}
	f := &d.facts
	_, onward := c.Minus(f.DiskCounters)
	if p.due(d, factsEvery) || !onward || f.major != l.major || f.minor != l.minor || f.mediumChanged() {
		p.readFacts(d, l)
	}
	f.DiskCounters = c
	if f.skippedRead != p.reads {
		s.Disks = append(s.Disks, f.Disk)
	}
	return nil
}

// precreated reports whether a device is one of the dozens of loop, ram and zram
// devices that a kernel creates in advance. They count only once they are used.
func precreated(name string) bool {
	return strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram")
}

// readFacts reads the disk's facts again.
func (p *diskProbe) readFacts(d *device[diskFacts], line diskLine) {
	l := p.open(d)
	defer l.close()
	was := d.facts
	f := diskFacts{Disk: snapshot.Disk{Name: d.name, Layer: was.Layer}, major: line.major, minor: line.minor}
	f.Number = fmt.Sprintf("%d:%d", f.major, f.minor)
	f.Sequence = fact(l, "sequence", "diskseq", decimal)
	f.Rotational = fact(l, "rotational", "queue/rotational", strconv.ParseBool)
	f.SizeBytes = fact(l, "sizeBytes", "size", sectors)
	f.Kind = l.diskKind(d.name)
	f.Slaves = l.slaves(p.devices)
	f.WWID = l.wwid(f.Kind)
	f.Absent = l.absent
	removable, err := l.text("removable")
	f.removable = err == nil && removable == "1"
	made := was.Name != "" && !d.hasFacts
	if made && f.Number == was.Number && f.Sequence == was.Sequence {
		// It was re-created, and no field of a Sample shows it (no diskseq
		// before kernel 5.15): leaving it out once starts a new series.
		f.skippedRead = p.reads
	}
	f.keepMedium(&was, d, p.dir)
	p.changed = p.changed || !d.hasFacts || !f.sameGraph(&was)
	d.facts, d.hasFacts = f, true
}

// keepMedium opens diskseq, or keeps the open file if the device is the same:
// reading that of a removed device gives ENODEV.
func (f *diskFacts) keepMedium(was *diskFacts, d *device[diskFacts], dir string) {
	if d.hasFacts && was.medium != nil {
		f.medium = was.medium
		return
	}
	was.closeMedium()
	if f.Kind != "loop" && !f.removable {
		return
	}
	if file, err := os.Open(filepath.Join(dir, d.name, "diskseq")); err == nil {
		f.medium = file
	}
}

// mediumChanged reads diskseq: a loop device that is attached to another file
// remains the same device, and its counters go on.
func (f *diskFacts) mediumChanged() bool {
	if f.medium == nil {
		return false
	}
	var b [32]byte
	n, _ := f.medium.ReadAt(b[:], 0) // io.EOF after the number; any other error means the device was removed
	now, err := decimal(strings.TrimSpace(string(b[:n])))
	return err == nil && snapshot.Some(now) != f.Sequence
}

func (f *diskFacts) closeMedium() {
	if f.medium != nil {
		_ = f.medium.Close() // opened for reading: nothing can be lost
	}
	f.medium = nil
}

func decimal(v string) (uint64, error) { return strconv.ParseUint(v, 10, 64) }

func sectors(v string) (uint64, error) {
	n, err := decimal(v)
	if n > math.MaxUint64/sectorBytes {
		return 0, fmt.Errorf("%w: %s sectors", parse.ErrTooLarge, v)
	}
	return n * sectorBytes, err
}
