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

// listener lists and watches for the reflector and notes what is heard.
type listener struct {
	watcher *Watcher
	// forwards are the goroutines of the watches.
	forwards sync.WaitGroup
}

func (l *listener) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// ours narrows a request to the node's pods.
func (l *listener) ours(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = "spec.nodeName=" + l.watcher.Node
	return options
}

// list does not end the stale mark: that is for who keeps what it brings.
func (l *listener) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	found, err := l.watcher.Pods.Pods(metav1.NamespaceAll).List(ctx, l.ours(options))
	if err != nil {
		return nil, l.lost(ctx, fmt.Errorf("list: %w", err))
	}
	return found, nil
}

// watch ends the stale mark unless it first brings a whole list, which the
// store then takes over. Such a list is asked for as etcd has it now: an API
// server that went on after a pause, or another one, may have an old copy,
// which the reflector would take as long as it is not older than its own.
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

// gap is how long after the end of a watch the next one may go on where it
// was. It would bring what happened meanwhile a moment after its beginning:
// nothing where the API server has just ended the old one in turn, much after
// an outage. Then a list comes first, and the mark ends when that is in.
const gap = time.Second

// errListAnew makes the reflector list.
var errListAnew = errors.New("the watch was down for too long; listing again")

// missed tells whether the mark is older than gap.
func (l *listener) missed() bool {
	since := l.watcher.hearing.state().since
	return !since.IsZero() && time.Since(since) > gap
}

// errNoAnswer is a connection that ended or timed out before an answer.
var errNoAnswer = errors.New("the connection ended before an answer")

// over tells a watch that client-go made up, closed from its beginning, where
// the connection ended or timed out before the API server answered.
func over(w watch.Interface) bool {
	return reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch())
}

// lost notes an error, and logs the first one. It returns the error for the
// reflector.
func (l *listener) lost(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errSilent):
		err = errSilent
	case errors.Is(cause, context.Canceled):
		return err // we are asked to stop
	}
	l.watcher.hearing.lost(err)
	if l.watcher.hearing.tell() {
		l.watcher.Log.Warn("lost the API server, the pod list is stale; retrying", slog.String("node", l.watcher.Node), slog.Any("err", err))
	}
	return err
}

// again logs the end of a loss that was logged.
func (l *listener) again(before heard) {
	if before.told {
		l.watcher.Log.Info("connection to the API server recovered", slog.String("node", l.watcher.Node), slog.Duration("after", time.Since(before.since)))
	}
}

// forward hands a watch's events on and notes its end.
type forward struct {
	listener *listener
	inner    watch.Interface
	out      chan watch.Event
	ctx      context.Context
	give     context.CancelCauseFunc
	idle     *time.Timer
}

// errEnded is a watch's regular end: the API server closes each after minutes.
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

// ended marks the list as stale until the watch is made again, which takes
// milliseconds if all is well and is then not worth a line in the log.
func (f *forward) ended() {
	cause := context.Cause(f.ctx)
	switch {
	case errors.Is(cause, errSilent):
		_ = f.listener.lost(f.ctx, errSilent)
	case cause == nil:
		f.listener.watcher.hearing.lost(errEnded)
	}
}

// ResultChan is the watch's events.
func (f *forward) ResultChan() <-chan watch.Event { return f.out }

// Stop ends the watch.
func (f *forward) Stop() {
	f.inner.Stop()
	f.give(nil)
}

var _ watch.Interface = (*forward)(nil)
