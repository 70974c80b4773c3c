package probes

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs/blockdevice"
)

// sectorBytes is the unit of /proc/diskstats and /sys/block/X/size, whatever
// the device's own sector size (kernel Documentation/block/stat.rst).
const sectorBytes = 512

// readDisks reads /proc/diskstats: whole disks only (what has a directory in
// /sys/block), and no loop, ram or zram device that never did anything.
func (h *Host) readDisks(s *Sample) error {
	whole, err := h.block.SysBlockDevices()
	if err != nil {
		return err
	}
	stats, err := h.block.ProcDiskstats()
	if err != nil {
		return err
	}
	for i := range stats {
		st := &stats[i]
		// A slash in a device's name is an exclamation mark in sysfs.
		dir := strings.ReplaceAll(st.DeviceName, "/", "!")
		if slices.Contains(whole, dir) && !unused(st) {
			s.Disks = append(s.Disks, h.disk(st, filepath.Join(h.paths.Sysfs, "block", dir)))
		}
	}
	if len(stats) == 0 && len(whole) > 0 {
		return errNoDiskstats
	}
	return nil
}

// A device of /sys/block without a line is no error: hidden paths of NVMe
// multipath have none, nor has a disk plugged in between the two reads.
var errNoDiskstats = errors.New("no line in /proc/diskstats")

// unused tells the dozens of loop, ram and zram devices that a kernel makes
// beforehand from those that somebody uses.
func unused(st *blockdevice.Diskstats) bool {
	made := strings.HasPrefix(st.DeviceName, "loop") || strings.HasPrefix(st.DeviceName, "ram") || strings.HasPrefix(st.DeviceName, "zram")
	return made && st.ReadIOs == 0 && st.WriteIOs == 0
}

func (h *Host) disk(st *blockdevice.Diskstats, dir string) Disk {
	d := Disk{
		Name:   st.DeviceName,
		Number: fmt.Sprintf("%d:%d", st.MajorNumber, st.MinorNumber),
		DiskCounters: DiskCounters{
			Reads: st.ReadIOs, ReadBytes: st.ReadSectors * sectorBytes, ReadMs: st.ReadTicks,
			Writes: st.WriteIOs, WrittenBytes: st.WriteSectors * sectorBytes, WriteMs: st.WriteTicks,
			BusyMs: st.IOsTotalTicks, WeightedMs: st.WeightedIOTicks,
		},
	}
	d.Sequence = readFact(&d.Absent, "sequence", filepath.Join(dir, "diskseq"), decimal)
	d.Rotational = readFact(&d.Absent, "rotational", filepath.Join(dir, "queue/rotational"), strconv.ParseBool)
	d.SizeBytes = readFact(&d.Absent, "sizeBytes", filepath.Join(dir, "size"), func(v string) (uint64, error) {
		sectors, err := decimal(v)
		if sectors > math.MaxUint64/sectorBytes {
			return 0, fmt.Errorf("%w: %s sectors", errTooLarge, v)
		}
		return sectors * sectorBytes, err
	})
	return d
}

func decimal(v string) (uint64, error) { return strconv.ParseUint(v, 10, 64) }

// readFact reads a file of one value; a failure is kept as the reason of its
// absence.
func readFact[T any](absent *Absent, name, path string, parse func(string) (T, error)) Opt[T] {
	b, err := os.ReadFile(path)
	if err != nil {
		absent.Because(name, reason(err))
		return Opt[T]{}
	}
	v, err := parse(strings.TrimSpace(string(b)))
	if err != nil {
		absent.Because(name, fmt.Sprintf("%s: %v", filepath.Base(path), err))
		return Opt[T]{}
	}
	return Some(v)
}

// reason is a file error without the path of it, which would differ per device.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", filepath.Base(pe.Path), pe.Err)
	}
	return err.Error()
}
