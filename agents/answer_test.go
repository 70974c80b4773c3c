package agents

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

func web() lease.Request {
	return lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)}
}

// The controller learns of it with the next beat; the Lease is read once more
// before the pod is noted.
func TestRequestWithdrawnBeforeEviction(t *testing.T) {
	again, other := web(), web()
	again.Since = lease.Micro(noon.Add(time.Second))
	other.UID = "other"
	for what, now := range map[string]string{
		"it asks for none":             `[]`,
		"it asks for it anew":          mustJSON(t, []lease.Request{again}),
		"it asks for another":          mustJSON(t, []lease.Request{other}),
		"what it asks for is not read": mustJSON(t, []any{web(), 7}),
	} {
		s := newFixture(t)
		s.node("n", "web")
		s.asks("n", web())
		s.leases["n"].Annotations[lease.EvictionsAnnotation] = now
		s.r.round(t.Context())
		assert.Empty(t, s.posted, what)
		assert.Empty(t, s.written, what)
	}
}

// Counting the pods takes the call's whole time, and fails.
func TestRequestAnsweredWithoutPodCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		counted := 0
		s.list = func(ctx context.Context) (*corev1.PodList, error) {
			counted++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		s.node("n")
		for i, counts := range []int{1, 1, 2} {
			r := web()
			r.Since = lease.Micro(noon.Add(time.Duration(i) * time.Second))
			s.asks("n", r)
			s.r.round(t.Context())
			require.Len(t, s.answers("n"), 1)
			assert.True(t, answersRequest(s.answers("n")[0], r), i)
			assert.Equal(t, counts, counted, "once in a minute")
			assert.Equal(t, counts, strings.Count(s.log.String(), "level=WARN"))
			time.Sleep(podCountTTL / 2)
		}
	})
}

// What cannot be read may name evicted pods that still count.
func TestUnreadableAnswersStayWhileTheyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const newer = `{"version":2}`
		s := newFixture(t)
		s.node("n", "web", "db")
		s.beat("n", map[string]string{lease.AnswersAnnotation: newer})
		db := web()
		db.UID, db.Name = "db", "db"
		for _, asked := range [][]lease.Request{{web()}, {db}, {web(), db}} {
			s.asks("n", asked...)
			s.r.round(t.Context())
		}
		assert.Equal(t, newer, s.leases["n"].Annotations[lease.AnswersAnnotation])
		assert.Equal(t, 1, strings.Count(s.log.String(), "delete the Lease"), s.log.String())
		require.Len(t, s.r.Report().Unreadable, 1)
		e := DefaultSettings().Evictions
		time.Sleep(e.countedPast(BrakeCommon))
		s.beat("n", nil)
		s.r.round(t.Context())
		require.Len(t, s.answers("n"), 2)
		assert.Equal(t, string(CodeUnreadable), s.answers("n")[0].Code)
		assert.Empty(t, s.posted)
		again := web()
		again.Since = lease.Micro(noon.Add(time.Hour))
		s.asks("n", again)
		s.r.round(t.Context())
		assert.Len(t, s.posted, 1, "the node has its history again")
	})
}

func TestRequestDryRunTakesNoLimit(t *testing.T) {
	s := newFixture(t)
	s.node("n", "web")
	r := web()
	r.DryRun = true
	s.asks("n", r)
	s.r.round(t.Context())
	require.Len(t, s.posted, 1)
	got := s.answers("n")
	require.Len(t, got, 1)
	assert.Equal(t, lease.Accepted, got[0].Result)
	assert.Empty(t, got[0].Owner)
	assert.True(t, got[0].DryRun)
	assert.Len(t, s.written, 1, "no note")
	assert.Empty(t, s.r.journal.evictions)
}

