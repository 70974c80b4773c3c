package pods

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/store"
)

// NamespaceLabel watches the namespaces that have a label, and no others. It needs list and
// watch of namespaces. While it does not have them it knows what it knew last.
type NamespaceLabel struct {
	label      string
	namespaces corev1client.NamespacesGetter
	log        *slog.Logger
	known      *store.Store[*corev1.Namespace]
	failed     string // the error that was logged last; for the reflector alone
}

// NewNamespaceLabel knows no namespace yet.
func NewNamespaceLabel(label string, namespaces corev1client.NamespacesGetter, log *slog.Logger) *NamespaceLabel {
	n := &NamespaceLabel{label: label, namespaces: namespaces, log: log}
	n.known = store.New("namespaces with "+label, nil, n.strip, nil)
	return n
}

// Run watches until ctx is done. It retries with the exponential backoff of all agents, and
// lists from an API server's watch cache: store.Run is for the one leader.
func (n *NamespaceLabel) Run(ctx context.Context) error {
	source := &cache.ListWatch{ListWithContextFunc: n.list, WatchFuncWithContext: n.watch}
	ctx = klog.NewContext(ctx, klog.Logger{}) // its own log lines repeat those of logFailure
	cache.NewReflectorWithOptions(source, &corev1.Namespace{}, n.known, cache.ReflectorOptions{
		Name: n.known.Name(), Backoff: reconnectBackoff(),
	}).RunWithContext(ctx)
	return nil
}

// Unlisted is the value of a label while namespaces have not been listed: none can have it.
const Unlisted = "?"

// Value of the label of a namespace; empty: it has none. Unlisted: that is not known.
func (n *NamespaceLabel) Value(namespace string) string {
	if n == nil {
		return ""
	}
	if !n.known.Synced() {
		return Unlisted
	}
	of, there := n.known.Get("", namespace)
	if !there {
		return ""
	}
	return of.Labels[n.label]
}

// strip keeps the name and the label.
func (n *NamespaceLabel) strip(object any) (*corev1.Namespace, error) {
	of, is := object.(*corev1.Namespace)
	if !is {
		return nil, store.ErrType(object)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Labels: pick(of.Labels, []string{n.label}),
	}}, nil
}

func (n *NamespaceLabel) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	options.LabelSelector = n.label
	list, err := n.namespaces.Namespaces().List(ctx, options)
	n.logFailure(ctx, err)
	return list, err
}

func (n *NamespaceLabel) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = n.label
	w, err := n.namespaces.Namespaces().Watch(ctx, options)
	n.logFailure(ctx, err)
	return w, err
}

// logFailure logs another error than the last one.
func (n *NamespaceLabel) logFailure(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != n.failed {
		n.log.Warn("cannot watch the labels of namespaces; retrying: the last known ones stay, and before any are known no pod is throttled, but data movers; may the agent list and watch namespaces?", "label", n.label, "error", err)
	}
	n.failed = text
}
