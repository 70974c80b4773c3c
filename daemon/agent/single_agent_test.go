package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/state"
)

func TestOtherAgentLeaseTakeover(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const interval, good = 10 * time.Second, 40 * time.Second
	theirs := leaseHolder{"theirs", now.Add(-5 * time.Second), good}
	for name, c := range map[string]struct {
		first, is   leaseHolder
		waited      time.Duration
		free, taken bool
	}{
		"it has no name":                     {leaseHolder{renewed: now, duration: good}, leaseHolder{renewed: now, duration: good}, 0, true, false},
		"it is ours":                         {leaseHolder{"ours", now, good}, leaseHolder{"ours", now, good}, 0, true, false},
		"it ended long ago":                  {leaseHolder{"theirs", now.Add(-41 * time.Second), good}, leaseHolder{"theirs", now.Add(-41 * time.Second), good}, 0, true, false},
		"it is theirs and may be renewed":    {theirs, theirs, 0, false, false},
		"it was not renewed for an interval": {theirs, theirs, interval, false, false},
		"it was not renewed for longer":      {theirs, theirs, 16 * time.Second, true, false},
		"they renewed it":                    {theirs, leaseHolder{"theirs", now, good}, 3 * time.Second, false, true},
		"they renewed it, by a clock behind": {theirs, leaseHolder{"theirs", now.Add(-time.Hour), good}, 3 * time.Second, false, true},
		"they took it meanwhile":             {leaseHolder{"old", now.Add(-20 * time.Second), good}, theirs, 3 * time.Second, false, true},
		"it is renewed in the future":        {leaseHolder{"theirs", now.Add(time.Hour), good}, leaseHolder{"theirs", now.Add(time.Hour), good}, 16 * time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			free, err := judgeHolder("ours", c.first, c.is, now, c.waited, interval)
			assert.Equal(t, c.free, free)
			assert.Equal(t, c.taken, err != nil)
			if c.taken {
				assert.ErrorIs(t, err, ErrOtherAgent)
			}
		})
	}
}

// beatingLease is renewed by another agent, or was.
type beatingLease struct {
	coordinationv1client.LeasesGetter
	coordinationv1client.LeaseInterface
	agent   string
	began   time.Time
	renewed func(since time.Duration) time.Duration
}

func (b *beatingLease) Leases(string) coordinationv1client.LeaseInterface { return b }

func (b *beatingLease) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	at := metav1.NewMicroTime(b.began.Add(b.renewed(time.Since(b.began))))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lease.AgentAnnotation: b.agent}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at, LeaseDurationSeconds: new(int32(40))},
	}, nil
}

func aloneHeart() *heartbeat {
	return &heartbeat{id: "ours", log: slog.New(slog.DiscardHandler), otherAgent: make(chan string, 1), attempts: make(chan lease.Attempt, 1), nodeChanged: func() {}, beat: &lease.Heartbeat{Interval: 10 * time.Second}}
}

func TestOtherAgentBlocksStart(t *testing.T) {
	for name, c := range map[string]struct {
		agent   string
		renewed func(time.Duration) time.Duration
		taken   bool
		within  time.Duration
	}{
		"another agent renews it":  {"theirs", func(since time.Duration) time.Duration { return since.Truncate(10 * time.Second) }, true, 11 * time.Second},
		"another agent was killed": {"theirs", func(time.Duration) time.Duration { return 0 }, false, 17 * time.Second},
		"it was restarted":         {"ours", func(time.Duration) time.Duration { return 0 }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := aloneHeart().waitUntilAlone(t.Context(), &beatingLease{agent: c.agent, began: began, renewed: c.renewed})
				if c.taken {
					require.ErrorIs(t, err, ErrOtherAgent)
				} else {
					require.NoError(t, err)
				}
				assert.LessOrEqual(t, time.Since(began), c.within)
			})
		})
	}
}