func TestRequestUnknownOutcomeCountsOnce(t *testing.T) {
	s := newFixture(t)
	s.answer = func() evict.Answer { return evict.Answer{Outcome: evict.UnknownOutcome} }
	s.node("n", "web", "db")
	s.asks("n", web())
	for range 3 {
		s.r.round(t.Context())
		s.beat("n", nil)
	}
	assert.Len(t, s.posted, 3)
	require.Len(t, s.r.journal.evictions, 1)
	got := s.answers("n")
	require.Len(t, got, 1)
	assert.Zero(t, got[0].Since, "the note alone, which is no answer")
	s.answer = nil
	db := web()
	db.UID, db.Name = "db", "db"
	s.asks("n", web(), db)
	s.r.round(t.Context())
	assert.Len(t, s.r.journal.evictions, 2)
	counts := s.r.Counts()
	assert.EqualValues(t, 3, counts.Evictions[string(evict.UnknownOutcome)])
	assert.EqualValues(t, 2, counts.Evictions[string(evict.Evicted)])
	assert.Zero(t, counts.Refusals[string(CodeGone)])
}

// A pod that stays counts no more, although its eviction was unknown before.
func TestRequestBlockedAfterUnknownOutcome(t *testing.T) {
	for _, stays := range []evict.Outcome{evict.Blocked, evict.Refused} {
		s := newFixture(t)
		s.list = func(context.Context) (*corev1.PodList, error) {
			return &corev1.PodList{Items: make([]corev1.Pod, 100)}, nil
		}
		outcome := evict.UnknownOutcome
		s.answer = func() evict.Answer { return evict.Answer{Outcome: outcome} }
		s.node("n", "web", "db")
		s.node("m")
		s.asks("n", web())
		s.r.round(t.Context())
		require.Len(t, s.r.journal.evictions, 1, stays)
		outcome = stays
		s.beat("n", nil)
		s.r.round(t.Context())
		assert.Empty(t, s.r.journal.evictions, stays)
		outcome = evict.Evicted
		db := web()
		db.UID, db.Name = "db", "db"
		s.asks("n", db)
		s.r.round(t.Context())
		require.Len(t, s.posted, 3, stays)
		assert.Equal(t, "db", s.posted[2].UID)
	}
}

// An eviction that was carried out counts, whatever is answered when its pod is requested again.
func TestRequestBlockedAfterEviction(t *testing.T) {
	s := newFixture(t)
	outcome := evict.InProgress
	s.answer = func() evict.Answer { return evict.Answer{Outcome: outcome} }
	s.node("n", "web")
	for i, next := range []evict.Outcome{evict.UnknownOutcome, evict.Blocked, ""} {
		r := web()
		r.Since = lease.Micro(noon.Add(time.Duration(i) * time.Second))
		s.asks("n", r)
		s.r.round(t.Context())
		require.Len(t, s.posted, i+1)
		require.Len(t, s.r.journal.evictions, 1, i)
		assert.True(t, slices.ContainsFunc(s.answers("n"), countsAsEviction), "the next leader counts it, too: %d", i)
		outcome = next
	}
}

// An eviction that is carried out late counts from then on, and for the brake that was on then.
func TestRequestEvictedAfterUnknownOutcome(t *testing.T) {
	for what, row := range map[string]struct {
		report string
		brake  Brake
		code   Code
	}{
		"no brake is on":               {`{}`, "", CodeOwner},
		"there is a common cause then": {`{"pressure":{"memory":"hard"}}`, BrakeCommon, CodeCommon},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				outcome, report := evict.UnknownOutcome, `{}`
				s.answer = func() evict.Answer { return evict.Answer{Outcome: outcome} }
				s.node("n", "web", "app")
				s.node("x")
				s.node("y")
				s.pods["app"].OwnerReferences[0].Name = "web-2" // of the same Deployment
				asks := func(app string) {
					for _, name := range []string{"n", "x", "y"} {
						s.beat(name, map[string]string{lease.NodeAnnotation: report})
					}
					r := short(false)
					r.UID, r.Name, r.Since = app, app, lease.Micro(time.Now())
					s.asks("n", r)
					s.r.round(t.Context())
				}
				for range 19 { // 9 min 30 s
					asks("web")
					time.Sleep(30 * time.Second)
				}
				outcome, report = evict.Evicted, row.report
				asks("web")
				require.Len(t, s.posted, 20)
				require.Len(t, s.r.journal.evictions, 1)
				assert.Equal(t, row.brake, s.r.journal.evictions[0].PastBrake)
				assert.Zero(t, time.Since(s.r.journal.evictions[0].Time))
				time.Sleep(80 * time.Second)
				asks("app")
				assert.Len(t, s.posted, 20)
				list := s.answers("n")
				require.NotEmpty(t, list)
				last := list[len(list)-1]
				assert.Equal(t, "app", last.UID)
				assert.Equal(t, string(row.code), last.Code, last.Reason)
			})
		})
	}
}

