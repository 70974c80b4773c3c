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

// cached is the cache of the Backups and of the namespaces' names.
type cached struct {
	// bell signals a change; its capacity is 1.
	bell       chan struct{}
	backups    []*shelf // one for each namespace that is watched
	namespaces *shelf
}

// newCached is an empty cache of these namespaces; none: of all.
func newCached(of []string) *cached {
	c := &cached{bell: make(chan struct{}, 1)}
	if len(of) == 0 {
		of = []string{metav1.NamespaceAll}
	}
	for _, namespace := range of {
		c.backups = append(c.backups, newShelf("backups of "+namespace, namespace, c.bell))
	}
	c.namespaces = newShelf("namespaces", "", c.bell)
	return c
}

// run runs the watches until ctx is done.
func (c *cached) run(ctx context.Context, backups dynamic.NamespaceableResourceInterface, namespaces metadata.Getter) {
	var all sync.WaitGroup
	for _, s := range c.backups {
		all.Go(func() { store.Run(ctx, s.name, s, backups.Namespace(s.namespace), "") })
	}
	all.Go(func() { store.Run(ctx, c.namespaces.name, c.namespaces, namespaces, "") })
	all.Wait()
}

// synced tells whether the initial lists are complete.
func (c *cached) synced() bool {
	return c.namespaces.full.Load() && !slices.ContainsFunc(c.backups, func(s *shelf) bool { return !s.full.Load() })
}

// objects of every Velero by its namespace: those that are active or have the
// controller's annotation.
func (c *cached) objects() map[string][]*Object {
	all := map[string][]*Object{}
	for _, s := range c.backups {
		for _, item := range s.List() {
			if o, ok := item.(*Object); ok && (o.active() || o.Marked) {
				all[o.Namespace] = append(all[o.Namespace], o)
			}
		}
	}
	return all
}

// names of the namespaces that exist.
func (c *cached) names() []string {
	var names []string
	for _, item := range c.namespaces.List() {
		if m, ok := item.(*metav1.ObjectMeta); ok {
			names = append(names, m.Name)
		}
	}
	return names
}

// seen tells whether the cache has a version of a Backup, or a later one.
func (c *cached) seen(namespace, name, version string) bool {
	for _, s := range c.backups {
		item, there, err := s.GetByKey(namespace + "/" + name)
		if o, ok := item.(*Object); ok && there && err == nil {
			order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, version)
			return err != nil || order >= 0
		}
	}
	return true // it was deleted
}

// shelf is a reflector store that signals changes.
type shelf struct {
	cache.Store
	name, namespace string
	bell            chan<- struct{}
	full            atomic.Bool
	changes         atomic.Uint64
}

func newShelf(name, namespace string, bell chan<- struct{}) *shelf {
	return &shelf{
		Store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(transform)),
		name:  name, namespace: namespace, bell: bell,
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
func (s *shelf) Transformer() cache.TransformFunc { return transform }

func (s *shelf) Add(o any) error    { return s.rings(s.Store.Add(o)) }
func (s *shelf) Update(o any) error { return s.rings(s.Store.Update(o)) }
func (s *shelf) Delete(o any) error { return s.rings(s.Store.Delete(o)) }

// Replace stores a complete list.
func (s *shelf) Replace(list []any, version string) error {
	err := s.Store.Replace(list, version)
	s.full.Store(true)
	return s.rings(err)
}

func (s *shelf) rings(err error) error {
	s.changes.Add(1)
	select {
	case s.bell <- struct{}{}:
	default: // already signalled
	}
	return err
}
