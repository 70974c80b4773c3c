package backup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cases in testdata are outcomes of Velero's own controller, see their
// headers.

type given struct {
	Name               string   `json:"name"`
	Phase              Phase    `json:"phase"`
	QueuePosition      int      `json:"queuePosition"`
	IncludedNamespaces []string `json:"includedNamespaces"`
	ExcludedNamespaces []string `json:"excludedNamespaces"`
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// backups that were made a second apart.
func backups(list []given) []Backup {
	out := make([]Backup, 0, len(list))
	for i, g := range list {
		out = append(out, Backup{
			UID: g.Name, Name: g.Name, Phase: g.Phase, Version: uint64(i + 1), Position: g.QueuePosition,
			Include: g.IncludedNamespaces, Exclude: g.ExcludedNamespaces, Created: noon.Add(time.Duration(i) * time.Second),
		})
	}
	return out
}

func read[T any](t *testing.T, file string) (out T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

// odd says whether a case holds what is decided otherwise here on purpose:
// a Backup that runs with patterns that are none, which no Velero lets happen, or
// positions that are equal (Velero: such two ignore each other).
func odd(list []given) bool {
	seen := map[int]bool{}
	for _, g := range list {
		if g.Phase == InProgress && check(slices.Concat(g.IncludedNamespaces, g.ExcludedNamespaces), rejected) != nil {
			return true
		}
		if g.Phase == Queued && seen[g.QueuePosition] {
			return true
		}
		seen[g.QueuePosition] = seen[g.QueuePosition] || g.Phase == Queued
	}
	return false
}

// started are the names of those that start, in order.
func started(d Decision) (names []string) {
	for _, e := range d.Queue {
		if e.Start {
			names = append(names, e.Name)
		}
	}
	return names
}

func entry(t *testing.T, d Decision, name string) Entry {
	t.Helper()
	i := slices.IndexFunc(d.Queue, func(e Entry) bool { return e.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return d.Queue[i]
}

// one is a case of backup-queue-golden.json.
type one struct {
	Name              string   `json:"name"`
	ConcurrentBackups int      `json:"concurrentBackups"`
	ClusterNamespaces []string `json:"clusterNamespaces"`
	Backups           []given  `json:"backups"`
	Reconcile         string   `json:"reconcile"`
	ExpectAfter       []given  `json:"expectAfter"`
}

func (c one) by(list []given) given {
	return list[slices.IndexFunc(list, func(g given) bool { return g.Name == c.Reconcile })]
}

// Velero looks at one Backup at a time, and starts it only when nothing ahead
// could start: it is the first that is started here.
func TestQueueStartsWhatVeleroStartsFirst(t *testing.T) {
	cases := read[struct {
		Cases []one `json:"cases"`
	}](t, "backup-queue-golden.json").Cases
	require.Len(t, cases, 50)
	same := 0
	for _, c := range cases {
		if odd(c.Backups) {
			continue
		}
		same++
		d := Decide(Input{
			Time: noon, Config: Config{Limit: c.ConcurrentBackups}, Namespaces: NewNamespaces(c.ClusterNamespaces),
			Backups: backups(c.Backups), Exact: true,
		})
		first := append(started(d), "nobody")[0]
		before, after := c.by(c.Backups), c.by(c.ExpectAfter)
		assert.Equal(t, before.Phase == Queued && after.Phase == Ready, first == c.Reconcile, "%s: %s starts", c.Name, first)
		c.comparePositions(t, d)
	}
	t.Logf("%d of %d cases are decided as Velero does", same, len(cases))
	assert.Equal(t, 48, same)
}

// comparePositions where Velero writes them in the same call. It starts one at
// a time, and leaves gaps below the highest position as they are.
func (c one) comparePositions(t *testing.T, d Decision) {
	t.Helper()
	gap := 0
	before, after := c.by(c.Backups), c.by(c.ExpectAfter)
	switch {
	case len(started(d)) > 1:
		return
	case before.Phase == Queued && after.Phase == Ready:
	case (before.Phase == "" || before.Phase == New) && after.Phase == Queued && len(started(d)) == 0:
		gap = after.QueuePosition - len(d.Queue)
	default:
		return
	}
	for _, g := range c.ExpectAfter {
		if g.Phase == Queued && (gap == 0 || g.Name == c.Reconcile) {
			assert.Equal(t, g.QueuePosition-gap, entry(t, d, g.Name).WritePosition, "%s: %s", c.Name, g.Name)
		}
	}
}

func TestQueueUpstreamCases(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			ID                string   `json:"id"`
			ConcurrentBackups int      `json:"concurrentBackups"`
			ClusterNamespaces []string `json:"clusterNamespaces"`
			Others            []given  `json:"others"`
			Reconcile         given    `json:"reconcile"`
			Expect            given    `json:"expect"`
		}
	}](t, "backup-queue-upstream.json").Cases
	require.Len(t, cases, 15)
	for _, c := range cases {
		d := Decide(Input{
			Time: noon, Config: Config{Limit: c.ConcurrentBackups}, Namespaces: NewNamespaces(c.ClusterNamespaces),
			Backups: backups(append(c.Others, c.Reconcile)), Exact: true,
		})
		starts := append(started(d), "nobody")[0] == c.Reconcile.Name
		assert.Equal(t, c.Expect.Phase == Ready, starts, c.ID)
		if c.Reconcile.Phase == "" {
			// Who starts ahead of it is started in the same decision, and counts no more.
			assert.Equal(t, c.Expect.QueuePosition, entry(t, d, c.Reconcile.Name).WritePosition+len(started(d)), c.ID)
		}
	}
}

// In each round all that may start do, and at its end the one that has run for
// longest completes.
func TestQueueDrainsInVeleroOrder(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			Name              string     `json:"name"`
			ConcurrentBackups int        `json:"concurrentBackups"`
			ClusterNamespaces []string   `json:"clusterNamespaces"`
			Arrivals          []given    `json:"arrivals"`
			StartedPerRound   [][]string `json:"startedPerRound"`
		}
	}](t, "backup-queue-drain-golden.json").Cases
	require.Len(t, cases, 12)
	same := 0
	for _, c := range cases {
		if odd(c.Arrivals) {
			continue
		}
		same++
		q := newCluster(Config{Limit: c.ConcurrentBackups}, 0)
		q.in.Namespaces = NewNamespaces(c.ClusterNamespaces)
		q.in.Backups = backups(c.Arrivals)
		for round, want := range c.StartedPerRound {
			before := len(q.order)
			q.step(t)
			assert.ElementsMatch(t, want, q.order[before:], "%s, round %d", c.Name, round+1)
			if slices.ContainsFunc(q.in.Backups, func(b Backup) bool { return b.running() }) {
				q.end()
			}
		}
	}
	t.Logf("%d of %d drains hold no pattern that is none", same, len(cases))
	assert.Equal(t, 12, same)
}

