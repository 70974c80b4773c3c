package process

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/state"
)

// SetLevel makes a running log as verbose as configured.
func SetLevel(level *slog.LevelVar, c config.Log) {
	var l slog.Level
	if l.UnmarshalText([]byte(c.Level)) == nil { // the configuration is validated
		level.Set(l)
	}
}

const (
	// maxLogLines is how many lines of a log are queued while it is not read.
	maxLogLines = 1000
	// logFlush is how long the end of the program waits for them.
	logFlush = time.Second
)

// LogQueue writes the lines of a log in a goroutine of its own, so that no loop waits where it
// is not read: a container runtime or a journal may hang with its disk. Beyond maxLogLines
// the oldest are lost.
type LogQueue struct {
	lost   func(lines int)
	writer state.Writer

	mu      sync.Mutex // guards added
	added   int
	written int // the number of the last that was written; owned by writer's goroutine
}

// NewLogQueue returns an empty one; lost is told how many lines were.
func NewLogQueue(lost func(lines int)) *LogQueue {
	return &LogQueue{lost: lost, writer: state.Writer{MaxQueued: maxLogLines}}
}

// Add queues the write of a line.
func (q *LogQueue) Add(write func() error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
	n := q.added
	_ = q.writer.Do(0, func() error {
		missing := n - q.written - 1
		q.written = n
		if missing > 0 {
			q.lost(missing)
		}
		return write()
	})
}

// Flush waits until all lines are written, for a second at most.
func (q *LogQueue) Flush() { _ = q.writer.Flush(logFlush) }

// Writer queues each Write.
func (q *LogQueue) Writer(w io.Writer) io.Writer { return queuedWriter{q, w} }

type queuedWriter struct {
	queue *LogQueue
	w     io.Writer
}

// Write implements io.Writer.
func (w queuedWriter) Write(line []byte) (int, error) {
	kept := bytes.Clone(line)
	w.queue.Add(func() error {
		_, err := w.w.Write(kept)
		return err
	})
	return len(line), nil
}
