package plugins

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	// A disk that says that it rotates is believed until so many reads, over so
	// many seconds, took less than seekSeconds on average: half a turn at 7200
	// revolutions per minute alone takes 4.2 ms, and a seek as long again. Writes
	// do not count, since they end in a cache.
	doubtReads, doubtSeconds = 1000, 60
	seekSeconds              = 0.004
	// doubtClasses are the size classes that count: up to 128 KiB, larger reads are
	// mostly sequential.
	doubtClasses = 2
)

// DiskThreshold is the await from which requests of a disk count as slow.
type DiskThreshold struct {
	// Least holds for every request, and until a baseline is learned.
	Least time.Duration
	// Most is the highest threshold that a learned baseline leads to, and Baseline
	// that baseline; both are zero if Least holds for all.
	Most, Baseline time.Duration
	// Rotates: the disk is taken for one with moving parts.
	Rotates bool
	// Why Least is what it is.
	Why string
}

// ThresholdOf is the await from which requests of this disk count as slow, by what
// the disk says of itself and by what is usual for it.
func (p DiskContention) ThresholdOf(d *snapshot.Disk, of Baseline) DiskThreshold {
	t := DiskThreshold{Least: p.Await, Why: "it does not rotate"}
	rotational, told := d.Rotational.Get()
	switch {
	case !told:
		t.Why = "it does not say whether it rotates"
	case rotational:
		t = p.rotational(of)
	}
	for _, stats := range append(of.Read[:], of.Write[:]...) {
		usual, learned := stats.Await().Get()
		if at := p.slowFrom(t.Least, usual); learned && at > max(t.Least, t.Most) {
			t.Most, t.Baseline = at, seconds(usual)
		}
	}
	return t
}

// rotational doubts a disk that says that it rotates: virtual disks say so too.
func (p DiskContention) rotational(of Baseline) DiskThreshold {
	var seen RequestStats
	for _, class := range of.Read[:doubtClasses] {
		seen.Requests += class.Requests
		seen.Seconds += class.Seconds
		seen.TotalSeconds += class.TotalSeconds
	}
	t := DiskThreshold{Least: p.AwaitRotational, Rotates: true}
	if seen.Requests < doubtReads || seen.Seconds < doubtSeconds {
		t.Why = fmt.Sprintf("it says that it rotates (queue/rotational is 1), and too few reads were measured to doubt it: %.0f in %.0f s, needs %d in %d s",
			seen.Requests, seen.Seconds, doubtReads, doubtSeconds)
		return t
	}
	mean := seen.TotalSeconds / seen.Requests
	if mean < seekSeconds {
		return DiskThreshold{Least: p.Await, Why: fmt.Sprintf("it says that it rotates (queue/rotational is 1), but its reads take %.1f ms, which no disk with moving parts does", 1000*mean)}
	}
	t.Why = fmt.Sprintf("it rotates (queue/rotational is 1): its reads take %.1f ms", 1000*mean)
	return t
}

// slowFrom is the threshold beside a learned baseline in seconds, of which no more
// than least is believed.
func (p DiskContention) slowFrom(least time.Duration, usual float64) time.Duration {
	return max(least, time.Duration(p.Factor)*min(seconds(usual), least))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
