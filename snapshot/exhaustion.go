package snapshot

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// ExhaustionKind is what is used up.
type ExhaustionKind string

// The kinds: the node's memory that is available without swapping (MemAvailable), and
// space and inodes of a filesystem.
const (
	ExhaustsMemory ExhaustionKind = "memory"
	ExhaustsSpace  ExhaustionKind = "space"
	ExhaustsInodes ExhaustionKind = "inodes"
)

// Exhaustion estimates when nothing of a resource is available any more, if it goes on
// shrinking as it does. There is none of a resource that does not shrink, or not
// steadily. It is no measurement: any workload can take memory for a while and release
// it again, so nothing but what is harmless may follow from it.
type Exhaustion struct {
	Kind ExhaustionKind `json:"kind"`
	// Mountpoint of the filesystem; empty for memory.
	Mountpoint string `json:"mountpoint,omitempty"`
	// Seconds from the snapshot's time; Earliest and Latest bound it.
	Seconds         float64 `json:"estimateSeconds"`
	EarliestSeconds float64 `json:"earliestSeconds"`
	LatestSeconds   float64 `json:"latestSeconds"`
	// ShrinksPerSecond is how fast it shrinks, in bytes or inodes, and OverSeconds the
	// time in which it was measured.
	ShrinksPerSecond float64 `json:"shrinksPerSecond"`
	OverSeconds      float64 `json:"overSeconds"`
}

// String is the estimate for people.
func (e Exhaustion) String() string {
	return fmt.Sprintf("no %s available in about %s (%s)", e.Kind, e.About(), e.Range())
}

// About is the time that is left, for people.
func (e Exhaustion) About() string { return roughly(e.Seconds) }

// Range is how far the estimate may be wrong, and what it assumes, for people.
func (e Exhaustion) Range() string {
	return fmt.Sprintf("%s to %s, if it shrinks as in the last %s", roughly(e.EarliestSeconds), roughly(e.LatestSeconds), roughly(e.OverSeconds))
}

// roughly is a duration as precise as an estimate is.
func roughly(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(math.Round(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(math.Round(d.Minutes())))
	default:
		return fmt.Sprintf("%d h", int(math.Round(d.Hours())))
	}
}

// Exhaustions are the estimates of one snapshot.
type Exhaustions []Exhaustion

// Memory is the estimate for the node's memory; absent if there is none.
func (x Exhaustions) Memory() Opt[Exhaustion] { return x.of(ExhaustsMemory, "") }

// Filesystem is the estimate for the space or the inodes of a filesystem,
// whichever is exhausted first; absent if there is none.
func (x Exhaustions) Filesystem(mountpoint string) Opt[Exhaustion] {
	space, inodes := x.of(ExhaustsSpace, mountpoint), x.of(ExhaustsInodes, mountpoint)
	if i, ok := inodes.Get(); ok {
		if e, also := space.Get(); !also || i.Seconds < e.Seconds {
			return inodes
		}
	}
	return space
}

func (x Exhaustions) of(kind ExhaustionKind, mountpoint string) Opt[Exhaustion] {
	for _, e := range x {
		if e.Kind == kind && e.Mountpoint == mountpoint {
			return Some(e)
		}
	}
	return Opt[Exhaustion]{}
}

const (
	// An estimate is made of fewReadings, of someReadings and of all; someReadings one
	// second apart last for leastShrinking. Starting a program takes memory for some
	// seconds too.
	fewReadings, someReadings = 8, 13
	leastShrinking            = 12 * time.Second
	// horizon is how far an estimate reaches, in times of how long the resource has
	// shrunk. What shrank for a minute tells nothing of the next hour.
	horizon = 4
	// steadily: in each third of the time it must have shrunk at this share of the rate.
	// A single large file, or a program that has started, is no trend.
	steadily = 0.5
	// confidence is the quantile of the normal distribution of the interval: 99 %.
	confidence = 2.58
	// keptReadings of each step.
	keptReadings = 24
	steps        = 4
)

// shrinkSteps are the least times between two readings of one list: lists of
// keptReadings reach 24 s, 2 min, 10 min and 1 h back. A filesystem is read less often.
func shrinkSteps() [steps]time.Duration {
	return [steps]time.Duration{time.Second, 5 * time.Second, 25 * time.Second, 150 * time.Second}
}

// reading is how much of a resource is available at one time, on CLOCK_MONOTONIC.
type reading struct {
	at        time.Duration
	available float64
}

// shrinking has the readings of one resource, and what was concluded of them.
type shrinking struct {
	device string // identity of a filesystem
	steps  [steps][]reading
	last   reading
	// of the last reading; Seconds count from it.
	estimate Opt[Exhaustion]
}

// exhaustionKey identifies a resource.
type exhaustionKey struct {
	kind       ExhaustionKind
	mountpoint string
}

// exhaustions has the readings of all resources of a node.
type exhaustions map[exhaustionKey]*shrinking

// source is a reading of one resource, and where it is of.
type source struct {
	exhaustionKey
	device    string
	available Opt[uint64]
	at        time.Duration
}

