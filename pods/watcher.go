package pods

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Watcher watches the pods of one node: an informer with a store of stripped pods.
// It needs list and watch of pods, and get of persistentvolumeclaims and
// persistentvolumes, in all namespaces. The client of Pods should use HTTP/2 and
// must have no timeout of its own: hearing.go explains how a lost API server is
// noticed.
type Watcher struct {
	// Node is the node's name as the API server has it.
	Node    string
	Pods    corev1client.PodsGetter
	Claims  corev1client.PersistentVolumeClaimsGetter
	Volumes corev1client.PersistentVolumesGetter
	Log     *slog.Logger
	// Changed is called after each change of the store, and must not block. Nil:
	// not called.
	Changed func()
	// PluginPods is whether and how pods are also stored for outer plugins.
	PluginPods PluginPods
	// OptOuts are read when Run begins.
	OptOuts OptOuts

	connection connectionState
	// mu guards pods and claims.
	mu     sync.Mutex
	pods   cache.Store // nil before Run; the store locks itself
	claims map[claimKey]claim
}

// Run watches until ctx is done. It retries with exponential backoff; List tells
// since when the connection has been lost.
func (w *Watcher) Run(ctx context.Context) error {
	store := w.newStore()
	w.mu.Lock()
	w.pods = store
	w.mu.Unlock()
	server := &listerWatcher{watcher: w}
	// The reflector's own log lines repeat those of listener.
	ctx = klog.NewContext(ctx, klog.Logger{})
	reflector := cache.NewReflectorWithOptions(server.listWatch(), &corev1.Pod{}, strippingStore{store, server}, cache.ReflectorOptions{
		Name: "pods of " + w.Node, Backoff: reconnectBackoff(),
	})
	reflector.RunWithContext(ctx)
	server.forwards.Wait()
	return nil
}

// newStore is a store that strips pods as they are added.
func (w *Watcher) newStore() cache.Store {
	return cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(w.transform))
}

// strippingStore is the store as the reflector fills it; it is complete from the first
// Replace on.
type strippingStore struct {
	cache.Store
	listener *listerWatcher
}

// Transformer strips pods also while a first list is still being received.
func (s strippingStore) Transformer() cache.TransformFunc {
	return s.listener.watcher.transform
}

// Replace stores a complete list. Only then the store is up to date again.
func (s strippingStore) Replace(pods []any, version string) error {
	if err := s.Store.Replace(pods, version); err != nil {
		return err
	}
	s.listener.logRecovery(s.listener.watcher.connection.synced())
	return s.changed(nil)
}

// Add stores a new pod.
func (s strippingStore) Add(pod any) error { return s.changed(s.Store.Add(pod)) }

// Update stores a changed pod.
func (s strippingStore) Update(pod any) error { return s.changed(s.Store.Update(pod)) }

// Delete removes a pod.
func (s strippingStore) Delete(pod any) error { return s.changed(s.Store.Delete(pod)) }

func (s strippingStore) changed(err error) error {
	if tell := s.listener.watcher.Changed; tell != nil && err == nil {
		tell()
	}
	return err
}

// Synced reports whether a complete list was received at least once.
func (w *Watcher) Synced() bool { return w.connection.state().synced }

// StaleSince is when the connection to the API server was lost; zero while it is
// up.
func (w *Watcher) StaleSince() time.Time { return w.connection.state().since }

// Status is List without the pods, of which there are so many.
func (w *Watcher) Status() (list List, count int) {
	state := w.connection.state()
	w.mu.Lock()
	store := w.pods
	w.mu.Unlock()
	if store != nil {
		count = len(store.ListKeys())
	}
	return List{Synced: state.synced, StaleSince: state.since, StaleBecause: state.lastError}, count
}

// List returns the stored pods, by namespace and name, without a request.
func (w *Watcher) List(rules Rules) List {
	// The state is read first, so the pods may be newer than it, never older.
	state := w.connection.state()
	all := w.all()
	stored := podsOf(all)
	claims := w.claimsByPod(stored)
	list := List{Synced: state.synced, StaleSince: state.since, StaleBecause: state.lastError}
	list.Pods = make([]Pod, 0, len(stored))
	for i, pod := range stored {
		p := toPod(pod, claims[i], rules)
		p.OptedOut = all[i].optedOut
		list.Pods = append(list.Pods, p)
	}
	list.byCgroup = indexByCgroup(list.Pods)
	return list
}

// stored returns the stripped pods in order; they must not be changed.
func (w *Watcher) stored() []*corev1.Pod { return podsOf(w.all()) }

func podsOf(stored []*storedPod) []*corev1.Pod {
	list := make([]*corev1.Pod, 0, len(stored))
	for _, s := range stored {
		list = append(list, s.Pod)
	}
	return list
}

// all returns the content of the store, in order.
func (w *Watcher) all() []*storedPod {
	w.mu.Lock()
	store := w.pods
	w.mu.Unlock()
	if store == nil {
		return nil
	}
	var all []*storedPod
	for _, object := range store.List() {
		if s, ok := object.(*storedPod); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *storedPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// claimsByPod returns the known claims of each pod, in the pods' order.
func (w *Watcher) claimsByPod(pods []*corev1.Pod) []claimsByName {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]claimsByName, len(pods))
	for i, pod := range pods {
		for _, name := range claimNames(pod) {
			if all[i] == nil {
				all[i] = claimsByName{}
			}
			all[i][name] = w.claims[claimKey{pod.UID, pod.Namespace, name}].forPod(pod)
		}
	}
	return all
}

// transform is strip, with the opt-out, as a client-go TransformFunc, which must be idempotent.
func (w *Watcher) transform(object any) (any, error) {
	switch pod := object.(type) {
	case *storedPod:
		return pod, nil
	case *corev1.Pod:
		s := &storedPod{Pod: strip(pod), optedOut: w.OptOuts.of(pod)}
		w.PluginPods.encode(s, pod)
		return s, nil
	}
	return nil, fmt.Errorf("strip pod: unexpected type %T", object)
}

// labelled returns the metadata of these pods of the node, with their labels, as far as
// all labels are known.
func (w *Watcher) labelled(uids []string) []metav1.ObjectMeta {
	wanted := map[string]bool{}
	for _, uid := range uids {
		wanted[uid] = true
	}
	var list []metav1.ObjectMeta
	for _, s := range w.all() {
		var m metav1.PartialObjectMetadata // its metadata has the same field number as a pod's
		if wanted[string(s.UID)] && m.Unmarshal(s.encoded) == nil && len(m.Labels) == s.labels {
			list = append(list, metav1.ObjectMeta{Namespace: s.Namespace, UID: s.UID, Labels: m.Labels})
		}
	}
	return list
}
