package recording

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// Recorder writes samples to segments. What it cannot write is lost and counted;
// no caller waits for the disk.
type Recorder struct {
	Config  Config
	Version string
	Log     *slog.Logger
	// StartedBy is how the agent was started, for another agent that wants the
	// directory.
	StartedBy string

	run   string
	queue chan *snapshot.Sample

	mu     sync.Mutex // guards status, since and cause
	status Status
	since  time.Time // start of the write under way; zero: none
	cause  string    // what status.Failed says to do

	// Owned by Run.
	lock    *state.Lock
	file    *probes.RecordingFile
	path    string    // of file
	begun   time.Time // of file
	added   bool      // file has a sample
	number  uint64    // of the newest segment
	older   []Segment // all but file
	aged    int       // how many more of them may go for their age, until the next is to be begun
	backoff time.Duration
	retryAt time.Time
	steady  time.Time // since when all was written; zero: not
}

// Status of a recording.
type Status struct {
	Dir string `json:"dir"`
	// Failed is why samples cannot be recorded at present and what to do; empty: they
	// are recorded. FailedSince is since when.
	Failed      string    `json:"failed,omitempty"`
	FailedSince time.Time `json:"failedSince,omitzero"`
	// Recorded and Lost count the samples since the start of the agent.
	Recorded uint64 `json:"samplesRecorded"`
	Lost     uint64 `json:"samplesLost"`
	// Bytes and Segments are what the directory has.
	Bytes    uint64 `json:"bytes"`
	Segments int    `json:"segments"`
}

const (
	// queued samples bridge a disk that is slow for some seconds.
	queued = 16
	// hangs is how long a write may take before the disk counts as hanging.
	hangs = 10 * time.Second
	// The backoff after an error: it grows until all was written for maxBackoff.
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// New recorder of one start of an agent. It starts nothing and touches no file.
func New(c Config, version, startedBy string, log *slog.Logger) *Recorder {
	return &Recorder{
		Config: c, Version: version, StartedBy: startedBy, Log: log, run: rand.Text(), queue: make(chan *snapshot.Sample, queued),
		status: Status{Dir: c.Dir},
	}
}

// Add hands over a sample, which must not be changed any more. It never waits: while
// the disk hangs, samples are lost.
func (r *Recorder) Add(s *snapshot.Sample) {
	if r.underWay() >= hangs {
		r.failed(errHangs)
	}
	select {
	case r.queue <- s:
	default:
		r.count(func(s *Status) { s.Lost++ })
	}
}

// underWay is how long the present write has taken; 0 without one.
func (r *Recorder) underWay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return 0
	}
	return time.Since(r.since)
}

// Lose counts a sample that could not be handed over.
func (r *Recorder) Lose(err error) {
	r.failed(err)
	r.count(func(s *Status) { s.Lost++ })
}

// Status at present; of no recorder it is nil.
func (r *Recorder) Status() *Status {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	return &s
}

// Run writes until ctx is done, then what is queued, and closes the segment.
func (r *Recorder) Run(ctx context.Context) {
	defer r.end()
	for {
		select {
		case s := <-r.queue:
			r.record(s)
		case <-ctx.Done():
			for {
				select {
				case s := <-r.queue:
					r.record(s)
				default:
					return
				}
			}
		}
	}
}

func (r *Recorder) end() {
	if r.file != nil {
		if err := r.file.Close(); err != nil {
			r.Log.Warn("cannot write the end of the recording; its samples can be read", "error", err)
		}
	}
	r.lock.Release()
}

// record writes one sample, or counts it as lost.
func (r *Recorder) record(s *snapshot.Sample) {
	if time.Now().Before(r.retryAt) {
		r.count(func(s *Status) { s.Lost++ })
		return
	}
	r.busy(time.Now())
	err := r.write(s)
	r.busy(time.Time{})
	switch {
	case err == nil:
		r.succeeded()
	case errors.Is(err, probes.ErrSampleTooLarge):
		r.Lose(err)
	default:
		r.giveUp()
		r.backoff = min(max(minBackoff, 2*r.backoff), maxBackoff)
		r.retryAt, r.steady = time.Now().Add(r.backoff), time.Time{}
		r.Lose(err)
	}
	r.measure()
}

