package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// source is an API server that is away at first, and has one Node.
type source struct {
	away int
	// streams: it can list within a watch.
	streams bool

	mu      sync.Mutex // guards what follows
	lists   []metav1.ListOptions
	watches []metav1.ListOptions
	open    *watch.FakeWatcher
}

func one() corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: "7"}}
}

func (s *source) List(_ context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, o)
	if len(s.lists) <= s.away {
		return nil, errors.New("away")
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Node{one()}}, nil
}

func (s *source) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, o)
	if o.SendInitialEvents != nil && !s.streams {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "", nil)
	}
	s.open = watch.NewFakeWithChanSize(2, false)
	if o.SendInitialEvents != nil {
		node, end := one(), one()
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		s.open.Add(&node)
		s.open.Action(watch.Bookmark, &end)
	}
	return s.open, nil
}

func TestStoreListsAndWatches(t *testing.T) {
	for name, streams := range map[string]bool{"a list": false, "a list within a watch": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{streams: streams}
				store := New("nodes", NewSignal(), trimNode, nil)
				go Run(t.Context(), store, s, "role=x")
				synctest.Wait()
				assert.Equal(t, []string{"one"}, names(store))
				for _, o := range append(s.lists, s.watches[0]) {
					assert.Empty(t, o.ResourceVersion, "not what some API server remembers")
				}
				for _, o := range append(s.lists, s.watches...) {
					assert.Equal(t, "role=x", o.LabelSelector)
				}
				two := one()
				two.Name, two.ResourceVersion = "two", "8"
				s.open.Add(&two)
				synctest.Wait()
				assert.ElementsMatch(t, []string{"one", "two"}, names(store))
			})
		})
	}
}

// The reflector's handler of errors keeps a clock of the whole process, which no
// bubble of synctest has.
func TestStoreRetriesAPIServer(t *testing.T) {
	s := &source{away: 2}
	store := New("nodes", NewSignal(), trimNode, nil)
	begun := time.Now()
	go Run(t.Context(), store, s, "")
	deadline.Eventually(t, func() bool { return len(store.List()) == 1 }, time.Minute, time.Millisecond)
	assert.Greater(t, time.Since(begun), minBackoff, "not at once")
}
