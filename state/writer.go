package state

import (
	"errors"
	"sync"
	"time"
)

// Writer writes in a goroutine of its own, one after the other, so that a disk
// that hangs holds nobody for longer than he waits. The zero value is ready.
type Writer struct {
	// Most is how many writes may wait for the one before them, 1 when it is 0.
	// Where there are more the oldest is left out: of a value the newest counts.
	Most int

	mu      sync.Mutex // guards all below
	waiting []*write
	since   time.Time     // when the write that is under way began; zero: none is
	idle    chan struct{} // closed when nothing is written any more; nil: nothing is
}

// write is what is to be done, and what came of it.
type write struct {
	do   func() error
	done chan error
}

// ErrLate says that the disk has not taken a value in time. It may do so later.
var ErrLate = errors.New("state: write timed out")

// Do writes, and waits for it so long at most; not at all where the write under
// way has already taken as long. The error is that of do, or ErrLate.
func (w *Writer) Do(wait time.Duration, do func() error) error {
	one := &write{do, make(chan error, 1)}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	if over := len(w.waiting) - max(1, w.Most); over > 0 {
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
		return ErrLate
	}
}

// Flush waits until all that was to be written is, so long at most; else ErrLate.
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
		return ErrLate
	}
}

// work ends when nothing waits any more.
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
