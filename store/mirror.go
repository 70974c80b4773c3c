// Package store keeps a store in sync with the API server: list and watch by a
// client-go reflector, as an informer does.
//
// # Usage
//
//	store.Run(ctx, "backups", store, client.Resource(backups).Namespace("velero"), "")
//
// # Concurrency
//
// Run calls the store from one goroutine.
package store

import (
	"context"
	"math"
	"time"

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

// Run keeps the store in sync with the objects that have the labels until ctx is done;
// no labels: with all. Lists are read from etcd, not from an API server's watch cache,
// which may be stale: a new leader could repeat what the previous one did. The store's
// Transformer, if any, trims the objects of a list as well.
func Run[L runtime.Object](ctx context.Context, name string, store cache.ReflectorStore, from Source[L], labels string) {
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
	cache.NewReflectorWithOptions(lw, nil, store, cache.ReflectorOptions{
		Name: name, Backoff: &wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: maxBackoff},
	}).RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}
