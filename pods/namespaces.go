package pods

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// NamespaceLabel watches the namespaces that have a label, and no others. It needs list and
// watch of namespaces. While it does not have them it knows what it knew last.
type NamespaceLabel struct {
	Label      string
	Namespaces corev1client.NamespacesGetter
	Log        *slog.Logger

	mu     sync.Mutex // of those below
	known  cache.Store
	listed func() bool // known is filled
	failed string      // the error that was logged last
}

// Run watches until ctx is done. It retries with exponential backoff.
func (n *NamespaceLabel) Run(ctx context.Context) error {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc, cache.WithTransformer(n.strip))
	source := &cache.ListWatch{ListWithContextFunc: n.list, WatchFuncWithContext: n.watch}
	ctx = klog.NewContext(ctx, klog.Logger{}) // its own log lines repeat those of logFailure
	reflector := cache.NewReflectorWithOptions(source, &corev1.Namespace{}, store, cache.ReflectorOptions{
		Name: "namespaces with " + n.Label, Backoff: reconnectBackoff(),
	})
	n.mu.Lock()
	n.known, n.listed = store, func() bool { return reflector.LastSyncResourceVersion() != "" }
	n.mu.Unlock()
	reflector.RunWithContext(ctx)
	return nil
}

// Unlisted is the value of a label while namespaces have not been listed: none can have it.
const Unlisted = "?"

// Value of the label of a namespace; empty: it has none. Unlisted: that is not known.
func (n *NamespaceLabel) Value(namespace string) string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || !n.listed() {
		return Unlisted
	}
	object, there, err := n.known.GetByKey(namespace)
	of, is := object.(*corev1.Namespace)
	if err != nil || !there || !is {
		return ""
	}
	return of.Labels[n.Label]
}

// strip keeps the name and the label.
func (n *NamespaceLabel) strip(object any) (any, error) {
	of, is := object.(*corev1.Namespace)
	if !is {
		return nil, fmt.Errorf("strip namespace: unexpected type %T", object)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Labels: pick(of.Labels, []string{n.Label}),
	}}, nil
}

func (n *NamespaceLabel) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	options.LabelSelector = n.Label
	list, err := n.Namespaces.Namespaces().List(ctx, options)
	n.logFailure(ctx, err)
	return list, err
}

func (n *NamespaceLabel) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = n.Label
	w, err := n.Namespaces.Namespaces().Watch(ctx, options)
	n.logFailure(ctx, err)
	return w, err
}

// logFailure logs another error than the last one.
func (n *NamespaceLabel) logFailure(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != n.failed {
		n.Log.Warn("cannot watch the labels of namespaces; retrying: the last known ones stay, and before any are known no pod is throttled, but data movers; may the agent list and watch namespaces?", "label", n.Label, "error", err)
	}
	n.failed = text
}