// A pod that takes long to end may be requested, and its eviction accepted, many times: the
// Lease has no more than the last answer.
func TestRequestRepeatedKeepsOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const times = 60
		s := newFixture(t)
		s.node("n", "web")
		first := time.Now()
		for i := range times {
			r := web()
			r.Since = lease.Micro(noon.Add(time.Duration(i) * time.Second))
			s.asks("n", r)
			s.r.round(t.Context())
			got := s.answers("n")
			require.Len(t, got, 1, i)
			require.True(t, answersRequest(got[0], r), i)
			time.Sleep(time.Second)
		}
		assert.Len(t, s.posted, times)
		require.Len(t, s.r.journal.evictions, 1)
		assert.True(t, first.Equal(s.r.journal.evictions[0].Time), "it counts from the first time")
	})
}

// A webhook that fails the evictions of one pod does not hold up the other pods of its node.
func TestRequestUnknownOutcomeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		s.answer = func() evict.Answer {
			return evict.Answer{Outcome: evict.UnknownOutcome, Text: "failed calling webhook"}
		}
		s.node("n", "web")
		s.asks("n", web())
		took := 0
		for ; len(s.answers("n")) < 2; took++ {
			require.Less(t, took, 70)
			s.r.round(t.Context())
			s.beat("n", nil)
			time.Sleep(time.Second)
		}
		assert.InDelta(t, 60, took, 3)
		note, given := s.answers("n")[0], s.answers("n")[1]
		assert.True(t, countsAsEviction(note), "the pod may have been evicted")
		assert.Equal(t, lease.Blocked, given.Result)
		assert.Equal(t, string(CodeOutcomeUnknown), given.Code)
		assert.Contains(t, given.Reason, "failed calling webhook")
		assert.Equal(t, 30, given.RetryAfterSeconds)
		assert.Len(t, s.r.journal.evictions, 1)
		assert.EqualValues(t, 1, s.r.Counts().Refusals[string(CodeOutcomeUnknown)])
	})
}

// A Velero may be in a namespace that no list names.
func TestRequestInVelerosNamespace(t *testing.T) {
	for what, row := range map[string]struct {
		is      bool
		err     error
		code    Code
		evicted bool
	}{
		"another's namespace":         {evicted: true},
		"Velero's":                    {is: true, code: CodeProtected},
		"it is not known whose it is": {err: errors.New("etcd"), code: CodeNamespaceUnknown},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				read := 0
				s.r.IsVelero = func(_ context.Context, namespace string) (bool, error) {
					read++
					return row.is && namespace == "backup", row.err
				}
				s.node("n", "web")
				s.node("m", "db")
				s.pods["web"].Namespace = "backup"
				s.pods["db"].Namespace = "backup"
				asks := func() {
					s.asks("n", lease.Request{UID: "web", Namespace: "backup", Name: "web", Since: lease.Micro(time.Now())})
					s.asks("m", lease.Request{UID: "db", Namespace: "backup", Name: "db", Since: lease.Micro(time.Now())})
					s.r.round(t.Context())
				}
				asks()
				assert.Len(t, s.posted, map[bool]int{true: 2}[row.evicted])
				for _, name := range []string{"n", "m"} { // one holds up no other
					got := s.answers(name)
					require.Len(t, got, 1)
					assert.Equal(t, string(row.code), got[0].Code)
					assert.Equal(t, row.err != nil, got[0].Result == lease.Blocked && got[0].RetryAfterSeconds == 30, got[0])
				}
				assert.Equal(t, 1, read)
				time.Sleep(maxRetryDelay)
				if !row.evicted {
					asks()
					assert.Equal(t, map[bool]int{false: 1, true: 2}[row.err != nil], read, "a failure is asked again first")
				}
			})
		})
	}
}

