package e2e_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// spent is what a queue of Backups cost, from the moment in which they could
// run until all had ended.
type spent struct {
	took             time.Duration
	velero, plimsoll time.Duration // of processors
	writes           uint64        // of Backups, by anybody
}

func (s spent) String() string {
	return fmt.Sprintf("%d writes, %.1f s of processors (Velero %.1f s, plimsoll %.1f s), in %.0f s",
		s.writes, (s.velero + s.plimsoll).Seconds(), s.velero.Seconds(), s.plimsoll.Seconds(), s.took.Seconds())
}

// The same Backups, each of a namespace of its own, so many at once, through a
// real Velero: by its own queue, and by ours.
func TestBackupQueueBesideVeleroQueue(t *testing.T) {
	t.Parallel()
	live.Long(t, "a whole Velero, beside that of another test")
	const n, atOnce = 200, 8 // Velero's own queue may take a minute for each
	var apps []string
	for i := range n {
		apps = append(apps, fmt.Sprintf("app-%d", i))
	}
	r := newReal(t, cluster.Shared(t, cluster.Options{}), fmt.Sprintf("limit: %d", atOnce), apps...)
	require.NoError(t, r.server.Restart(t.Context(), fmt.Sprintf("--concurrent-backups=%d", atOnce)))
	theirs := r.drained(nil, "theirs", apps)
	require.NoError(t, r.server.Restart(t.Context(), handedOver(atOnce)...))
	ours := r.drained(r.controller().start(), "ours", apps)
	t.Logf("%d Backups, %d at once, Velero's own queue: %s", n, atOnce, theirs)
	t.Logf("%d Backups, %d at once, this queue: %s", n, atOnce, ours)
	if n > 10 { // theirs are n(n+1)/2 and some for each
		assert.Less(t, ours.writes, theirs.writes)
	}
}

// drained makes a Backup of each application while the store stands still, and
// then lets them go.
func (r *realBackupWorld) drained(a *agent, name string, apps []string) spent {
	t, n := r.t, len(apps)
	t.Helper()
	require.NoError(t, r.server.Store.Pause())
	for i, app := range apps {
		r.create(fmt.Sprintf("%s-%d", name, i), app)
	}
	within(t, 4*patience+time.Duration(n)*time.Second, "all are in the queue", func() error {
		for name, phase := range r.phases() {
			if phase == "" || phase == "New" {
				return fmt.Errorf("%s is %q", name, phase)
			}
		}
		return nil
	})
	writes := r.written()
	from, before := time.Now(), r.cpu(a)
	require.NoError(t, r.server.Store.Resume())
	r.allEnd(4*patience + time.Duration(n)*90*time.Second)
	after := r.cpu(a)
	return spent{time.Since(from), after[0] - before[0], after[1] - before[1], writes()}
}

// cpu that Velero's server and ours, if there is one, have used.
func (r *realBackupWorld) cpu(a *agent) (of [2]time.Duration) {
	r.t.Helper()
	of[0], _ = used(r.t, r.server.PID())
	if a != nil {
		of[1], _ = used(r.t, a.cmd.Process.Pid)
	}
	return of
}

// written counts from now on how often Backups are written.
func (r *realBackupWorld) written() (count func() uint64) {
	r.t.Helper()
	list, err := r.backups().List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	events, err := r.backups().Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	require.NoError(r.t, err)
	var n atomic.Uint64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			if e.Type == watch.Modified {
				n.Add(1)
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-ended })
	return n.Load
}
