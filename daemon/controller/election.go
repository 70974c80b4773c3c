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
	read     atomic.Pointer[holder]
}

// holder is who the Lease named as the leader when it was last read.
type holder struct {
	identity string
	at       time.Time
}

// watchedLock is the Lease as the election reads it.
type watchedLock struct {
	resourcelock.Interface

	read *atomic.Pointer[holder]
}

// Get reads the Lease. Who leads is known for as long as it can be read.
func (l watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.read.Store(&holder{record.HolderIdentity, time.Now()})
	}
	return record, raw, err
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
	lock := watchedLock{&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.config.Namespace, Name: LeaseName}, Client: e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}, &e.read}
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
				if identity != "" && identity != e.identity { // empty: the Lease was released; of itself it logs that it leads
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
	if e.leaderID() == "" {
		return errors.New("election: no leader known")
	}
	return nil
}

// leaderID is the identity of the leader; empty: none is known. What a standby has read is
// forgotten after election.duration, and a term of its own with its end.
func (e *election) leaderID() string {
	if e.isLeader.Load() {
		return e.identity
	}
	if last := e.read.Load(); last != nil && last.identity != e.identity && time.Since(last.at) <= e.config.Duration {
		return last.identity
	}
	return ""
}
