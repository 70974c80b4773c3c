package abilities

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/capability"
)

// How often the CustomResourceDefinitions are read, and again after a failure, and how
// long reading them may take: a caller waits for it, which must renew its Gates.
const (
	interval = time.Minute
	retry    = 5 * time.Second
	timeout  = 2 * time.Second
)

// Reader reads what Velero can do, at most once in a while.
type Reader struct {
	Definitions dynamic.ResourceInterface
	Log         *slog.Logger

	mu   sync.Mutex // guards next and read, and lets one caller read at a time
	next time.Time
	read bool
	last atomic.Pointer[Velero]
}

// errNone: Velero is not installed.
var errNone = errors.New("none is installed")

// Now is what Velero can do, read not long ago. After a failure what was read before
// stays.
func (r *Reader) Now(ctx context.Context) Velero {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		return r.Last()
	}
	is, err := r.ask(ctx)
	switch {
	case err == nil:
		r.next = now.Add(interval)
		r.report(is)
		r.last.Store(&is)
		r.read = true
	case ctx.Err() != nil: // the caller ends
	default:
		r.next = now.Add(retry)
		r.failed(err)
	}
	return r.Last()
}

// failed keeps what was read before, or says that nothing was.
func (r *Reader) failed(err error) {
	if r.read {
		return
	}
	is := Velero{Unread: err.Error()}
	if last := r.last.Load(); last == nil || last.Unread != is.Unread {
		r.Log.Warn("cannot read what velero can do, assuming the newest; retrying: check that velero is installed and that deploy/rbac-controller.yaml is applied", "error", err)
	}
	r.last.Store(&is)
}

// Last is what Now returned last, without waiting.
func (r *Reader) Last() Velero {
	if is := r.last.Load(); is != nil {
		return *is
	}
	return Velero{Unread: "not read yet"}
}

// report logs what is off, when that changes.
func (r *Reader) report(is Velero) {
	var before []capability.Capability
	if last := r.last.Load(); last != nil {
		before = last.Capabilities()
	}
	capability.Log(r.Log, before, is.Capabilities())
}

func (r *Reader) ask(ctx context.Context) (Velero, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var found []*unstructured.Unstructured
	for _, name := range Definitions() {
		d, err := r.Definitions.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // the kind is not installed
		case err != nil:
			return Velero{}, err
		default:
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return Velero{}, errNone
	}
	return Of(found), nil
}
