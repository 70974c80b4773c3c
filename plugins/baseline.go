package plugins

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Baselines has the baseline of each disk, by Key, which identifies the disk across
// restarts of the agent.
type Baselines map[string]Baseline

// Baseline is the usual await of a disk, by direction and request size.
type Baseline struct {
	Device string                    `json:"device"`
	Read   [sizeClasses]RequestStats `json:"read"`
	Write  [sizeClasses]RequestStats `json:"write"`
	// Knee is what it was seen to carry.
	Knee Knee `json:"knee,omitzero"`
	// Seen is when it was last learned from.
	Seen time.Time `json:"seen"`
}

// RequestStats sums up requests of one size class: their number, the seconds in which
// there were any, and the time that they took together, in seconds.
type RequestStats struct {
	Requests     float64 `json:"requests"`
	Seconds      float64 `json:"seconds"`
	TotalSeconds float64 `json:"waitedSeconds"`
}

// sizeClasses of requests: up to 16 KiB, 128 KiB, 512 KiB, and larger. Large
// requests take longer without any contention.
const sizeClasses = 4

func sizeClass(bytes float64) int {
	for class, most := range [sizeClasses - 1]float64{16 << 10, 128 << 10, 512 << 10} {
		if bytes <= most {
			return class
		}
	}
	return sizeClasses - 1
}

const (
	// learnedSeconds and learnedRequests must have been seen of a size class
	// before it has a baseline.
	learnedSeconds, learnedRequests = 3600, 10_000
	// fullWeightSeconds is how many seconds have full weight. Older ones are halved again
	// and again (exponential decay).
	fullWeightSeconds = 24 * 3600
	// A tick is learned from only if the disk is busy, and tasks of the node stall
	// on IO, for at most these shares of it.
	learnMaxBusy, learnMaxStall = 0.5, 0.1
	// baselineMaxAge is how long the baseline of a removed disk is stored, and maxBaselines
	// of how many disks there is one: each volume that is attached may be another disk.
	baselineMaxAge = 30 * 24 * time.Hour
	maxBaselines   = 256
)

// Await is the usual await in seconds; absent until it is learned.
func (u RequestStats) Await() snapshot.Opt[float64] {
	if u.Seconds < learnedSeconds || u.Requests < learnedRequests {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(u.TotalSeconds / u.Requests)
}

// DiskKey identifies a disk: by its WWID, or else by the kernel's diskseq, which is
// valid until the next boot.
func DiskKey(d *snapshot.Disk, bootID string) string {
	if wwid, ok := d.WWID.Get(); ok {
		return "wwid:" + wwid
	}
	sequence, _ := d.Sequence.Get()
	return fmt.Sprintf("boot:%s:%s:%s:%d", bootID, d.Name, d.Number, sequence)
}

// Clone is a deep copy.
func (b Baselines) Clone() Baselines {
	if b == nil {
		return Baselines{}
	}
	return maps.Clone(b)
}

// learn adds the newest tick of each disk that is not under pressure.
func (b Baselines) learn(s *snapshot.Snapshot, l *Levels) {
	step := s.Step()
	stall, known := step.Pressure().IO.Some.Get()
	if step.Elapsed() <= 0 || known && stall > learnMaxStall {
		return
	}
	for i := range s.Disks {
		d := &s.Disks[i].Disk
		r, ok := step.Disk(d).Get()
		if !ok || !judged(d) || r.ReadsPerSecond+r.WritesPerSecond == 0 || r.BusyRatio > learnMaxBusy || underPressure(l, d.Name) {
			continue
		}
		key := DiskKey(d, s.BootID())
		was := b[key]
		was.Read[sizeClass(per(r.ReadBytesPerSecond, r.ReadsPerSecond))].add(r.WindowSeconds, r.ReadsPerSecond, r.ReadAwaitSeconds)
		was.Write[sizeClass(per(r.WrittenBytesPerSecond, r.WritesPerSecond))].add(r.WindowSeconds, r.WritesPerSecond, r.WriteAwaitSeconds)
		was.Device, was.Seen = d.Name, s.Time
		b[key] = was
	}
	b.forget(s)
}

// forget drops the baselines of disks that were removed long ago and, beyond maxBaselines,
// those that were removed first.
func (b Baselines) forget(s *snapshot.Snapshot) {
	keys := func() map[string]bool {
		list := make(map[string]bool, len(s.Disks))
		for i := range s.Disks {
			list[DiskKey(&s.Disks[i].Disk, s.BootID())] = true
		}
		return list
	}
	maps.DeleteFunc(b, func(key string, was Baseline) bool {
		return s.Time.Sub(was.Seen) > baselineMaxAge && !keys()[key] // the clock may have been set forward
	})
	if len(b) <= maxBaselines {
		return
	}
	there := keys()
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(b)), func(key string) bool { return there[key] })
	slices.SortStableFunc(gone, func(x, y string) int { return b[x].Seen.Compare(b[y].Seen) })
	for _, key := range gone[:min(len(gone), len(b)-maxBaselines)] {
		delete(b, key)
	}
}

// underPressure reports whether a disk's level is on, or its threshold is met.
func underPressure(l *Levels, device string) bool {
	for _, v := range l.Verdicts {
		if v.Resource == Disk && v.Scope == device && (v.Level > None || v.RuleMetSince > 0) {
			return true
		}
	}
	return false
}

func (u *RequestStats) add(seconds, perSecond float64, await snapshot.Opt[float64]) {
	a, some := await.Get()
	if !some {
		return
	}
	u.Seconds += seconds
	u.Requests += perSecond * seconds
	u.TotalSeconds += perSecond * seconds * a
	if u.Seconds > 2*fullWeightSeconds {
		u.Seconds, u.Requests, u.TotalSeconds = u.Seconds/2, u.Requests/2, u.TotalSeconds/2
	}
}

// per is the mean per request; 0 without requests.
func per(perSecond, requests float64) float64 {
	if requests <= 0 {
		return 0
	}
	return perSecond / requests
}

// await is the await of requests of this direction and mean size.
func (b Baseline) await(write bool, bytes float64) snapshot.Opt[float64] {
	of := b.Read
	if write {
		of = b.Write
	}
	return of[sizeClass(bytes)].Await()
}

// progress says, for people, how much of a size class has been learned.
func (b Baseline) progress(write bool, bytes float64) string {
	of := b.Read
	if write {
		of = b.Write
	}
	u := of[sizeClass(bytes)]
	return fmt.Sprintf("not learned yet: %s and %.0f requests of this size seen, need %s and %d",
		time.Duration(u.Seconds)*time.Second, u.Requests, time.Duration(learnedSeconds)*time.Second, learnedRequests)
}
