package store

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Object of a store: a pointer to a trimmed object. Its zero value is none.
type Object interface {
	comparable
	metav1.Object
}

// Store has the objects of one kind, each trimmed to what is needed. A stored object
// never changes. Its methods may be called from any goroutine.
type Store[T Object] struct {
	name    string
	trim    func(object any) (T, error)
	changed func(was, is T) (wake bool)
	wake    Signal

	mu      sync.Mutex // guards items and written
	items   map[string]T
	written map[string]string // resource versions written and not seen yet
	synced  atomic.Bool
	changes atomic.Uint64
}

// New is an empty store. trim reduces an object to what is needed; a trimmed one stays
// as it is. changed observes each change in order, may carry state over to the new
// object, and tells whether the change needs a round. was is zero for a new object, is
// for a deleted one. Without changed each change needs a round.
func New[T Object](name string, wake Signal, trim func(object any) (T, error), changed func(was, is T) (wake bool)) *Store[T] {
	return &Store[T]{name: name, trim: trim, changed: changed, wake: wake, items: map[string]T{}, written: map[string]string{}}
}

// OnUpdate is a New's changed where a new or deleted object always needs a round.
func OnUpdate[T Object](changed func(was, is T) (wake bool)) func(was, is T) (wake bool) {
	var none T
	return func(was, is T) bool { return was == none || is == none || changed(was, is) }
}

// ErrType is the error of an object of an unexpected type.
func ErrType(object any) error { return fmt.Errorf("unexpected object of type %T", object) }

// Name of the store.
func (s *Store[T]) Name() string { return s.name }

// Synced tells whether the first list is complete.
func (s *Store[T]) Synced() bool { return s.synced.Load() }

// Changes counts the changes that needed a round.
func (s *Store[T]) Changes() uint64 { return s.changes.Load() }

// List returns the objects, in no order.
func (s *Store[T]) List() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(make([]T, 0, len(s.items)), maps.Values(s.items))
}

// Get returns an object; namespace is empty for those of the cluster.
func (s *Store[T]) Get(namespace, name string) (item T, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, there = s.items[namespace+"/"+name]
	return item, there
}

// Wrote records that the caller wrote a version of an object.
func (s *Store[T]) Wrote(namespace, name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[namespace+"/"+name] = version
}

// CaughtUp tells whether the store has every version written, or a later one, or the
// object was deleted. Before, decisions and writes would be repeated.
func (s *Store[T]) CaughtUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, version := range s.written {
		if item, there := s.items[key]; there && older(item.GetResourceVersion(), version) {
			return false
		}
		delete(s.written, key)
	}
	return true
}

// older compares two resource versions of an object. Versions without an order count as
// seen, or nothing would ever be decided again.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// Transformer makes the reflector trim the objects of a list as well.
func (s *Store[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.trim(o) }
}

// Add stores an object.
func (s *Store[T]) Add(o any) error { return s.Update(o) }

// Update stores an object.
func (s *Store[T]) Update(o any) error {
	is, err := s.trim(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(is)
	was := s.items[key]
	s.items[key] = is
	s.observe(was, is)
	return nil
}

// Delete removes an object. Its key is that of the trimmed object, as in Update.
func (s *Store[T]) Delete(o any) error {
	last, err := s.trim(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	key := keyOf(last)
	if was, there := s.items[key]; there {
		delete(s.items, key)
		s.observe(was, none)
	}
	return nil
}

// Replace stores a complete list: what is not in it was deleted. The first list needs a
// round. On failure nothing has changed.
func (s *Store[T]) Replace(list []any, _ string) error {
	items := make(map[string]T, len(list))
	for _, o := range list {
		is, err := s.trim(o)
		if err != nil {
			return err
		}
		items[keyOf(is)] = is
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.items
	s.items = items
	for key, is := range items {
		s.observe(before[key], is)
	}
	for key, was := range before {
		if _, still := items[key]; !still {
			var none T
			s.observe(was, none)
		}
	}
	if !s.synced.Swap(true) {
		s.signal()
	}
	return nil
}

// Resync does nothing.
func (s *Store[T]) Resync() error { return nil }

func (s *Store[T]) observe(was, is T) {
	if s.changed == nil || s.changed(was, is) {
		s.signal()
	}
}

func (s *Store[T]) signal() {
	s.changes.Add(1)
	s.wake.Set()
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Signal wakes a loop that waits; one signal stays until it is received.
type Signal chan struct{}

// NewSignal is a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set the signal. It never blocks.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default: // it is set
	}
}