// add takes the readings of a snapshot, and returns the estimates: memory, then
// filesystems in their order. Resources without a reading are forgotten.
func (x exhaustions) add(s *Snapshot, now time.Duration) (list []Exhaustion) {
	seen := map[exhaustionKey]bool{}
	for _, from := range sources(s, now) {
		n, known := from.available.Get()
		if !known || seen[from.exhaustionKey] {
			continue
		}
		seen[from.exhaustionKey] = true
		of := x[from.exhaustionKey]
		if of == nil || of.device != from.device {
			of = &shrinking{device: from.device}
			x[from.exhaustionKey] = of
		}
		of.add(reading{from.at, float64(n)})
		if e, shrinks := of.estimate.Get(); shrinks {
			e.Kind, e.Mountpoint = from.kind, from.mountpoint
			list = append(list, e.after(now-of.last.at))
		}
	}
	maps.DeleteFunc(x, func(key exhaustionKey, _ *shrinking) bool { return !seen[key] })
	return list
}

// sources are the readings of a snapshot, without those of mounts that do not answer.
func sources(s *Snapshot, now time.Duration) []source {
	list := []source{{exhaustionKey{kind: ExhaustsMemory}, "", s.Memory.AvailableBytes, now}}
	for i := range s.Filesystems {
		f := &s.Filesystems[i]
		age, read := f.AgeSeconds.Get()
		if !read || f.Problem() != "" || !(age >= 0 && age <= maxReadingAge.Seconds()) {
			continue
		}
		at := now - time.Duration(age*float64(time.Second))
		list = append(list,
			source{exhaustionKey{ExhaustsSpace, f.Mountpoint}, f.Device, f.AvailableBytes, at},
			source{exhaustionKey{ExhaustsInodes, f.Mountpoint}, f.Device, f.FilesFree, at})
	}
	return list
}

// maxReadingAge is the age from which a reading tells nothing of now.
const maxReadingAge = time.Hour

// after is the estimate some time later.
func (e Exhaustion) after(d time.Duration) Exhaustion {
	for _, v := range []*float64{&e.Seconds, &e.EarliestSeconds, &e.LatestSeconds} {
		*v = max(0, *v-d.Seconds())
	}
	return e
}

// add a reading, if it is newer than the last by a step.
func (s *shrinking) add(r reading) {
	added := false
	for i, step := range shrinkSteps() {
		list := s.steps[i]
		if n := len(list); n > 0 && r.at-list[n-1].at < step-jitter {
			continue
		}
		if len(list) == keptReadings {
			list = slices.Delete(list, 0, 1)
		}
		s.steps[i], added = append(list, r), true
	}
	if !added {
		return
	}
	s.last, s.estimate = r, Opt[Exhaustion]{}
	for _, list := range s.steps {
		for _, n := range []int{fewReadings, someReadings, keptReadings} {
			if len(list) >= n {
				s.estimate = earlier(s.estimate, estimate(upTo(r, list[len(list)-n:])))
			}
		}
	}
}

// upTo is a list of readings with the newest one as its last: of longer steps, that the
// resource has stopped shrinking since is seen at once.
func upTo(newest reading, list []reading) []reading {
	if list[len(list)-1] == newest {
		return list
	}
	return append(slices.Clone(list[1:]), newest)
}

// earlier of two estimates, as far as there are any.
func earlier(a, b Opt[Exhaustion]) Opt[Exhaustion] {
	x, ok1 := a.Get()
	y, ok2 := b.Get()
	if !ok1 || ok2 && y.Seconds < x.Seconds {
		return b
	}
	return a
}

// estimate by the median of the slopes between all pairs of readings (Theil-Sen), which
// single outliers do not change, with the interval of Kendall's rank correlation (Sen
// 1968). It is absent unless the resource shrinks steadily and the whole interval says
// so.
func estimate(list []reading) (none Opt[Exhaustion]) {
	now := list[len(list)-1]
	over := now.at - list[0].at
	if over < leastShrinking-jitter || !steady(list, 0) { // the usual case, at little cost
		return none
	}
	slopes := make([]float64, 0, len(list)*(len(list)-1)/2)
	for i := range list {
		for j := range i {
			slopes = append(slopes, slope(list[j], list[i]))
		}
	}
	slices.Sort(slopes)
	n := float64(len(list))
	spread := confidence * math.Sqrt(n*(n-1)*(2*n+5)/18)
	fastest := slopes[max(0, int((float64(len(slopes))-spread)/2))]
	slowest := slopes[min(len(slopes)-1, int(math.Ceil((float64(len(slopes))+spread)/2)))]
	median := slopes[len(slopes)/2]
	if slowest >= 0 || !steady(list, median) {
		return none
	}
	e := Exhaustion{
		Seconds: now.available / -median, EarliestSeconds: now.available / -fastest, LatestSeconds: now.available / -slowest,
		ShrinksPerSecond: -median, OverSeconds: over.Seconds(),
	}
	if e.Seconds > horizon*e.OverSeconds {
		return none
	}
	return Some(e)
}

// steady reports whether it shrinks in each third of the time.
func steady(list []reading, rate float64) bool {
	third := len(list) / 3
	for _, part := range [][]reading{list[:third+1], list[third : 2*third+1], list[2*third:]} {
		if v := slope(part[0], part[len(part)-1]); v >= 0 || v > rate*steadily {
			return false
		}
	}
	return true
}

func slope(a, b reading) float64 {
	return (b.available - a.available) / (b.at - a.at).Seconds()
}
