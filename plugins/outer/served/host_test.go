package served_test

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/served"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The host converts the answers back: each inner plugin gives the same verdicts
// through a socket as directly, as far as the wire can hold them.
func TestInnerPluginsThroughHost(t *testing.T) {
	for _, inner := range plugins.Inners(sensitive()) {
		t.Run(inner.Name(), func(t *testing.T) {
			t.Parallel()
			direct := plugins.SetOf(inner, nil)
			behind := &served.Inner{Set: plugins.SetOf(inner, nil)}
			host := register(t, behind)
			n := newNode(11)
			levels := map[plugins.Level]int{}
			for range 200 {
				snapshot := n.second()
				verdicts := direct.Judge(snapshot).Verdicts
				behind.Judge(snapshot)
				if _, err := behind.Threshold(t.Context(), nil); err != nil {
					continue // what cannot be measured is an error, which is another test
				}
				got := asked(t, host, n)
				want := of(t, verdicts, got.Scope)
				same(t, want, got)
				levels[got.Level]++
			}
			assert.Positive(t, levels[plugins.None], "it was never calm")
			assert.Positive(t, levels[plugins.Soft]+levels[plugins.Hard], "nothing was ever met")
			t.Log(levels)
		})
	}
}

// same compares what the wire can hold. No pod is evicted at soft, nor for a
// level that is only latched.
func same(t *testing.T, want, got plugins.Verdict) {
	t.Helper()
	require.Equal(t, want.Level, got.Level)
	observed, _ := want.Observed.Get()
	require.Equal(t, snapshot.Some(observed), got.Observed)
	limit, _ := want.Threshold.Get()
	require.Equal(t, snapshot.Some(limit), got.Threshold)
	require.Equal(t, want.Operator[:1], got.Operator)
	require.Equal(t, want.Condition, got.Condition)
	require.Empty(t, got.Absent)
	var named []string
	if want.Level == plugins.Hard && want.MetLevel == plugins.Hard {
		for _, c := range want.Candidates {
			named = append(named, c.PodUID)
		}
	}
	var heard []string
	for _, c := range got.Candidates {
		require.Empty(t, c.Refused)
		heard = append(heard, c.PodUID)
	}
	require.Equal(t, named, heard)
}

func of(t *testing.T, list []plugins.Verdict, scope string) plugins.Verdict {
	t.Helper()
	for _, v := range list {
		if v.Scope == scope {
			return v
		}
	}
	t.Fatalf("%s is not among %v", scope, list)
	return plugins.Verdict{}
}

// asked returns the plugin's threshold as the agent receives it.
func asked(t *testing.T, host *outer.Host, n *node) plugins.Verdict {
	t.Helper()
	r := outer.Round{Time: time.Now(), Unevictable: map[string]int{"next": 99}, Graces: hasty{}, MaxAge: time.Minute}
	for i, b := range n.pods() {
		r.Pods = append(r.Pods, katalyst.Pod{UID: uid(i), Wire: b})
	}
	ctx, cancel := deadline.Context(t.Context(), 30*time.Second)
	defer cancel()
	for _, v := range host.Ask(ctx, r) {
		if v.Scope != plugins.ScopeNamed {
			return v
		}
	}
	t.Fatal("the agent got no answer")
	return plugins.Verdict{}
}

// hasty applies no grace period.
type hasty struct{}

func (hasty) Reported(plugins.Verdict, time.Time) time.Time { return time.Time{} }

func (hasty) Missed(string)                        {}
func (hasty) Registered(string, string, time.Time) {}

// register a plugin with the agent's side.
func register(t *testing.T, p kit.Plugin) *outer.Host {
	t.Helper()
	dir := t.TempDir()
	host := &outer.Host{
		Settings: func() outer.Config {
			c := outer.DefaultConfig()
			c.Uids, c.Dirs, c.Deadline = []string{strconv.Itoa(os.Getuid())}, []string{dir}, 30*time.Second
			c.Beside = outer.BesideAct // its procfs has no process to examine
			return c
		},
		Procfs: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- host.Run(ctx) }()
	go func() {
		done <- (&kit.Server{Name: "next", Plugin: p, Dir: dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	deadline.Eventually(t, func() bool {
		for _, s := range host.Status(time.Now()) {
			if s.Name == "next" && s.Up {
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond)
	return host
}
