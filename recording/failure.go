package recording

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/state"
)

var (
	errHangs           = errors.New("a write to the disk has not returned for 10 s")
	errLittleAvailable = errors.New("too little space is available")
)

// remedy is what to do about an error.
func remedy(err error) string {
	switch {
	case errors.Is(err, errHangs):
		return "check the disk of recording.dir, or record to another one"
	case errors.Is(err, errLittleAvailable):
		return "delete files there, or set recording.dir to a filesystem with more space, or lower recording.minAvailable"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "delete files there, or set recording.dir to a filesystem with more space"
	case errors.Is(err, unix.EROFS):
		return "set recording.dir to a directory that is mounted writable"
	case errors.Is(err, fs.ErrPermission):
		return "give the agent's user the right to write to recording.dir"
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, fs.ErrExist):
		return "set recording.dir to a directory: there is a file of this name"
	case errors.Is(err, state.ErrLocked):
		return "set another recording.dir for one of the two agents"
	case errors.Is(err, errTooManyEntries):
		return "set recording.dir to a directory that is used for nothing else"
	case errors.Is(err, probes.ErrSampleTooLarge):
		return "measure fewer cgroups: workloads.roots"
	}
	return "check recording.dir"
}

// failed notes that samples cannot be recorded. It is logged once for each cause.
func (r *Recorder) failed(err error) {
	do := remedy(err)
	text := err.Error() + "; " + do
	r.mu.Lock()
	known := r.status.Failed != "" && r.cause == do
	if r.status.Failed == "" {
		r.status.FailedSince = time.Now()
	}
	r.status.Failed, r.cause = text, do
	r.mu.Unlock()
	if !known {
		r.Log.Warn("cannot record samples; the agent goes on without, and tries again", "dir", r.Config.Dir, "error", err, "todo", do)
	}
}

// succeeded notes that a sample was recorded.
func (r *Recorder) succeeded() {
	now := time.Now()
	r.mu.Lock()
	was := r.status
	r.status.Recorded++
	r.status.Failed, r.status.FailedSince, r.cause = "", time.Time{}, ""
	r.mu.Unlock()
	if was.Recorded == 0 {
		r.Log.Info("recording samples", "segment", r.path, "older", len(r.older))
	}
	if was.Failed != "" {
		r.Log.Info("samples are recorded again", "dir", r.Config.Dir, "after", now.Sub(was.FailedSince).Round(time.Second), "lost", was.Lost)
	}
	if r.steady.IsZero() {
		r.steady = now
	}
	if now.Sub(r.steady) >= maxBackoff {
		r.backoff = 0
	}
}
