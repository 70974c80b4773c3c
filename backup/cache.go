package backup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/store"
)

// objectCache is the cache of the Backups and of the namespaces' names.
type objectCache struct {
	// wake signals a change; its capacity is 1.
	wake       chan struct{}
	backups    []*objectStore // one for each namespace that is watched
	namespaces *objectStore
}

// newObjectCache is an empty cache of these namespaces; none: of all.
func newObjectCache(of []string) *objectCache {
	c := &objectCache{wake: make(chan struct{}, 1)}
	if len(of) == 0 {
		of = []string{metav1.NamespaceAll}
	}
	for _, namespace := range of {
		c.backups = append(c.backups, newStore("backups of "+namespace, namespace, c.wake))
	}
	c.namespaces = newStore("namespaces", "", c.wake)
	return c
}

// run runs the watches until ctx is done.
func (c *objectCache) run(ctx context.Context, backups dynamic.NamespaceableResourceInterface, namespaces metadata.Getter) {
	var all sync.WaitGroup
	for _, s := range c.backups {
		all.Go(func() { store.Run(ctx, s.name, s, backups.Namespace(s.namespace), "") })
	}
	all.Go(func() { store.Run(ctx, c.namespaces.name, c.namespaces, namespaces, "") })
	all.Wait()
}

// synced tells whether the initial lists are complete.
func (c *objectCache) synced() bool {
	return c.namespaces.synced.Load() && !slices.ContainsFunc(c.backups, func(s *objectStore) bool { return !s.synced.Load() })
}

// objects of every Velero by its namespace: those that are active or have the
// controller's annotation.
func (c *objectCache) objects() map[string][]*Object {
	all := map[string][]*Object{}
	for _, s := range c.backups {
		for _, item := range s.List() {
			if o, ok := item.(*Object); ok && (o.active() || o.Annotated) {
				all[o.Namespace] = append(all[o.Namespace], o)
			}
		}
	}
	return all
}

// names of the namespaces that exist.
func (c *objectCache) names() []string {
	var names []string
	for _, item := range c.namespaces.List() {
		if m, ok := item.(*metav1.ObjectMeta); ok {
			names = append(names, m.Name)
		}
	}
	return names
}

// seen tells whether the cache has a version of a Backup, or a later one.
func (c *objectCache) seen(namespace, name, version string) bool {
	for _, s := range c.backups {
		item, there, err := s.GetByKey(namespace + "/" + name)
		if o, ok := item.(*Object); ok && there && err == nil {
			order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, version)
			return err != nil || order >= 0
		}
	}
	return true // it was deleted
}

// objectStore is a reflector store that signals changes.
type objectStore struct {
	cache.Store
	name, namespace string
	wake            chan<- struct{}
	synced          atomic.Bool
	changes         atomic.Uint64
}

func newStore(name, namespace string, bell chan<- struct{}) *objectStore {
	return &objectStore{
		Store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(transform)),
		name:  name, namespace: namespace, wake: bell,
	}
}

// transform trims an object to what is needed.
func transform(object any) (any, error) {
	switch o := object.(type) {
	case *unstructured.Unstructured:
		return Read(o), nil
	case *metav1.PartialObjectMetadata:
		return &metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion}, nil
	case *Object, *metav1.ObjectMeta: // it was transformed already
		return o, nil
	}
	return nil, fmt.Errorf("unexpected object of type %T: want Backup or Namespace", object)
}

// Transformer makes the reflector trim the objects of a list as well.
func (s *objectStore) Transformer() cache.TransformFunc { return transform }

func (s *objectStore) Add(o any) error    { return s.signal(s.Store.Add(o)) }
func (s *objectStore) Update(o any) error { return s.signal(s.Store.Update(o)) }
func (s *objectStore) Delete(o any) error { return s.signal(s.Store.Delete(o)) }

// Replace stores a complete list.
func (s *objectStore) Replace(list []any, version string) error {
	err := s.Store.Replace(list, version)
	s.synced.Store(true)
	return s.signal(err)
}

func (s *objectStore) signal(err error) error {
	s.changes.Add(1)
	select {
	case s.wake <- struct{}{}:
	default: // already signalled
	}
	return err
}
