package web

import "sync"

// Bell notifies any number of waiters of a new state. Ring never blocks; a
// waiter that misses several rings is notified once.
type Bell struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

// Next returns a channel that the next Ring closes.
func (b *Bell) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Ring wakes all waiters.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