// Another component ends the pod: it counts against the cluster eviction limit.
func TestRequestInProgress(t *testing.T) {
	s := newFixture(t)
	s.answer = func() evict.Answer { return evict.Answer{Outcome: evict.InProgress, Text: "it is migrated"} }
	s.node("n", "web")
	s.asks("n", web())
	s.r.round(t.Context())
	got := s.answers("n")
	require.Len(t, got, 1)
	assert.Equal(t, lease.InProgress, got[0].Result)
	assert.Equal(t, "it is migrated", got[0].Reason)
	assert.NotEmpty(t, got[0].Owner, "the next leader counts it, too")
	assert.True(t, countsAsEviction(got[0]))
	require.Len(t, s.r.journal.evictions, 1)
	assert.EqualValues(t, 1, s.r.Counts().Evictions[string(evict.InProgress)])
}

func TestRefusalsCountedByCode(t *testing.T) {
	s := newFixture(t)
	counts := s.r.Counts()
	assert.Len(t, counts.Refusals, 13, "those that never came, too")
	assert.Len(t, counts.Evictions, 6)
	s.node("n")
	s.asks("n", web())
	s.r.round(t.Context())
	counts = s.r.Counts()
	assert.EqualValues(t, 1, counts.Refusals[string(CodeGone)])
	assert.Empty(t, s.posted)
}

// What the Lease does not have yet is kept, and no more than that.
func TestAnswersKeptForLease(t *testing.T) {
	refused := func(uid string) lease.Answer {
		return lease.Answer{UID: uid, Since: lease.Micro(noon), Result: lease.Refused, At: lease.Micro(noon)}
	}
	kept := func(asked []lease.Request, has, given []lease.Answer) (uids []string) {
		a := carrying("n", has...)
		a.Carried.Requests = asked
		for _, answer := range pending(noon, DefaultSettings(), &a, given) {
			uids = append(uids, answer.UID)
		}
		return uids
	}
	both := []lease.Request{request("p1"), request("p2")}
	assert.Equal(t, []string{"p1", "p2"}, kept(both, nil, []lease.Answer{refused("p1"), refused("p2")}))
	assert.Equal(t, []string{"p2", "p1"}, kept(both, nil, []lease.Answer{refused("p1"), refused("p2"), refused("p1")}), "the later one of two")
	assert.Empty(t, kept(nil, nil, []lease.Answer{refused("p1")}), "it is asked for no more")
	assert.Equal(t, []string{"p1"}, kept(nil, []lease.Answer{accepted("p1", "o", 0)}, []lease.Answer{refused("p1")}), "but the Lease says that it went")
	assert.Equal(t, []string{"p1"}, kept(nil, nil, []lease.Answer{accepted("p1", "o", 9*time.Minute)}), "it went")

	b := newJournal()
	s := DefaultSettings()
	b.evictions = []PastEviction{{UID: "old", Time: noon.Add(-s.Evictions.counted())}, {UID: "new", Time: noon.Add(1 - s.Evictions.counted())}}
	b.prune(noon, noon, s, &Judgement{})
	require.Len(t, b.evictions, 1)
	assert.Equal(t, "new", b.evictions[0].UID)
}