func TestNamespacesResolvedAsByVelero(t *testing.T) {
	resolved := read[struct {
		Cases []struct{ Includes, Excludes, Active, Expect []string } `json:"cases"`

		ErrorCases []struct{ Includes, Excludes, Active []string } `json:"errorCases"`

		PatternErrors []string `json:"patternErrors"`
		PatternOk     []string `json:"patternOk"`
	}](t, "namespace-resolution.json")
	require.NotEmpty(t, resolved.Cases)
	for _, c := range resolved.Cases {
		n := NewNamespaces(c.Active)
		s := n.Resolve(c.Includes, c.Excludes)
		require.NoError(t, s.Invalid)
		assert.ElementsMatch(t, c.Expect, n.Names(s), "%v without %v", c.Includes, c.Excludes)
	}
	golden := read[struct {
		Cases []struct{ Includes, Excludes, Active, Expected []string } `json:"cases"`
	}](t, "namespaces-for-backup-golden.json")
	require.Len(t, golden.Cases, 16)
	for _, c := range golden.Cases {
		n := NewNamespaces(c.Active)
		s := n.Resolve(c.Includes, c.Excludes)
		require.NoError(t, s.Invalid)
		assert.ElementsMatch(t, c.Expected, n.Names(s), "%v without %v", c.Includes, c.Excludes)
	}
	for _, c := range resolved.ErrorCases {
		assert.ErrorIs(t, NewNamespaces(c.Active).Resolve(c.Includes, c.Excludes).Rejected, ErrPattern)
	}
	for _, p := range resolved.PatternErrors {
		assert.ErrorIs(t, check([]string{p}, rejected), ErrPattern, p)
	}
	for _, p := range resolved.PatternOk {
		assert.NoError(t, check([]string{p}, rejected), p)
		assert.NoError(t, check([]string{p}, unreadable), p)
	}
}
