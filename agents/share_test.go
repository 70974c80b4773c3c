package agents

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// by a node, so many pods of as many owners, so long ago.
func by(node string, n int, ago time.Duration) func(*Evaluation) {
	return func(g *Evaluation) {
		for range n {
			uid := fmt.Sprint(node, "/", len(g.PastEvictions))
			g.PastEvictions = append(g.PastEvictions, PastEviction{UID: uid, Owner: uid, Node: node, Time: g.Time.Add(-ago)})
		}
	}
}

func limit(n int) func(*Evaluation) { return func(g *Evaluation) { g.Pods = 100 * n } }

func TestLimitShareLeavesRestToOthers(t *testing.T) {
	alone := func(g *Evaluation) { g.Agents = 1 }
	for what, row := range map[string]struct {
		grounds *Evaluation
		code    Code
	}{
		"the first of a budget of ten":              {calm(limit(10)), ""},
		"the fifth of ten, all its own":             {calm(limit(10), by("n", 4, 0)), ""},
		"the sixth is for others":                   {calm(limit(10), by("n", 5, 0)), CodeShare},
		"another node has the rest, but one half":   {calm(limit(10), by("m", 5, 0), by("n", 2, 0)), ""},
		"and leaves one to those after":             {calm(limit(10), by("m", 5, 0), by("n", 3, 0)), CodeShare},
		"which a third one gets":                    {calm(limit(10), by("m", 5, 0), by("o", 4, 0)), ""},
		"a budget of one is taken":                  {calm(limit(1)), ""},
		"and the next one is for others":            {calm(limit(1), by("n", 1, 5*time.Minute)), CodeShare},
		"unless they have had one":                  {calm(limit(1), by("n", 1, 9*time.Minute), by("m", 1, 5*time.Minute)), CodeShare},
		"every other one is taken":                  {calm(limit(1), by("n", 1, 10*time.Minute), by("m", 1, 5*time.Minute)), ""},
		"of a budget that has shrunk":               {calm(limit(1), by("m", 2, 6*time.Minute)), ""},
		"where there is one node it has all":        {calm(limit(2), alone, by("n", 1, 0)), ""},
		"so many that its Lease has no room left":   {calm(limit(1000), alone, by("n", maxEvictionsOfNode, 6*time.Minute)), CodeShare},
		"one less than it has room for":             {calm(limit(1000), alone, by("n", maxEvictionsOfNode-1, 6*time.Minute)), ""},
		"what was granted, and is asked for again,": {calm(limit(1), func(g *Evaluation) { g.PastEvictions = []PastEviction{{UID: "p1", Node: "n", Time: noon}} }), ""},
		"and counts once beside others": {calm(limit(4), by("m", 1, 0), by("n", 1, 0), func(g *Evaluation) {
			g.PastEvictions = append(g.PastEvictions, PastEviction{UID: "p1", Node: "n", Time: noon})
		}), ""},
	} {
		t.Run(what, func(t *testing.T) {
			code, why := refusal(row.grounds.Refuse(asking()))
			assert.Equal(t, row.code, code, why)
			assert.Equal(t, code == "", why == "", "a refusal has a reason")
		})
	}
}

func TestLimitShareNamesRemaining(t *testing.T) {
	_, why := refusal(calm(limit(10), by("n", 5, 0)).Refuse(asking()))
	assert.Contains(t, why, "; the remaining 5 of")
	_, why = refusal(calm(limit(1), by("m", 2, 6*time.Minute), by("n", 1, 6*time.Minute)).Refuse(asking()))
	assert.Contains(t, why, "; the remaining 0 of", "the budget has shrunk")
}

// sharedLimit is a budget of which two nodes have what they may.
type sharedLimit struct {
	budget int
	all    []PastEviction
}

// try to have one for a node; it has as many as it tries for, until it may not.
func (m *sharedLimit) try(node string, now time.Time) bool {
	s := DefaultSettings()
	m.all = slices.DeleteFunc(m.all, func(w PastEviction) bool { return now.Sub(w.Time) >= s.Evictions.counted() })
	g := Evaluation{Time: now, Settings: s, Pods: 100 * m.budget, Agents: 2, Pressed: newPressures(), Hard: newPressures(), PastEvictions: m.all}
	a := made(node, 0)
	r := request(fmt.Sprint(node, len(m.all), now))
	code, _ := refusal(g.Refuse(PendingRequest{&Judged{Agent: &a, State: Alive}, r}))
	if code == "" {
		m.all = append(m.all, PastEviction{UID: r.UID, Owner: r.UID, Node: node, Time: now})
	}
	return code == ""
}