func TestAgentReportOrder(t *testing.T) {
	var agents []Agent
	for name, change := range map[string]func(*Agent){
		"a": func(*Agent) {},
		"b": func(a *Agent) {
			a.Carried.Report = lease.NodeReport{Pressure: map[string]string{"disk": "soft"}, Plugins: map[string]string{"files": "hard"}}
		},
		"c": func(a *Agent) { a.Carried.Report.Pressure = map[string]string{"memory": "hard"}; untainted(a) },
		"d": func(a *Agent) { a.ParseErr = errors.New("annotation x") },
		"e": func(a *Agent) { a.ParseErr = errors.New("annotation y") },
		"f": func(a *Agent) { a.LastHeartbeat = noon.Add(-20 * time.Second) },
		"g": func(a *Agent) {
			a.LastHeartbeat = noon.Add(-time.Hour)
			a.Carried.Report.Pressure = map[string]string{"memory": "hard"}
		},
		"h": func(a *Agent) {
			a.Carried.Report = lease.NodeReport{Reported: map[string]string{"cpu": "soft"}, NotJudged: []string{"disk", "network"}}
		},
	} {
		agents = append(agents, made(name, 0, change))
	}
	slices.SortFunc(agents, func(a, b Agent) int { return cmp.Compare(b.Name, a.Name) })
	j := judge(JudgeState{}, agents...)
	g := NewEvaluation(noon, DefaultSettings(), &j, History{ServerTime: noon})
	r := newReport(&j, &g, nil)
	assert.Equal(t, map[State]int{Alive: 6, Late: 1, Silent: 1}, r.Agents)
	require.Len(t, r.Missing, 2)
	assert.Equal(t, MissingAgent{Node: "f", State: Late, SilenceSeconds: 20, Tainted: true}, r.Missing[0])
	assert.Equal(t, "g", r.Missing[1].Node)
	assert.Equal(t, []UnreadableNode{{Node: "d", Reason: "annotation x"}, {Node: "e", Reason: "annotation y"}}, r.Unreadable)
	assert.Equal(t, []Pressed{
		{Node: "b", Pressure: map[string]string{"disk": "soft"}, Plugins: map[string]string{"files": "hard"}, Zone: "a", Tainted: true},
		{Node: "c", Pressure: map[string]string{"memory": "hard"}, Zone: "a"},
	}, r.Pressed, "the word of a silent agent is old")
	assert.Equal(t, []ReportedNode{{Node: "h", Levels: map[string]string{"cpu": "soft"}}}, r.Reported)
	assert.Equal(t, map[string]int{"disk": 1, "network": 1}, r.NotJudged)
	assert.NotContains(t, g.Pressed.Resources, "cpu", "what is only reported brakes nothing")
}

func TestAgentReportNewestAnswers(t *testing.T) {
	s := newFixture(t)
	for i := range 2 * maxAnswered {
		node := string(rune('a' + i%10))
		s.r.recordAnswer(PendingRequest{&Judged{Agent: &Agent{Name: node}}, request("p1")}, "", lease.Answer{At: lease.Micro(noon.Add(time.Duration(i) * time.Second))})
	}
	require.Len(t, s.r.answered, maxAnswered)
	of := map[string]int{}
	for i, a := range s.r.answered {
		of[a.Node]++
		assert.Equal(t, noon.Add(time.Duration(2*maxAnswered-1-i)*time.Second), a.Time)
	}
	assert.Len(t, of, 10)
}

func TestRequestEvictsOnceAnswerWrittenLate(t *testing.T) {
	s := newFixture(t)
	s.node("n", "web")
	s.asks("n", web())
	s.fails = errBroken
	s.r.round(t.Context())
	assert.Empty(t, s.posted, "the note that it may go cannot be written")
	assert.Empty(t, s.r.journal.answers["n"])
	s.fails = nil
	s.answer = func() evict.Answer {
		s.fails = errBroken
		return evict.Answer{Outcome: evict.Evicted}
	}
	for range 3 {
		s.r.round(t.Context())
	}
	assert.Len(t, s.posted, 1, "it was answered, which the Lease does not say yet")
	require.Len(t, s.written, 1)
	s.fails = nil
	for range 3 {
		s.r.round(t.Context())
	}
	assert.Len(t, s.posted, 1)
	assert.Len(t, s.written, 2, "the note, and the answer once")
	got := s.answers("n")
	require.Len(t, got, 1)
	assert.True(t, answersRequest(got[0], web()))
	assert.Empty(t, s.r.journal.answers, "the Lease says it")
}

func TestLeaseUnreadableLoggedOncePerProblem(t *testing.T) {
	s := newFixture(t)
	s.node("n")
	said := func() int { return strings.Count(s.log.String(), "cannot read annotations of agent's Lease") }
	for i, row := range []struct {
		text string
		said int
	}{{`[]`, 0}, {`{`, 1}, {`{`, 1}, {`7`, 2}, {`[]`, 2}, {`7`, 3}} {
		s.beat("n", map[string]string{lease.EvictionsAnnotation: row.text})
		s.r.round(t.Context())
		assert.Equal(t, row.said, said(), i)
	}
}
