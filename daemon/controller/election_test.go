package controller

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

// oneLease is an API server with one Lease. While it is away no request reaches it.
type oneLease struct {
	coordinationv1client.LeaseInterface

	mu      sync.Mutex // guards what follows
	lease   *coordinationv1.Lease
	version int
	is      string // away, readOnly, or well
}

func (s *oneLease) Leases(string) coordinationv1client.LeaseInterface { return s }

func (s *oneLease) call(change *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.is == away, s.is == readOnly && change != nil:
		return nil, errors.New(s.is)
	case change == nil && s.lease == nil:
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), LeaseName)
	case change == nil:
	case s.lease != nil && s.lease.ResourceVersion != change.ResourceVersion:
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), LeaseName, errors.New("changed"))
	default:
		s.lease = change.DeepCopy()
		s.changed()
	}
	return s.lease.DeepCopy(), nil
}

func (s *oneLease) changed() {
	s.version++
	s.lease.ResourceVersion = strconv.Itoa(s.version)
}

func (s *oneLease) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return s.call(nil)
}

func (s *oneLease) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return s.call(l)
}

func (s *oneLease) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return s.call(l)
}

const away, readOnly, well = "away", "read-only", "well"

// set how it is, and who holds the Lease; empty: as before.
func (s *oneLease) set(is, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = is
	if holder != "" {
		now := metav1.NowMicro()
		s.lease.Spec.HolderIdentity, s.lease.Spec.RenewTime, s.lease.Spec.LeaseDurationSeconds = &holder, &now, new(int32(3600))
		s.changed()
	}
}

// Who leads is known as long as the Lease is read, and of this replica only while it leads.
func TestElectionForgetsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration = 15 * time.Second
		server := &oneLease{}
		e := &election{config: config.Election{Enabled: true, Namespace: "n", Duration: duration}, leases: server, identity: "us", log: slog.New(slog.DiscardHandler)}
		require.Error(t, e.ready())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		knows := func(leader string, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			assert.Equal(t, leader, e.leaderID())
			assert.Equal(t, leader == "", e.ready() != nil)
		}
		knows("us", time.Second)
		server.set(away, "")
		knows("", duration)
		server.set(well, "")
		knows("us", 2*duration)
		server.set(readOnly, "")
		knows("", 2*duration) // the Lease still names it
		server.set(well, "other")
		knows("other", 2*duration)
		server.set(away, "")
		knows("other", duration/2)
		knows("", duration)
		server.set(well, "")
		knows("other", duration)
		cancel()
		require.NoError(t, <-ended)
	})
}

// The Lease was released and cannot be written: no replica leads.
func TestElectionReleasedLeaseNamesNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duration = 15 * time.Second
		var log bytes.Buffer
		server := &oneLease{lease: &coordinationv1.Lease{}}
		server.set(well, "other")
		e := &election{config: config.Election{Enabled: true, Namespace: "n", Duration: duration}, leases: server, identity: "us", log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
		time.Sleep(2 * duration)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "leader=other"), log.String())
		server.set(readOnly, "")
		server.mu.Lock()
		server.lease.Spec.HolderIdentity = new("")
		server.changed()
		server.mu.Unlock()
		time.Sleep(2 * duration)
		synctest.Wait()
		assert.Empty(t, e.leaderID())
		assert.Equal(t, 1, strings.Count(log.String(), "on standby"), log.String())
		cancel()
		require.NoError(t, <-ended)
	})
}
