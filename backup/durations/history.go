package durations

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Kind of a Backup's data.
type Kind uint8

// The kinds.
const (
	Unknown Kind = iota
	Full
	Incremental
)

// fullShare is the share of new bytes from which a Backup is a full one: where most is new,
// nothing is won by what was uploaded before.
const fullShare = 0.9

// KindOf a Backup whose data mover loads have so many bytes, and so many that are new since
// the one before (status.incrementalBytes).
func KindOf(total, incremental int64) Kind {
	switch {
	case total <= 0 || incremental < 0:
		return Unknown
	case float64(incremental) >= fullShare*float64(total):
		return Full
	}
	return Incremental
}

// Run is a Backup that has ended.
type Run struct {
	Schedule           string
	Started, Completed time.Time
	// Good: it is Completed; otherwise it failed, in part or as a whole.
	Good bool
	Kind Kind
	// Bytes of its data mover loads; 0: unknown. For an incremental one, the new ones.
	Bytes int64
}

// The bounds of a History.
const (
	maxRuns      = 30   // of a Schedule: the newest
	maxSchedules = 5000 // far more than a cluster has
	maxName      = 253  // bytes, as the API server's
	longest      = 30 * 24 * time.Hour
)

// History of the runs of all Schedules, bounded. The zero value is empty.
type History struct {
	schedules map[string]*series
	pool      []float64 // the errors of all, sorted; nil: to be collected

	// oldest has ended nothing for longest, since oldestEnd; only where no more are kept.
	oldest    string
	oldestEnd int64
}

// series is what is kept of a Schedule.
type series struct {
	// Runs are the good ones, the oldest first.
	Runs []run
	// Failed are the ends of failed ones, the oldest first.
	Failed []int64

	errors []float64 // sorted; nil: to be derived
}

// run is a good run: end (Unix seconds), seconds, MiB and kind.
type run struct {
	end     int64
	seconds float64
	mib     float64
	kind    Kind
}

func (r *run) begun() int64 { return r.end - int64(r.seconds) }

// Add a run that has ended; Velero's times are whole seconds, so one that took none took up
// to a second. The same one again changes nothing, but for a size that was not known before.
// One without a Schedule, or with times that cannot be, teaches nothing.
func (h *History) Add(r Run) {
	took := r.Completed.Sub(r.Started)
	if r.Schedule == "" || len(r.Schedule) > maxName || r.Started.Unix() <= 0 || took < 0 || took > longest {
		return
	}
	if h.schedules == nil {
		h.schedules = map[string]*series{}
	}
	end := r.Completed.Unix()
	s := h.schedules[r.Schedule]
	if s == nil {
		if !h.room(r.Schedule, end) {
			return
		}
		s = &series{}
		h.schedules[r.Schedule] = s
	}
	if !r.Good {
		if i, known := slices.BinarySearch(s.Failed, end); !known {
			s.Failed = newest(slices.Insert(s.Failed, i, end))
		}
		return
	}
	i, known := slices.BinarySearchFunc(s.Runs, end, func(r run, end int64) int { return cmp.Compare(r.end, end) })
	is := run{end, max(1, math.Round(took.Seconds())), math.Round(float64(max(0, r.Bytes)) / (1 << 20)), r.Kind}
	switch {
	case known && (s.Runs[i].mib > 0 || is.mib == 0):
		return
	case known:
		s.Runs[i].mib, s.Runs[i].kind = is.mib, is.kind
	case i == 0 && len(s.Runs) == maxRuns: // older than those that are kept
		return
	default:
		s.Runs = newest(slices.Insert(s.Runs, i, is))
	}
	s.errors, h.pool = nil, nil
}

// newest are the last maxRuns.
func newest[T any](list []T) []T { return list[max(0, len(list)-maxRuns):] }

// room makes room for another Schedule that has ended something at that time, and forgets the
// one that has ended nothing for longest; false: that is this one.
func (h *History) room(schedule string, end int64) bool {
	if len(h.schedules) < maxSchedules {
		return true
	}
	if s := h.schedules[h.oldest]; s == nil || s.last() != h.oldestEnd { // those of others only grow
		h.findOldest()
	}
	if end < h.oldestEnd || end == h.oldestEnd && schedule < h.oldest {
		return false
	}
	delete(h.schedules, h.oldest)
	h.pool = nil
	return true
}

// findOldest finds the Schedule that has ended nothing for longest.
func (h *History) findOldest() {
	h.oldest, h.oldestEnd = "", math.MaxInt64
	for name, s := range h.schedules {
		if last := s.last(); last < h.oldestEnd || last == h.oldestEnd && name < h.oldest {
			h.oldest, h.oldestEnd = name, last
		}
	}
}

// Clone is a History of its own, for another goroutine.
func (h *History) Clone() *History {
	out := &History{schedules: make(map[string]*series, len(h.schedules))}
	for name, s := range h.schedules {
		out.schedules[name] = &series{Runs: slices.Clone(s.Runs), Failed: slices.Clone(s.Failed)}
	}
	return out
}

// last is when its last run ended.
func (s *series) last() int64 {
	var last int64
	if n := len(s.Runs); n > 0 {
		last = s.Runs[n-1].end
	}
	if n := len(s.Failed); n > 0 {
		last = max(last, s.Failed[n-1])
	}
	return last
}
