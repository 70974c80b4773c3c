package web

import "sync"

// Notifier notifies any number of waiters of a new state. Ring never blocks; a
// waiter that misses several rings is notified once.
type Notifier struct {
	mu   sync.Mutex // guards next
	next chan struct{}
}

// Next returns a channel that the next Ring closes.
func (b *Notifier) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Notify wakes all waiters.
func (b *Notifier) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
