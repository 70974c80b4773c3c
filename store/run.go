// Package store has the objects of the API server that a controller decides by, each
// trimmed to what is needed. A client-go reflector keeps them in sync by list and watch,
// as an informer does.
//
// # Usage
//
//	wake := store.NewSignal()
//	nodes := store.New("nodes", wake, trimNode, store.OnUpdate(nodeChanged))
//	go store.Run(ctx, nodes, core.Nodes(), "") // until ctx is done
//	<-wake; nodes.Synced(); nodes.List()
//
// After a write of its own a controller calls Wrote, and decides anew once the store is
// CaughtUp.
//
// # Concurrency
//
// A Store may be used from any goroutine. Its changes are observed one after the other.
package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Source of objects: a client of one kind.
type Source[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// The exponential backoff after a failed list or watch.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// Named is what Run keeps in sync: a Store.
type Named interface {
	cache.ReflectorStore
	Name() string
}

// Run keeps a store in sync with the objects that have the labels until ctx is done;
// no labels: with all. Lists are read from etcd, not from an API server's watch cache,
// which may be stale: a new leader could repeat what the previous one did.
func Run[L runtime.Object](ctx context.Context, s Named, from Source[L], labels string) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersionMatch == "" {
				o.ResourceVersion = ""
			}
			o.LabelSelector = labels
			return from.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				o.ResourceVersion = ""
			}
			o.LabelSelector = labels
			return from.Watch(ctx, o)
		},
	}
	// The reflector's own log lines add nothing to ours.
	cache.NewReflectorWithOptions(lw, nil, s, cache.ReflectorOptions{
		Name: s.Name(), Backoff: &wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: maxBackoff},
	}).RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}

// Fill lists the objects that have the labels into a store, once.
func Fill[L runtime.Object](ctx context.Context, s Named, from Source[L], labels string) error {
	list, err := from.List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return fmt.Errorf("list %s: %w", s.Name(), err)
	}
	var items []any
	if err := meta.EachListItem(list, func(o runtime.Object) error { items = append(items, o); return nil }); err != nil {
		return fmt.Errorf("list %s: %w", s.Name(), err)
	}
	return s.Replace(items, "")
}
