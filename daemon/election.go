package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

// leaseName of the controller's election.
const leaseName = "plimsoll-controller"

// election says which replica acts.
type election struct {
	config   config.Election
	leases   coordinationv1client.LeasesGetter
	identity string
	log      *slog.Logger

	leads  atomic.Bool
	leader atomic.Pointer[string] // as far as it is known
}

// newIdentity is one that no other process has, nor had.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Run lets lead run while this replica is the leader, again and again until ctx
// is done; lead ends when its context does. Without an election it runs at once.
func (e *election) Run(ctx context.Context, lead func(context.Context) error) error {
	if !e.config.Enabled {
		e.leads.Store(true)
		e.leader.Store(&e.identity)
		return lead(ctx)
	}
	for ctx.Err() == nil {
		if err := e.term(ctx, lead); err != nil {
			return err
		}
	}
	return nil
}

// The shares of the Lease's duration, as those of Kubernetes' own controllers
// (15 s, 10 s, 2 s): a leader gives up before another may take over.
const (
	renewShare, renewOf = 2, 3
	retryShare          = 7
)

// term waits to be elected, and leads until it is no more or ctx is done. The
// Lease is given back only when lead has ended; the library's own
// ReleaseOnCancel gives it back before it says that the term is over.
func (e *election) term(ctx context.Context, lead func(context.Context) error) error {
	electing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.config.Namespace, Name: leaseName}, Client: e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}
	var led error
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: leaseName,
		LeaseDuration: e.config.Duration, RenewDeadline: e.config.Duration * renewShare / renewOf, RetryPeriod: e.config.Duration / retryShare,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(elected context.Context) {
				defer close(ended)
				led = e.leadUntil(ctx, elected, lead)
				end()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				e.leader.Store(&identity)
				e.log.Info("new leader", "identity", identity, "self", identity == e.identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	// While it leads, the Lease is renewed until lead has ended.
	defer context.AfterFunc(ctx, func() {
		if !e.leads.Load() {
			end()
		}
	})()
	elector.Run(klog.NewContext(electing, klog.Logger{}))
	// A term that begins only now finds its context done.
	if !e.leads.Load() {
		return nil
	}
	<-ended
	e.leads.Store(false)
	if elector.IsLeader() {
		e.release(ctx, lock)
	}
	return led
}

// leadUntil the election or ctx ends.
func (e *election) leadUntil(ctx, elected context.Context, lead func(context.Context) error) error {
	e.leads.Store(true)
	both, cancel := context.WithCancel(elected)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if both.Err() != nil || ctx.Err() != nil {
		return nil
	}
	e.log.Info("acquired leadership", "identity", e.identity)
	err := lead(both)
	e.log.Info("lost leadership", "identity", e.identity)
	return err
}

// releaseTimeout bounds giving the Lease back; who comes next then waits for
// its end.
const releaseTimeout = 2 * time.Second

// release lets another lead at once.
func (e *election) release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	held, _, err := lock.Get(ctx)
	if err == nil && held.HolderIdentity == e.identity {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now})
	}
	if err != nil {
		e.log.Info("failed to release the Lease; the next leader waits until it expires", "error", err)
	}
}

// ready: a leader must be known, or nobody acts.
func (e *election) ready() error {
	if e.leader.Load() == nil {
		return errors.New("election: no leader known yet")
	}
	return nil
}

func (e *election) known() string {
	if id := e.leader.Load(); id != nil {
		return *id
	}
	return ""
}
