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

// listener lists and watches for the reflector (the informer's source) and tracks
// the connection.
type listener struct {
	watcher *Watcher
	// forwards are the goroutines of the watches.
	forwards sync.WaitGroup
}

func (l *listener) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// ours restricts a request to the node's pods.
func (l *listener) ours(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = "spec.nodeName=" + l.watcher.Node
	return options
}

// list does not remove the stale mark: Replace does, when the list is in the store.
func (l *listener) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	found, err := l.watcher.Pods.Pods(metav1.NamespaceAll).List(ctx, l.ours(options))
	if err != nil {
		return nil, l.lost(ctx, fmt.Errorf("list: %w", err))
	}
	return found, nil
}

// watch removes the stale mark unless it starts with a complete list (WatchList),
// for which Replace does. Such a list is requested as etcd has it now: an API server
// that resumes after a pause, or another one, may have an old cache, which the
// reflector would accept if it is not older than its own store.
func (l *listener) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	goesOn := options.SendInitialEvents == nil
	if goesOn && l.missed() {
		return nil, errListAnew
	}
	if !goesOn {
		options.ResourceVersion = ""
	}
	ctx, give := context.WithCancelCause(ctx)
	idle := time.AfterFunc(silence, func() { give(errSilent) })
	inner, err := l.watcher.Pods.Pods(metav1.NamespaceAll).Watch(ctx, l.ours(options))
	switch {
	case err == nil && over(inner):
		err = l.lost(ctx, fmt.Errorf("watch: %w", errNoAnswer))
	case err != nil:
		err = l.lost(ctx, fmt.Errorf("watch: %w", err))
	case goesOn && l.missed():
		inner.Stop()
		err = errListAnew
	}
	if err != nil {
		idle.Stop()
		give(nil)
		return nil, err
	}
	if goesOn {
		l.again(l.watcher.hearing.again())
	}
	f := &forward{listener: l, inner: inner, out: make(chan watch.Event), ctx: ctx, give: give, idle: idle}
	l.forwards.Go(f.run)
	return f, nil
}

// gap is how long after its end a watch may be resumed. A resumed watch delivers
// the missed events some time after its start: few after a regular end, many after
// an outage. After a longer time a list is required, and the stale mark is removed
// when that is stored.
const gap = time.Second

// errListAnew makes the reflector list.
var errListAnew = errors.New("the watch was down for too long; listing again")

// missed reports whether the stale mark is older than gap.
func (l *listener) missed() bool {
	since := l.watcher.hearing.state().since
	return !since.IsZero() && time.Since(since) > gap
}

// errNoAnswer is for a connection that ended or timed out before an answer.
var errNoAnswer = errors.New("the connection ended before an answer")

// over recognizes the empty, closed watch that client-go returns when the
// connection ended or timed out before the API server answered.
func over(w watch.Interface) bool {
	return reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch())
}

// lost records an error, logs the first one, and returns the error for the
// reflector.
func (l *listener) lost(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errSilent):
		err = errSilent
	case errors.Is(cause, context.Canceled):
		return err // the watcher is stopped
	}
	l.watcher.hearing.lost(err)
	if l.watcher.hearing.tell() {
		l.watcher.Log.Warn("lost the API server, the pod list is stale; retrying", slog.String("node", l.watcher.Node), slog.Any("err", err))
	}
	return err
}

// again logs the recovery from a logged loss.
func (l *listener) again(before heard) {
	if before.told {
		l.watcher.Log.Info("connection to the API server recovered", slog.String("node", l.watcher.Node), slog.Duration("after", time.Since(before.since)))
	}
}

// forward passes on a watch's events and records its end.
type forward struct {
	listener *listener
	inner    watch.Interface
	out      chan watch.Event
	ctx      context.Context
	give     context.CancelCauseFunc
	idle     *time.Timer
}

// errEnded is for a watch's regular end: the API server closes each after minutes.
var errEnded = errors.New("the watch ended and was not reopened")

func (f *forward) run() {
	defer close(f.out)
	defer f.idle.Stop()
	for event := range f.inner.ResultChan() {
		f.idle.Reset(silence)
		if event.Type == watch.Error {
			_ = f.listener.lost(f.ctx, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object)))
		}
		select {
		case f.out <- event:
		case <-f.ctx.Done():
		}
	}
	f.ended()
}

// ended marks the list as stale until the watch is resumed. That usually takes
// milliseconds, so it is not logged.
func (f *forward) ended() {
	cause := context.Cause(f.ctx)
	switch {
	case errors.Is(cause, errSilent):
		_ = f.listener.lost(f.ctx, errSilent)
	case cause == nil:
		f.listener.watcher.hearing.lost(errEnded)
	}
}

// ResultChan returns the watch's events.
func (f *forward) ResultChan() <-chan watch.Event { return f.out }

// Stop ends the watch.
func (f *forward) Stop() {
	f.inner.Stop()
	f.give(nil)
}

var _ watch.Interface = (*forward)(nil)
