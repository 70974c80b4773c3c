package agents

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// What was last seen is not shown as the present when nothing watches the agents any more.
func TestReportWithdrawnWhenDisabled(t *testing.T) {
	s := newFixture(t)
	settings := DefaultSettings()
	s.r.Settings = func() Settings { return settings }
	s.node("a")
	s.r.round(t.Context())
	require.NotNil(t, s.r.Report())
	settings.Enabled = false
	s.r.round(t.Context())
	assert.Nil(t, s.r.Report())
	settings.Enabled = true
	s.r.round(t.Context())
	assert.Equal(t, 1, s.r.Report().Agents[Alive])
}

// fleet is so many nodes whose agents have asked for a pod each, of which there is none.
func fleet(t *testing.T, nodes int) *fixture {
	t.Helper()
	s := newFixture(t)
	for i := range nodes {
		s.node(fmt.Sprint("n", i))
		s.asks(fmt.Sprint("n", i), lease.Request{UID: fmt.Sprint("u", i), Namespace: "shop", Name: fmt.Sprint("p", i), Since: lease.Micro(time.Now())})
	}
	return s
}

// Each write of an answer takes 50 ms: the next round looks at the agents again in time.
func TestRoundBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 500
		s := fleet(t, nodes)
		s.takes = 50 * time.Millisecond
		rounds := 0
		for ; len(s.written) < nodes; rounds++ {
			began := time.Now()
			s.r.round(t.Context())
			require.LessOrEqual(t, time.Since(began), 2*maxActTime+s.takes)
			for i := range nodes {
				if rounds%10 == 0 { // each 5.5 s
					s.beat(fmt.Sprint("n", i), nil)
				}
			}
		}
		for i := range nodes {
			assert.Len(t, s.answers(fmt.Sprint("n", i)), 1, "what is not written is kept")
		}
		t.Logf("%d answers in %d rounds", nodes, rounds)
	})
}

// What became of an eviction is written first, unless that fails; else who waits longest is next.
func TestAnswersWrittenInTurn(t *testing.T) {
	s := fleet(t, 3)
	evicted := accepted("u2", "o", 0)
	for i := range 3 {
		s.r.journal.answers[fmt.Sprint("n", i)] = []lease.Answer{{UID: fmt.Sprint("u", i)}}
	}
	s.r.journal.answers["n2"] = append(s.r.journal.answers["n2"], evicted)
	order := func() (names []string) {
		j := Judgement{Agents: []Judged{carrying("n0"), carrying("n1"), carrying("n2"), carrying("n3")}}
		for _, a := range s.r.journal.unwritten(&j) {
			names = append(names, a.Name)
		}
		return names
	}
	assert.Equal(t, []string{"n2", "n0", "n1"}, order())
	s.r.journal.node("n0").writtenAt = noon
	assert.Equal(t, []string{"n2", "n1", "n0"}, order())
	s.r.journal.node("n2").writtenAt, s.r.journal.node("n2").writeFailed = noon.Add(1), true
	assert.Equal(t, []string{"n1", "n0", "n2"}, order())
}

// Reading the settings is the pulse of a round: one that hangs has none.
func TestRoundHasOnePulse(t *testing.T) {
	s := newFixture(t)
	pulses := 0
	s.r.Settings = func() Settings { pulses++; return DefaultSettings() }
	s.node("n", "web")
	s.nodes["m"] = made("m", 0).Node
	s.nodes["l"] = made("l", 0, silentAlready).Node
	for _, name := range []string{"m", "l"} {
		require.NoError(t, s.r.cache.nodes.Update(s.nodes[name].DeepCopy()))
		s.leases[name] = made(name, 0).Lease
		s.r.cache.agents[name].Lease, s.r.cache.agents[name].LastHeartbeat = s.leases[name], time.Now().Add(-time.Hour)
	}
	s.asks("n", web())
	s.r.round(t.Context())
	assert.Len(t, s.posted, 1)
	assert.ElementsMatch(t, []string{"m", "l"}, s.marked)
	assert.Len(t, s.answers("n"), 1)
	assert.Equal(t, 1, pulses)
}

// An act that fails takes its time, and its lines, only now and then.
func TestFailedActRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		s.node("n")
		s.nodes["n"] = made("n", 0).Node
		require.NoError(t, s.r.cache.nodes.Update(s.nodes["n"].DeepCopy()))
		s.nodeFails = errBroken
		time.Sleep(time.Minute)
		const rounds = 600
		for range rounds {
			s.r.round(t.Context())
			time.Sleep(reconcileInterval)
		}
		failed := s.r.Counts().Acts[actFailed]
		assert.EqualValues(t, rounds*reconcileInterval/actRetry, failed)
		assert.LessOrEqual(t, strings.Count(s.log.String(), "failed to act"), logBurst+rounds/60)
		s.nodeFails = nil
		time.Sleep(actRetry)
		s.r.round(t.Context())
		assert.Len(t, s.marked, 1)
	})
}
