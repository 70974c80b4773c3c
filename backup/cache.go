package backup

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/store"
)

// objectCache is the cache of the Backups and of the namespaces' names.
type objectCache struct {
	wake       store.Signal
	backups    map[string]*store.Store[*Object] // by watched namespace, or one of all
	namespaces *store.Store[*metav1.ObjectMeta]
}

// newObjectCache is an empty cache of these namespaces; none: of all.
func newObjectCache(of []string) *objectCache {
	c := &objectCache{wake: store.NewSignal(), backups: map[string]*store.Store[*Object]{}}
	if len(of) == 0 {
		of = []string{metav1.NamespaceAll}
	}
	for _, namespace := range of {
		c.backups[namespace] = store.New("backups of "+namespace, c.wake, trimBackup, nil)
	}
	c.namespaces = store.New("namespaces", c.wake, trimNamespace, store.OnUpdate(sameName))
	return c
}

func trimBackup(o any) (*Object, error) {
	switch o := o.(type) {
	case *Object:
		return o, nil
	case *unstructured.Unstructured:
		return Read(o), nil
	}
	return nil, store.ErrType(o)
}

// trimNamespace keeps the name alone.
func trimNamespace(o any) (*metav1.ObjectMeta, error) {
	switch o := o.(type) {
	case *metav1.ObjectMeta:
		return o, nil
	case *metav1.PartialObjectMetadata:
		return &metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion}, nil
	}
	return nil, store.ErrType(o)
}

func sameName(_, _ *metav1.ObjectMeta) (wake bool) { return false }

// synced tells whether the initial lists are complete.
func (c *objectCache) synced() bool {
	for _, s := range c.backups {
		if !s.Synced() {
			return false
		}
	}
	return c.namespaces.Synced()
}

// caughtUp tells whether the cache has all writes of the last round: before, they
// would be made or decided twice.
func (c *objectCache) caughtUp() bool {
	for _, s := range c.backups {
		if !s.CaughtUp() {
			return false
		}
	}
	return true
}

// wrote records the version of a Backup that was written.
func (c *objectCache) wrote(o *Object, version string) {
	s, watched := c.backups[o.Namespace]
	if !watched {
		s = c.backups[metav1.NamespaceAll]
	}
	s.Wrote(o.Namespace, o.Name, version)
}

// objects of every Velero by its namespace: those that are active or have the
// controller's annotation.
func (c *objectCache) objects() map[string][]*Object {
	all := map[string][]*Object{}
	for _, s := range c.backups {
		for _, o := range s.List() {
			if o.active() || o.Annotated {
				all[o.Namespace] = append(all[o.Namespace], o)
			}
		}
	}
	return all
}

// names of the namespaces that exist.
func (c *objectCache) names() []string {
	var names []string
	for _, m := range c.namespaces.List() {
		names = append(names, m.Name)
	}
	return names
}
