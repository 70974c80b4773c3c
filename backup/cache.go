package backup

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/store"
)

// objectCache is the cache of the Backups, their Schedules, and the namespaces.
type objectCache struct {
	wake       store.Signal
	backups    map[string]*store.Store[*Object]   // by watched namespace, or one of all
	schedules  map[string]*store.Store[*Schedule] // likewise
	namespaces *store.Store[*metav1.ObjectMeta]
}

// newObjectCache is an empty cache of these namespaces; none: of all.
func newObjectCache(of []string) *objectCache {
	c := &objectCache{wake: store.NewSignal(), backups: map[string]*store.Store[*Object]{}, schedules: map[string]*store.Store[*Schedule]{}}
	if len(of) == 0 {
		of = []string{metav1.NamespaceAll}
	}
	for _, namespace := range of {
		c.backups[namespace] = store.New("backups of "+namespace, c.wake, trimBackup, nil)
		c.schedules[namespace] = store.New("schedules of "+namespace, c.wake, trimSchedule, store.OnUpdate(wantedChanged))
	}
	c.namespaces = store.New("namespaces", c.wake, trimNamespace, store.OnUpdate(annotationsChanged))
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

// trimNamespace keeps the name, and the annotations that say what is wanted.
func trimNamespace(o any) (*metav1.ObjectMeta, error) {
	switch o := o.(type) {
	case *metav1.ObjectMeta:
		return o, nil
	case *metav1.PartialObjectMetadata:
		return &metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Annotations: objective.Of(o.Annotations)}, nil
	}
	return nil, store.ErrType(o)
}

func annotationsChanged(was, is *metav1.ObjectMeta) (wake bool) {
	return !maps.Equal(was.Annotations, is.Annotations)
}

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
// controller's annotation; and those that have left the queue.
func (c *objectCache) objects() (all, left map[string][]*Object) {
	all, left = map[string][]*Object{}, map[string][]*Object{}
	for _, s := range c.backups {
		for _, o := range s.List() {
			if o.active() || o.Annotated {
				all[o.Namespace] = append(all[o.Namespace], o)
			}
			if !o.active() {
				left[o.Namespace] = append(left[o.Namespace], o)
			}
		}
	}
	return all, left
}

// addDated adds the Veleros that deadlines concern while no Backup waits: a Schedule may miss its
// deadline, and one that has left its slot is followed until it has ended.
func (c *objectCache) addDated(all, left map[string][]*Object) {
	dated := c.scheduling()
	for namespace, objects := range left {
		if slices.ContainsFunc(objects, func(o *Object) bool { return o.Backup.begun() }) {
			dated[namespace] = true
		}
	}
	for namespace := range dated {
		all[namespace] = append([]*Object{}, all[namespace]...)
	}
}

// schedulesListed tells whether the initial lists of Schedules are complete.
func (c *objectCache) schedulesListed() bool {
	for _, s := range c.schedules {
		if !s.Synced() {
			return false
		}
	}
	return true
}

// scheduling are the namespaces that have a Schedule.
func (c *objectCache) scheduling() map[string]bool {
	all := map[string]bool{}
	for _, s := range c.schedules {
		for _, o := range s.List() {
			all[o.Namespace] = true
		}
	}
	return all
}

// schedulesOf one Velero.
func (c *objectCache) schedulesOf(namespace string) (list []*Schedule) {
	for _, s := range c.schedules {
		for _, o := range s.List() {
			if o.Namespace == namespace && o.DeletionTimestamp == nil {
				list = append(list, o)
			}
		}
	}
	return list
}

// names of the namespaces that exist, sorted.
func (c *objectCache) names() []string {
	var names []string
	for _, m := range c.namespaces.List() {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// annotations of the namespaces that say what is wanted.
func (c *objectCache) annotations() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, n := range c.namespaces.List() {
		if n.Annotations != nil {
			all[n.Name] = n.Annotations
		}
	}
	return all
}
