package admission

import (
	"fmt"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// objectStore is the trimmed cache of one kind of object, a reflector store.
type objectStore[T metav1.Object] struct {
	name string
	// trim reduces an object to what is needed; a trimmed one stays as it is.
	trim func(object any) (T, error)
	// changed carries state over from the previous object, and tells whether the change
	// needs a round. nil: every change does.
	changed func(was, is T) (news bool)
	wake    chan<- struct{}

	mu      sync.Mutex // guards items
	items   map[string]T
	synced  atomic.Bool
	changes atomic.Uint64 // counts the changes that need a round
}

func newStore[T metav1.Object](name string, bell chan<- struct{}, trim func(any) (T, error), renew func(was, is T) bool) *objectStore[T] {
	return &objectStore[T]{name: name, trim: trim, changed: renew, wake: bell, items: map[string]T{}}
}

// list returns the items, in no order. They are never changed.
func (s *objectStore[T]) list() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]T, 0, len(s.items))
	for _, item := range s.items {
		list = append(list, item)
	}
	return list
}

func (s *objectStore[T]) get(namespace, name string) (item T, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, there = s.items[namespace+"/"+name]
	return item, there
}

// Transformer makes the reflector trim the objects of a list as well.
func (s *objectStore[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.trim(o) }
}

// Add, Update and Delete implement [cache.ReflectorStore].
func (s *objectStore[T]) Add(o any) error { return s.Update(o) }

// Update stores an object.
func (s *objectStore[T]) Update(o any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, err := s.put(s.items, o)
	if news {
		s.signal()
	}
	return err
}

// put stores an object in items, or in those of a new list.
func (s *objectStore[T]) put(items map[string]T, o any) (news bool, err error) {
	is, err := s.trim(o)
	if err != nil {
		return false, err
	}
	key := is.GetNamespace() + "/" + is.GetName()
	was, had := s.items[key]
	items[key] = is
	if !had || s.changed == nil {
		return true, nil
	}
	return s.changed(was, is), nil
}

// Delete removes an object.
func (s *objectStore[T]) Delete(o any) error {
	is, err := s.trim(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.items, is.GetNamespace()+"/"+is.GetName())
	s.signal()
	return nil
}

// Replace stores a complete list.
func (s *objectStore[T]) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make(map[string]T, len(list))
	for _, o := range list {
		if _, err := s.put(items, o); err != nil {
			return err
		}
	}
	s.items = items
	s.synced.Store(true)
	s.signal()
	return nil
}

// Resync does nothing.
func (s *objectStore[T]) Resync() error { return nil }

func (s *objectStore[T]) signal() {
	s.changes.Add(1)
	select {
	case s.wake <- struct{}{}:
	default: // already signalled
	}
}

// unexpectedType is the error of an object of an unexpected kind.
func unexpectedType(o any) error { return fmt.Errorf("unexpected object of type %T", o) }
