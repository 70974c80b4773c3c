package state

import (
	"errors"
	"sync"
	"time"
)

// Writer writes in a goroutine of its own, one write after the other, so that a
// hanging disk blocks a caller no longer than its timeout. The zero value is
// ready.
type Writer struct {
	// MaxQueued is how many writes may be queued behind the current one, 1 when 0. Beyond
	// that the oldest is dropped: the newest state counts.
	MaxQueued int

	mu      sync.Mutex // guards all below
	waiting []*write
	since   time.Time     // start of the current write; zero: none
	idle    chan struct{} // closed when the queue is empty; nil: it is empty
}

// write is a queued write and its result.
type write struct {
	do   func() error
	done chan error
}

// ErrTimeout says that the disk did not answer in time. What was asked of it may still
// complete later.
var ErrTimeout = errors.New("state: the disk does not answer in time")

// Do queues a write and waits for its result, at most so long, and not at all
// where the current write has already taken as long. The error is that of do, or
// ErrTimeout.
func (w *Writer) Do(wait time.Duration, do func() error) error {
	one := &write{do, make(chan error, 1)}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	if over := len(w.waiting) - max(1, w.MaxQueued); over > 0 {
		w.waiting = w.waiting[over:]
	}
	if w.idle == nil {
		w.since, w.idle = time.Now(), make(chan struct{})
		go w.work()
	} else if time.Since(w.since) >= wait {
		wait = 0
	}
	w.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case err := <-one.done:
		return err
	case <-late.C:
		return ErrTimeout
	}
}

// Answer is what a read has returned.
type Answer[T any] struct {
	Value T
	Err   error
}

// Begin waits for what do returns, at most so long. The answer is in the channel then, or
// comes late, as from a disk that hangs. do is run by the writer, so nothing is written
// before it ends.
func Begin[T any](w *Writer, wait time.Duration, do func() (T, error)) <-chan Answer[T] {
	read := make(chan Answer[T], 1)
	_ = w.Do(wait, func() error { // without an answer in time the channel is empty
		value, err := do()
		read <- Answer[T]{value, err}
		return nil
	})
	return read
}

// Read is Begin without the late answer: the error is ErrTimeout then.
func Read[T any](w *Writer, wait time.Duration, do func() (T, error)) (T, error) {
	select {
	case read := <-Begin(w, wait, do):
		return read.Value, read.Err
	default:
		var none T
		return none, ErrTimeout
	}
}

// Flush waits until all queued writes are done, at most so long; else ErrTimeout.
func (w *Writer) Flush(wait time.Duration) error {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return nil
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-idle:
		return nil
	case <-late.C:
		return ErrTimeout
	}
}

// work makes the queued writes and ends with the last.
func (w *Writer) work() {
	for {
		w.mu.Lock()
		if len(w.waiting) == 0 {
			close(w.idle)
			w.since, w.idle = time.Time{}, nil
			w.mu.Unlock()
			return
		}
		one := w.waiting[0]
		w.waiting, w.since = w.waiting[1:], time.Now()
		w.mu.Unlock()
		one.done <- one.do()
	}
}
