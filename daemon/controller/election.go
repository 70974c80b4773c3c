package controller

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

// LeaseName is the Lease of the controller's leader election.
const LeaseName = "plimsoll-controller"

// election elects the replica that acts (leader election).
type election struct {
	config   config.Election
	leases   coordinationv1client.LeasesGetter
	identity string
	log      *slog.Logger

	isLeader atomic.Bool
	leader   atomic.Pointer[string] // identity of the last known leader
}

// newIdentity is unique among all processes, past ones included.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Run calls lead each time this replica becomes leader, until ctx is done. lead
// must return when its context is done. Without election it calls lead at once.
func (e *election) Run(ctx context.Context, lead func(context.Context) error) error {
	if !e.config.Enabled {
		e.isLeader.Store(true)
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

// Shares of the Lease's duration, the same as in Kubernetes' own controllers
// (15 s, 10 s, 2 s): a leader gives up before another replica may take over.
const (
	renewShare, renewOf = 2, 3
	retryShare          = 7
)

// term waits to be elected and leads until leadership is lost or ctx is done.
// The Lease is released only after lead has returned; the library's own
// ReleaseOnCancel would release it while lead still runs.
func (e *election) term(ctx context.Context, lead func(context.Context) error) error {
	electing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.config.Namespace, Name: LeaseName}, Client: e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}
	var led error
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: LeaseName,
		LeaseDuration: e.config.Duration, RenewDeadline: e.config.Duration * renewShare / renewOf, RetryPeriod: e.config.Duration / retryShare,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(elected context.Context) {
				defer close(ended)
				led = e.leadWhile(ctx, elected, lead)
				end()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				e.leader.Store(&identity)
				if identity != e.identity { // of itself it logs that it leads
					e.log.Info("this replica is on standby: another one is the leader", "leader", identity, "takeover", e.config.Duration.String()+" after its last renewal")
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	// While this replica leads, the Lease is renewed until lead has returned.
	defer context.AfterFunc(ctx, func() {
		if !e.isLeader.Load() {
			end()
		}
	})()
	elector.Run(klog.NewContext(electing, klog.Logger{}))
	// A term that begins only now finds its context done and returns at once.
	if !e.isLeader.Load() {
		return nil
	}
	<-ended
	e.isLeader.Store(false)
	if elector.IsLeader() {
		e.release(ctx, lock)
	}
	return led
}

// leadWhile runs lead until the election or ctx ends.
func (e *election) leadWhile(ctx, elected context.Context, lead func(context.Context) error) error {
	e.isLeader.Store(true)
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

// releaseTimeout bounds the release of the Lease. If it fails, the next leader
// waits until the Lease expires.
const releaseTimeout = 2 * time.Second

// release clears the holder so that another replica can lead at once.
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

// ready fails while no leader is known: then no replica acts.
func (e *election) ready() error {
	if e.leader.Load() == nil {
		return errors.New("election: no leader known yet")
	}
	return nil
}

func (e *election) leaderID() string {
	if id := e.leader.Load(); id != nil {
		return *id
	}
	return ""
}
