package web

import "sync"

// Bell tells any number of waiters that a new state is there. Who rings waits
// for nobody, and who was busy meanwhile hears it once.
type Bell struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

// Next is closed when the bell rings next.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Ring wakes all who wait.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