func TestOtherAgentStartedAtOnce(t *testing.T) {
	beaten := func(id, answered string) *heartbeat {
		h := aloneHeart()
		h.id, h.shown, h.beat.Uptime = id, view.Heartbeat{Outcomes: map[lease.Outcome]uint64{}}, uptime
		for range 3 {
			h.recordAttempt(lease.Attempt{Outcome: lease.Renewed, Annotations: map[string]string{lease.AgentAnnotation: answered}})
		}
		return h
	}
	assert.ErrorIs(t, beaten("z", "a").logChanges(t.Context()), ErrOtherAgent)
	assert.NoError(t, beaten("a", "z").resolveConflict("z"), "the other one ends")
	for _, alone := range [][2]string{{"a", "a"}, {"a", ""}, {"", "a"}} {
		assert.Empty(t, beaten(alone[0], alone[1]).otherAgent, "%q", alone)
	}
}

func TestStateDirNotLockable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	lock, err := LockStateDir(file, log)
	require.NoError(t, err)
	assert.Contains(t, said.String(), "after a minute")
	assert.Greater(t, lock.StateID(), "ffffffffffffffff", "an agent with a state directory stays")
	other, err := LockStateDir(file, log)
	require.NoError(t, err)
	assert.NotEqual(t, lock.StateID(), other.StateID(), "two of them see each other")
	lock.Release()
	other.Release()
}

// The disk answers after the agent has begun: the lock holds as long as the agent runs. Where
// another agent has the directory, this one ends, and the limits of that agent stay. Until it is
// known no limit is touched, though the file with the limits can be read.
func TestStateDirLockedLate(t *testing.T) {
	for name, taken := range map[string]bool{"free": false, "in use": true} {
		t.Run(name, func(t *testing.T) {
			h := newThrottleFixture(t)
			h.round(0, plugins.Hard)
			limit := h.read()
			disk, log := make(chan struct{}), slog.New(slog.NewTextHandler(&h.log, nil))
			lock, err := lockStateDir(h.state, log, 0, func() (*state.Lock, error) {
				<-disk
				return state.Acquire(h.state, time.Now(), state.ByCommand)
			})
			require.NoError(t, err)
			assert.Contains(t, h.log.String(), "its disk hangs")
			assert.NotContains(t, h.log.String(), "make it writable")
			assert.Greater(t, lock.StateID(), "ffffffffffffffff", "an agent with a state directory stays")
			h.lock = lock
			h.start()
			lock.until = time.Now().Add(time.Minute)
			a := &Agent{lock: lock, throttles: h.throttles, Log: log}
			a.Config, _ = configured(t, "")
			h.round(1, plugins.Hard)
			assert.Equal(t, limit, h.read())
			assert.Empty(t, h.throttles.list)

			if taken {
				other, err := state.Acquire(h.state, time.Now(), state.BySystemd)
				require.NoError(t, err)
				defer other.Release()
			}
			close(disk)
			err = lock.await(t.Context())
			assert.Equal(t, taken, errors.Is(err, ErrOtherAgent), err)
			runtime.GC() // which closes files that nothing refers to
			runtime.GC()
			_, locked, err := state.Peek(h.state)
			require.NoError(t, err)
			assert.True(t, locked)
			h.round(1, plugins.Hard)
			assert.Equal(t, !taken, len(h.throttles.list) == 1, "the limits of this agent are taken over")
			h.log.Reset()
			a.endThrottles()
			assert.Equal(t, taken, h.read() == limit)
			assert.NotContains(t, h.log.String(), "level=WARN")
			lock.Release()
			_, locked, err = state.Peek(h.state)
			require.NoError(t, err)
			assert.Equal(t, taken, locked)
		})
	}
}

// The agent ends before the disk answers.
func TestStateDirReleasedLate(t *testing.T) {
	dir, disk := t.TempDir(), make(chan struct{})
	lock, err := lockStateDir(dir, slog.New(slog.DiscardHandler), 0, func() (*state.Lock, error) {
		<-disk
		return state.Acquire(dir, time.Now(), state.ByCommand)
	})
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, lock.await(ended))
	lock.Release()
	close(disk)
	deadline.Within(t, 10*time.Second, "the lock is released", func() error {
		holder, locked, err := state.Peek(dir)
		if err == nil && (locked || holder.ID == "") {
			err = assert.AnError
		}
		return err
	})
}
