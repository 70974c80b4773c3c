package plugins

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// DiskCeiling is the most that one disk can serve. A disk at its ceiling is only
// busy: the rule is met if a workload also waits because of others.
type DiskCeiling struct {
	Device         string `yaml:"device" unit:"device" why:"The disk, such as nvme0n1."`
	IOPS           int    `yaml:"iops" unit:"requests per second" why:"The most requests per second that it can serve, reads and writes together, such as the provisioned IOPS of a cloud volume. 0: not judged."`
	BytesPerSecond uint64 `yaml:"bytesPerSecond" unit:"bytes" why:"The most bytes per second that it can transfer, reads and writes together. 0: not judged."`
}

// maxIOPS is some ten times that of the fastest disks.
const maxIOPS = 100_000_000

func (c DiskCeiling) validate(at problems.Section) {
	at.Must(c.Device != "", "want the name of a disk, such as nvme0n1", "device")
	at.Int("iops", c.IOPS, 0, maxIOPS)
	at.Must(c.IOPS > 0 || c.BytesPerSecond > 0, "0 for both would never be met: leave the disk out", "iops", "bytesPerSecond")
}

func (p DiskContention) ceiling(device string) (DiskCeiling, bool) {
	for _, c := range p.Ceilings {
		if c.Device == device {
			return c, true
		}
	}
	return DiskCeiling{}, false
}

// CeilingText is the ceiling that a disk is judged by, for people; false: it has none.
func (p DiskContention) CeilingText(device string) (text string, named bool) {
	c, named := p.ceiling(device)
	var parts []string
	if c.IOPS > 0 {
		parts = append(parts, fmt.Sprintf("%d requests/s", c.IOPS))
	}
	if c.BytesPerSecond > 0 {
		parts = append(parts, fmt.Sprintf("%.1f MiB/s", float64(c.BytesPerSecond)/(1<<20)))
	}
	return strings.Join(parts, " or "), named
}

// nearest is the nearer of the two ceilings, or the one that is exceeded most, with
// the throughput in the place of an await.
func (c DiskCeiling) nearest(d *snapshot.Disk, w snapshot.Window) diskAwait {
	r, ok := w.Disk(d).Get()
	of := func(unit string, carried, line float64) diskAwait {
		s := diskAwait{direction: "requests and bytes", unit: unit, threshold: line}
		if ok && line > 0 {
			s.await = snapshot.Some(carried)
		}
		return s
	}
	requests := of("requests/s", r.ReadsPerSecond+r.WritesPerSecond, float64(c.IOPS))
	bytes := of("bytes/s", r.ReadBytesPerSecond+r.WrittenBytesPerSecond, float64(c.BytesPerSecond))
	if requests.threshold == 0 || bytes.threshold > 0 && bytes.ratio() > requests.ratio() {
		return bytes
	}
	return requests
}

// throughputText is the throughput beside its ceiling, for people.
func (s diskAwait) throughputText() string {
	carried, ok := s.await.Get()
	switch {
	case !ok:
		return "throughput unknown: a rate needs two samples"
	case s.unit == "bytes/s":
		return fmt.Sprintf("throughput %.1f MiB/s (needs ≥ %.1f MiB/s, its ceiling)", carried/(1<<20), s.threshold/(1<<20))
	}
	return fmt.Sprintf("throughput %.0f requests/s (needs ≥ %.0f, its ceiling)", carried, s.threshold)
}
