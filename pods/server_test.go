package pods

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// server is an API server whose watches a test holds in its hand.
type server struct {
	corev1client.PodInterface
	mu      sync.Mutex // guards all below
	watches []*serverWatch
	fail    error // of every call
	made    watch.Interface
	hang    bool // watches get no answer
	rows    []corev1.Pod
	late    bool // whole lists are begun and do not come
	asked   []time.Time
	takes   time.Duration // a watch's answer
}

type serverWatch struct {
	*watch.FakeWatcher
	options metav1.ListOptions
}

func (s *server) Pods(string) corev1client.PodInterface { return s }

func (s *server) List(_ context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: s.rows}, nil
}

func (s *server) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	time.Sleep(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	switch {
	case s.hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case s.fail != nil:
		return nil, s.fail
	case s.made != nil:
		return s.made, nil
	}
	w := &serverWatch{FakeWatcher: watch.NewFakeWithChanSize(100, false), options: options}
	context.AfterFunc(ctx, w.Stop)
	s.watches = append(s.watches, w)
	if options.SendInitialEvents != nil && *options.SendInitialEvents && !s.late {
		for _, row := range s.rows {
			w.Add(&row)
		}
		w.bookmark("8", true)
	}
	return w, nil
}

func (w *serverWatch) bookmark(version string, initialEnd bool) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	if initialEnd {
		pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	w.Action(watch.Bookmark, pod)
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *server) last() *serverWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[len(s.watches)-1]
}

func (s *server) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

// gaps are the times between one watch that was asked for and the next.
func (s *server) gaps() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range len(s.asked) - 1 {
		all = append(all, s.asked[i+1].Sub(s.asked[i]))
	}
	return all
}
