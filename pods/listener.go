package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listerWatcher lists and watches for the reflector (the informer's source) and tracks
// the connection.
type listerWatcher struct {
	watcher *Watcher
	// forwards are the goroutines of the watches.
	forwards sync.WaitGroup
}

func (l *listerWatcher) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// ofNode restricts a request to the node's pods.
func (l *listerWatcher) ofNode(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = "spec.nodeName=" + l.watcher.Node
	return options
}

// list does not remove the stale mark: Replace does, when the list is in the store.
func (l *listerWatcher) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	found, err := l.watcher.Pods.Pods(metav1.NamespaceAll).List(ctx, l.ofNode(options))
	if err != nil {
		return nil, l.logLoss(ctx, fmt.Errorf("list: %w", err))
	}
	return found, nil
}

// watch removes the stale mark unless it starts with a complete list (WatchList),
// for which Replace does. Such a list is requested as etcd has it now: an API server
// that resumes after a pause, or another one, may have an old cache, which the
// reflector would accept if it is not older than its own store.
func (l *listerWatcher) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	goesOn := options.SendInitialEvents == nil
	if goesOn && l.goneTooLong() {
		return nil, errRelist
	}
	if !goesOn {
		options.ResourceVersion = ""
	}
	ctx, give := context.WithCancelCause(ctx)
	idle := time.AfterFunc(watchTimeout, func() { give(errWatchTimeout) })
	inner, err := l.watcher.Pods.Pods(metav1.NamespaceAll).Watch(ctx, l.ofNode(options))
	switch {
	case err == nil && isEmptyWatch(inner):
		err = l.logLoss(ctx, fmt.Errorf("watch: %w", errNoAnswer))
	case err != nil:
		err = l.logLoss(ctx, fmt.Errorf("watch: %w", err))
	case goesOn && l.goneTooLong():
		inner.Stop()
		err = errRelist
	}
	if err != nil {
		idle.Stop()
		give(nil)
		return nil, err
	}
	if goesOn {
		l.logRecovery(l.watcher.connection.recovered())
	}
	f := &watchForwarder{listener: l, inner: inner, out: make(chan watch.Event), ctx: ctx, cancel: give, idle: idle}
	l.forwards.Go(f.run)
	return f, nil
}

// maxResumeGap is how long after its end a watch may be resumed. A resumed watch delivers
// the missed events some time after its start: few after a regular end, many after
// an outage. After a longer time a list is required, and the stale mark is removed
// when that is stored.
const maxResumeGap = time.Second

// errRelist makes the reflector list.
var errRelist = errors.New("the watch was down for too long; listing again")

// goneTooLong reports whether the stale mark is older than gap.
func (l *listerWatcher) goneTooLong() bool {
	since := l.watcher.connection.state().since
	return !since.IsZero() && time.Since(since) > maxResumeGap
}

// errNoAnswer is for a connection that ended or timed out before an answer.
var errNoAnswer = errors.New("the connection ended before an answer")

// isEmptyWatch recognizes the empty, closed watch that client-go returns when the
// connection ended or timed out before the API server answered.
func isEmptyWatch(w watch.Interface) bool {
	return reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch())
}

// logLoss records an error, logs the first one, and returns the error for the
// reflector.
func (l *listerWatcher) logLoss(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errWatchTimeout):
		err = errWatchTimeout
	case errors.Is(cause, context.Canceled):
		return err // the watcher is stopped
	}
	l.watcher.connection.lost(err)
	if l.watcher.connection.shouldLog() {
		l.watcher.Log.Warn("lost the API server, the pod list is stale; retrying", slog.String("node", l.watcher.Node), slog.Any("err", err))
	}
	return err
}

// logRecovery logs the recovery from a logged loss.
func (l *listerWatcher) logRecovery(before connection) {
	if before.logged {
		l.watcher.Log.Info("connection to the API server recovered", slog.String("node", l.watcher.Node), slog.Duration("after", time.Since(before.since)))
	}
}

// watchForwarder passes on a watch's events and records its end.
type watchForwarder struct {
	listener *listerWatcher
	inner    watch.Interface
	out      chan watch.Event
	ctx      context.Context
	cancel   context.CancelCauseFunc
	idle     *time.Timer
}

// errEnded is for a watch's regular end: the API server closes each after minutes.
var errEnded = errors.New("the watch ended and was not reopened")

func (f *watchForwarder) run() {
	defer close(f.out)
	defer f.idle.Stop()
	for event := range f.inner.ResultChan() {
		f.idle.Reset(watchTimeout)
		if event.Type == watch.Error {
			_ = f.listener.logLoss(f.ctx, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object)))
		}
		select {
		case f.out <- event:
		case <-f.ctx.Done():
		}
	}
	f.recordEnd()
}

// recordEnd marks the list as stale until the watch is resumed. That usually takes
// milliseconds, so it is not logged.
func (f *watchForwarder) recordEnd() {
	cause := context.Cause(f.ctx)
	switch {
	case errors.Is(cause, errWatchTimeout):
		_ = f.listener.logLoss(f.ctx, errWatchTimeout)
	case cause == nil:
		f.listener.watcher.connection.lost(errEnded)
	}
}

// ResultChan returns the watch's events.
func (f *watchForwarder) ResultChan() <-chan watch.Event { return f.out }

// Stop ends the watch: first its context, so that this counts as no end by the API server.
func (f *watchForwarder) Stop() {
	f.cancel(nil)
	f.inner.Stop()
}

var _ watch.Interface = (*watchForwarder)(nil)
