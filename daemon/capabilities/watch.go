package capabilities

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/capability"
)

// Watcher reads the capabilities again and again: an upgrade of the cluster changes them.
type Watcher struct {
	Client rest.Interface
	// Now by the API server's clock.
	Now func() time.Time
	Log *slog.Logger
	// Interval between two readings, of a few small answers; 0: a minute.
	Interval time.Duration

	last atomic.Pointer[reading]
}

// reading of a cluster.
type reading struct {
	list     []capability.Capability
	jobWorks bool
	at       time.Time // of the last successful one
}

const (
	defaultInterval = time.Minute
	// timeout of one reading.
	timeout = 10 * time.Second
	// lifetime of a reading while the API server does not answer.
	lifetime = 5 * time.Minute
)

// Run reads until ctx is done.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(cmp.Or(w.Interval, defaultInterval))
	defer ticker.Stop()
	for {
		w.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// read once. The last result stays in use for its lifetime when the API server does not
// answer, which other requests of the controller report.
func (w *Watcher) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cluster, err := Read(ctx, w.Client, w.Now())
	was := w.last.Load()
	switch {
	case err == nil:
		var before []capability.Capability
		if was != nil {
			before = was.list
		}
		capability.Log(w.Log, before, List(&cluster))
		w.last.Store(&reading{List(&cluster), cluster.Job.Works, time.Now()})
	case was == nil, time.Since(was.at) > lifetime:
		w.last.Store(&reading{list: Unread("the API server could not be asked: " + err.Error())})
	}
}

// List of the capabilities, as last read.
func (w *Watcher) List() []capability.Capability {
	if last := w.last.Load(); last != nil {
		return last.list
	}
	return Unread("not read yet")
}

// JobWorks tells whether the CronJob plimsoll-release-hidden works.
func (w *Watcher) JobWorks() bool {
	last := w.last.Load()
	return last != nil && last.jobWorks && time.Since(last.at) <= lifetime
}