// Whoever has the token of one node asks for all that it can, each second, for
// hours: another node that asks once has what it needs before long.
func TestLimitShareGreedyNodeDelaysNoOther(t *testing.T) {
	random := rand.New(rand.NewPCG(20, 5))
	for range 60 {
		m := &sharedLimit{budget: 1 + random.IntN(5)}
		arrives := noon.Add(time.Duration(random.IntN(1800)) * time.Second)
		waited := time.Duration(-1)
		for now := noon; waited < 0; now = now.Add(time.Second) {
			require.Less(t, now.Sub(arrives), DefaultSettings().Evictions.Per+time.Second, "a budget of %d", m.budget)
			for m.try("thief", now) { // it ends by the budget
			}
			if !now.Before(arrives) && m.try("honest", now) {
				waited = now.Sub(arrives)
			}
		}
		if m.budget > 1 {
			require.Zero(t, waited, "a budget of %d has one left for it", m.budget)
		}
	}
}

func TestPastEvictionsCountTwoPeriods(t *testing.T) {
	e := Evictions{Per: 10 * time.Minute, PerOwner: time.Minute}
	assert.Equal(t, 20*time.Minute, e.counted())
	e.PerOwner = time.Hour
	assert.Equal(t, time.Hour, e.counted())
}

func TestPendingRequestsOrderAcrossNodes(t *testing.T) {
	var flood, honest, late Judged
	for _, row := range []struct {
		of    *Judged
		name  string
		asked time.Duration
		uids  []string
	}{{&flood, "flood", 0, []string{"f1", "f2", "f3"}}, {&honest, "honest", time.Minute, []string{"h1", "h2"}}, {&late, "late", 2 * time.Minute, []string{"l1"}}} {
		*row.of = carrying(row.name)
		row.of.RequestedAt, row.of.LastRenewal = noon.Add(row.asked), noon
		for _, uid := range row.uids {
			row.of.Carried.Requests = append(row.of.Carried.Requests, request(uid))
		}
	}
	order := func(judged map[string]time.Time) (uids []string) {
		j := &Judgement{Agents: []Judged{flood, honest, late}}
		for _, a := range PendingRequests(noon, DefaultSettings(), j, func(node string) time.Time { return judged[node] }) {
			uids = append(uids, a.UID)
		}
		return uids
	}
	assert.Equal(t, []string{"f1", "h1", "l1", "f2", "h2", "f3"}, order(nil))
	assert.Equal(t, []string{"h1", "l1", "f1", "h2", "f2", "f3"}, order(map[string]time.Time{"flood": noon}), "whoever was judged comes after those who were not")
}

// The node's clock is 61 s, or hours, before or behind: its requests are neither
// too old nor kept when it beats no more.
func TestRequestIgnoresNodeClock(t *testing.T) {
	for _, skew := range []time.Duration{0, -61 * time.Second, 61 * time.Second, -100 * time.Hour, 100 * time.Hour} {
		s := newFixture(t)
		s.node("n", "web")
		s.tick += skew
		s.asks("n", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon.Add(skew))})
		s.r.round(t.Context())
		got := s.answers("n")
		require.Len(t, got, 1, "skew %s", skew)
		assert.Equal(t, lease.Accepted, got[0].Result, "skew %s: %s", skew, got[0].Reason)
		assert.Len(t, s.posted, 1)

		stale := carrying("n")
		stale.LastRenewal = noon.Add(-DefaultSettings().Grace / 2)
		stale.Lease.Spec.RenewTime = new(lease.Micro(noon.Add(skew)))
		r := request("p1")
		r.Since = lease.Micro(noon.Add(skew))
		stale.Carried.Requests = []lease.Request{r}
		assert.Empty(t, PendingRequests(noon, DefaultSettings(), &Judgement{Agents: []Judged{stale}}, new(newJournal()).evaluatedAt), "skew %s", skew)
	}
}

func TestRequestRateOfNode(t *testing.T) {
	var p tokenBucket
	taken := 0
	for range 100 {
		if p.take(noon, 16, time.Second) {
			taken++
		}
	}
	assert.Equal(t, 16, taken)
	assert.False(t, p.take(noon.Add(time.Second-1), 16, time.Second))
	assert.True(t, p.take(noon.Add(time.Second), 16, time.Second))
	assert.False(t, p.take(noon.Add(time.Second), 16, time.Second))
	assert.True(t, p.take(noon.Add(time.Hour), 16, time.Second))
}
