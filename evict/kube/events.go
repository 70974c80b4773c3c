package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/plimsoll-dev/plimsoll/evict"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

const (
	// eventCallTimeout bounds each call to the API server.
	eventCallTimeout = 5 * time.Second
	// eventFlush is how long Close waits for what is still queued.
	eventFlush = time.Second
)

// An Announcer writes Kubernetes Events about pods and about its Node. Its
// methods never block: Events beyond the queue of 1000, or beyond the rate limit
// of one object (25 at once, then one in 5 minutes), are dropped. They may be
// called from several goroutines.
//
// It uses client-go's tools/record, not tools/events, which merges Events of one
// reason into a series and keeps only the first message.
type Announcer struct {
	node        string
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	sink        *eventSink
	stop        context.CancelFunc
	close       sync.Once
}

// NewAnnouncer starts an Announcer for the named Node. Close ends it.
func NewAnnouncer(events corev1client.EventsGetter, node string, log *slog.Logger) *Announcer {
	ctx, stop := context.WithCancel(context.Background())
	sink := &eventSink{ctx: ctx, events: events, flushed: make(chan struct{})}
	b := record.NewBroadcaster(record.WithContext(klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))))
	b.StartRecordingToSink(sink)
	return &Announcer{
		node: node, broadcaster: b, sink: sink, stop: stop,
		// A log can block, so nothing is logged in the caller's goroutine.
		recorder: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: fieldManager, Host: node}).WithLogger(logr.Discard()),
	}
}

// Pod writes an Event about a pod. Kind is corev1.EventTypeNormal or
// corev1.EventTypeWarning, reason a word in UpperCamelCase.
func (a *Announcer) Pod(v evict.Victim, kind, reason, message string) {
	a.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: v.Namespace, Name: v.Name, UID: types.UID(v.UID),
	}, kind, reason, message)
}

// Node writes a Normal Event about the Node, in namespace default, where Events
// of cluster-scoped objects are. `kubectl describe node` shows those whose uid is
// the Node's, and those whose uid is its name.
func (a *Announcer) Node(uid, reason, message string) {
	a.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Node", Name: a.node, UID: types.UID(uid),
	}, corev1.EventTypeNormal, reason, message)
}

// Close writes what is still queued, for a second at most, and stops the
// Announcer. Later Events are dropped.
func (a *Announcer) Close() {
	a.close.Do(func() {
		// The library drops its queue at shutdown. A last Event that is not written
		// comes out of the queue when all before it are written.
		a.recorder.Event(&corev1.ObjectReference{Kind: flushKind}, corev1.EventTypeNormal, flushKind, "")
		select {
		case <-a.sink.flushed:
		case <-time.After(eventFlush):
		}
		a.stop()
		a.broadcaster.Shutdown()
	})
}

// flushKind is the kind of the last Event, which is not written.
const flushKind = "Flush"

// eventSink writes Events; its methods belong to the broadcaster's goroutine.
type eventSink struct {
	ctx     context.Context // ends with the Announcer: the library passes no context
	events  corev1client.EventsGetter
	flushed chan struct{}
}

func (s *eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	if e.InvolvedObject.Kind == flushKind {
		close(s.flushed)
		return e, nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, eventCallTimeout)
	defer cancel()
	return s.events.Events("").CreateWithEventNamespaceWithContext(ctx, e)
}

func (s *eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, eventCallTimeout)
	defer cancel()
	return s.events.Events("").PatchWithEventNamespaceWithContext(ctx, e, data)
}

// Update is part of record.EventSink; the library calls it nowhere.
func (s *eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, eventCallTimeout)
	defer cancel()
	return s.events.Events("").UpdateWithEventNamespaceWithContext(ctx, e)
}