// write appends to the present segment, or to the next one. Surplus is deleted first: it
// may be what fills the disk.
func (r *Recorder) write(s *snapshot.Sample) error {
	if r.file != nil && r.file.Deleted() {
		r.giveUp()
	}
	if r.file != nil && (uint64(r.file.Size()) >= r.Config.SegmentSize || time.Since(r.begun) >= r.Config.SegmentAge) {
		err := r.file.Close()
		r.file = nil
		if err != nil {
			return err
		}
	}
	if err := r.enter(); err != nil {
		return err
	}
	if err := r.deleteSurplus(); err != nil {
		return err
	}
	if err := available(r.Config.Dir, r.Config.MinAvailable); err != nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.file.Add(s); err != nil {
		return err
	}
	r.added = true
	return r.deleteSurplus()
}

// enter locks the directory and lists its segments, unless one is open.
func (r *Recorder) enter() error {
	if r.file != nil {
		return nil
	}
	if err := os.MkdirAll(r.Config.Dir, 0o700); err != nil {
		return err
	}
	if r.lock == nil {
		lock, err := state.Acquire(r.Config.Dir, time.Now(), r.StartedBy)
		if err != nil {
			return err
		}
		r.lock = lock
	}
	older, err := list(r.Config.Dir)
	if err != nil {
		return err
	}
	for _, s := range older {
		r.number = max(r.number, s.Number)
	}
	r.older, r.aged = older, agedPerSegment
	return nil
}

// begin creates the next segment, unless one is open.
func (r *Recorder) begin() (err error) {
	if r.file != nil {
		return nil
	}
	r.number++
	r.begun, r.added = time.Now(), false
	r.path = filepath.Join(r.Config.Dir, segmentName(r.number, r.begun))
	r.file, err = probes.CreateRecording(r.path, r.Version, r.run)
	return err
}

// agedPerSegment is how many segments may be deleted for their age when one is to be begun: a
// wall clock that is set wrongly, or late after a boot, ages the whole recording at once.
const agedPerSegment = 2

// deleteSurplus deletes the oldest segments until the bounds hold.
func (r *Recorder) deleteSurplus() error {
	n, aged := surplus(r.older, r.size(), time.Now(), r.Config, r.aged)
	r.aged -= aged
	for range n {
		if err := os.Remove(r.older[0].Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		r.older = r.older[1:]
	}
	return nil
}

// giveUp closes the segment without an end, and lets go of the directory: it may
// have been replaced.
func (r *Recorder) giveUp() {
	if r.file != nil {
		_ = r.file.Abandon() // the error before it is told
		if !r.added {
			_ = os.Remove(r.path) // it has no sample
		}
	}
	r.lock.Release()
	r.file, r.lock = nil, nil
}

func (r *Recorder) size() int64 {
	if r.file == nil {
		return 0
	}
	return r.file.Size()
}

// available fails if less of the filesystem is available than this share.
func available(dir string, share float64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if is := float64(fs.Bavail) / float64(max(1, fs.Blocks)); is < share {
		return fmt.Errorf("%s: %w: %.1f %%, less than recording.minAvailable, %.1f %%", dir, errLittleAvailable, 100*is, 100*share)
	}
	return nil
}

func (r *Recorder) busy(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = since
}

func (r *Recorder) count(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// measure updates the size of the directory.
func (r *Recorder) measure() {
	bytes, n := uint64(r.size()), len(r.older)
	if r.file != nil {
		n++
	}
	for _, s := range r.older {
		bytes += uint64(s.Size)
	}
	r.count(func(s *Status) { s.Bytes, s.Segments = bytes, n })
}
