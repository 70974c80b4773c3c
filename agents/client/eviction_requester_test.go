package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// post is a Lease as the API server keeps it, and a controller that answers
// after a while.
type post struct {
	t     *testing.T
	g     *EvictionRequester
	beats []time.Duration // since it began
	began time.Time
	// decide on a request; nil: no controller is there.
	decide func(lease.Request) lease.Answer
	alone  alone

	mu          sync.Mutex // guards annotations and beats
	annotations map[string]string
	late        int
}

// alone is asked without the controller.
type alone struct{ asked []evict.Victim }

func (a *alone) Evict(_ context.Context, v evict.Victim, dryRun bool) evict.Answer {
	a.asked = append(a.asked, v)
	return evict.Answer{Time: time.Now(), Outcome: evict.Evicted, DryRun: dryRun}
}

func newPost(t *testing.T, decide func(lease.Request) lease.Answer) *post {
	p := &post{t: t, decide: decide, began: time.Now(), annotations: map[string]string{}}
	p.g = &EvictionRequester{Direct: &p.alone, Wake: p.beat, LateAnswer: func() { p.late++ }}
	return p
}

// beat as a heartbeat does when it is woken: a moment later.
func (p *post) beat() {
	time.AfterFunc(100*time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.beats = append(p.beats, time.Since(p.began))
		if text, known := p.g.Encode(); known && text != "" {
			p.annotations[lease.EvictionsAnnotation] = text
		} else if known {
			delete(p.annotations, lease.EvictionsAnnotation)
		}
		p.g.ReadAnswers(p.annotations)
		p.answer()
	})
}

// answer what stands, as the controller does.
func (p *post) answer() {
	if p.decide == nil {
		return
	}
	var answers []lease.Answer
	for _, r := range p.standing() {
		a := p.decide(r)
		a.UID = r.UID
		if a.Since.IsZero() {
			a.Since = r.Since
		}
		answers = append(answers, a)
	}
	text, err := json.Marshal(answers)
	require.NoError(p.t, err)
	p.annotations[lease.AnswersAnnotation] = string(text)
}

// rest for a while; then nothing is under way.
func (p *post) rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// requests that stand in the Lease.
func (p *post) requests() []lease.Request {
	synctest.Wait()
	return p.standing()
}

func (p *post) standing() []lease.Request {
	carried, err := lease.ReadContent(map[string]string{lease.EvictionsAnnotation: "[]"})
	if text, is := p.annotations[lease.EvictionsAnnotation]; is {
		carried, err = lease.ReadContent(map[string]string{lease.EvictionsAnnotation: text})
	}
	require.NoError(p.t, err)
	return carried.Requests
}

func grants(lease.Request) lease.Answer { return lease.Answer{Result: lease.Accepted} }

func chosenAt(t time.Time) evict.Victim {
	return evict.Victim{UID: "u", Namespace: "shop", Name: "web", GraceSeconds: 20, Since: t, Plugin: "memory-stall", Why: "holds 3 GiB", Level: plugins.Hard, Resource: plugins.Memory, Urgent: true}
}

func TestRequesterOutcomeOfAnswer(t *testing.T) {
	for _, row := range []struct {
		answer lease.Answer
		want   evict.Outcome
	}{
		{lease.Answer{Result: lease.Accepted}, evict.Evicted},
		{lease.Answer{Result: lease.InProgress, Reason: "it is migrated"}, evict.InProgress},
		{lease.Answer{Result: lease.Gone, Code: string(agents.CodeGone), Reason: "another UID"}, evict.NotFound},
		{lease.Answer{Result: lease.Blocked, Reason: "a budget", RetryAfterSeconds: 7}, evict.Blocked},
		{lease.Answer{Result: lease.Refused, Reason: "forbidden by a webhook"}, evict.Refused},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeProtected)}, evict.Refused},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeWrongNode)}, evict.Refused},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeOwner)}, evict.Blocked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeCluster)}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeZone), RetryAfterSeconds: 60}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeShare)}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeCommon)}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeFullDisruption)}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: string(agents.CodeUnreadable)}, evict.Braked},
		{lease.Answer{Result: lease.Refused, Code: "of a newer controller"}, evict.Braked},
		{lease.Answer{Result: "of a newer controller"}, evict.UnknownOutcome},
	} {
		got := convertAnswer(row.answer)
		assert.Equal(t, row.want, got.Outcome, "%+v", row.answer)
		assert.Equal(t, time.Duration(row.answer.RetryAfterSeconds)*time.Second, got.RetryAfter)
		assert.Equal(t, evict.ViaController, got.Via)
		if row.answer.Reason != "" {
			assert.Equal(t, row.answer.Reason, got.Text)
		}
	}
}

func TestRequesterAsksUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, grants)
		now := time.Now()
		a := p.g.Evict(t.Context(), chosenAt(now), false)
		assert.Equal(t, evict.Answer{Time: a.Time, Outcome: evict.Evicted, Via: evict.ViaController}, a)
		assert.Empty(t, cmp.Diff([]lease.Request{{
			UID: "u", Namespace: "shop", Name: "web", Plugin: "memory-stall", Reason: "holds 3 GiB", Resource: "memory", Level: "hard", Urgent: true, GraceSeconds: new(int64(20)), Since: lease.Micro(now.Add(2 * time.Microsecond)),
		}}, p.requests()))
		assert.Equal(t, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond}, p.beats, "one carries it, one brings the answer")
		text, known := p.g.Encode()
		assert.True(t, known)
		assert.Empty(t, text, "it is over")
	})
}

func TestRequesterLateAnswerNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		v := chosenAt(time.Now())
		a := p.g.Evict(t.Context(), v, false)
		assert.Equal(t, evict.UnknownOutcome, a.Outcome)
		assert.Equal(t, "the controller has not answered for 5s", a.Text)
		for range 12 { // a minute of rounds
			p.g.Withdraw()
			p.rest(5 * time.Second)
			start := time.Now()
			assert.Equal(t, evict.UnknownOutcome, p.g.Evict(t.Context(), v, false).Outcome)
			assert.Zero(t, time.Since(start), "a round waits once")
		}
		assert.LessOrEqual(t, len(p.beats), 8, "nobody who is away is asked more and more: %s", p.beats)
		require.Len(t, p.requests(), 1)
		assert.Zero(t, p.late)

		p.decide = grants
		p.beat() // an ordinary one
		p.rest(10 * time.Second)
		p.beat()
		p.rest(time.Second)
		assert.Equal(t, 1, p.late, "a round is called for")
		a = p.g.Evict(t.Context(), v, false)
		assert.Equal(t, evict.Evicted, a.Outcome)
		assert.Equal(t, time.Now(), a.Time, "it settles from now on")
	})
}

func TestRequesterWithdrawsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.g.Evict(t.Context(), chosenAt(time.Now()), false)
		p.g.Withdraw() // the round that asked
		p.rest(time.Minute)
		require.Len(t, p.requests(), 1)
		p.g.Withdraw() // one that did not
		p.rest(time.Second)
		assert.Empty(t, p.requests())
		beats := len(p.beats)
		p.g.Withdraw()
		p.rest(time.Second)
		assert.Len(t, p.beats, beats, "there is nothing new")
	})
}

// The rounds hang, or never began: nothing renews the request but the Lease.
func TestRequesterLeavesOutWhatNoRoundRepeats(t *testing.T) {
	for round, valid := range map[time.Duration]time.Duration{5 * time.Second: time.Minute, time.Minute: 3 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			p := newPost(t, nil)
			p.g.Round = func() time.Duration { return round }
			inLease := func(after time.Duration) int {
				t.Helper()
				time.Sleep(after)
				p.beat()
				p.rest(time.Second)
				return len(p.requests())
			}
			v := chosenAt(time.Now())
			p.g.Evict(t.Context(), v, false)
			assert.Equal(t, 1, inLease(valid-10*time.Second))
			assert.Zero(t, inLease(10*time.Second))
			p.decide = grants
			p.g.Evict(t.Context(), v, false)
			assert.Equal(t, 1, inLease(0), "a round repeated it")
			p.beat()
			p.rest(time.Second)
			assert.Equal(t, evict.Evicted, p.g.Evict(t.Context(), v, false).Outcome)

			p.annotations[lease.EvictionsAnnotation] = `[{"uid":"u","namespace":"shop","name":"web","since":"2026-03-01T12:00:00.000000Z"}]`
			p.g = &EvictionRequester{Direct: &p.alone, Wake: p.beat, LateAnswer: func() {}, Round: p.g.Round} // restarted
			assert.Equal(t, 1, inLease(0))
			assert.Equal(t, 1, inLease(valid-10*time.Second))
			assert.Zero(t, inLease(10*time.Second), "of an earlier agent, and no round began")
		})
	}
}

// What the controller would not read is not written.
func TestRequesterLeaseBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for i := range 2 * lease.MaxRequests {
			v := chosenAt(time.Now())
			v.UID, v.Why = fmt.Sprintf("%064d", i), strings.Repeat("<", 10_000)
			v.Name, v.Namespace, v.Plugin = strings.Repeat("w", 253), strings.Repeat("n", 63), strings.Repeat("p", 128)
			p.g.Evict(ctx, v, false)
		}
		text, known := p.g.Encode()
		require.True(t, known)
		carried, err := lease.ReadContent(map[string]string{lease.EvictionsAnnotation: text})
		require.NoError(t, err)
		assert.Len(t, carried.Requests, lease.MaxRequests)
		time.Sleep(time.Second) // the beats that are on their way
	})
}

func TestRequesterRestartKeepsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		v := chosenAt(time.Now())
		p.g.Evict(t.Context(), v, false)
		before := p.requests()

		p.g = &EvictionRequester{Direct: &p.alone, Wake: p.beat, LateAnswer: func() {}} // killed, and restarted
		p.beat()
		p.rest(time.Second)
		assert.Equal(t, before, p.requests(), "it is there")
		p.decide = grants
		p.beat()
		p.rest(time.Second)
		assert.Equal(t, evict.Evicted, p.g.Evict(t.Context(), v, false).Outcome, "the answer to the one before is its own")

		p.g = &EvictionRequester{Direct: &p.alone, Wake: p.beat, LateAnswer: func() {}}
		p.g.Withdraw() // nothing is pending
		p.beat()
		p.rest(time.Second)
		assert.Empty(t, p.requests())
	})
}

func TestRequesterDryRunAnswerApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, func(r lease.Request) lease.Answer {
			if r.DryRun {
				return lease.Answer{Result: lease.Accepted}
			}
			return lease.Answer{Since: lease.Micro(r.Since.Add(-time.Hour)), Result: lease.Accepted} // to another one
		})
		v := chosenAt(time.Now())
		assert.Equal(t, evict.UnknownOutcome, p.g.Evict(t.Context(), v, false).Outcome)
		a := p.g.Evict(t.Context(), v, true)
		assert.Equal(t, evict.Evicted, a.Outcome)
		assert.True(t, a.DryRun)
	})
}

// Memory fell below its floor while the controller was slow: what it refuses then
// is what was asked for before.
func TestRequesterUrgentAsksAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		v := chosenAt(time.Now())
		v.Urgent = false
		assert.Equal(t, evict.UnknownOutcome, p.g.Evict(t.Context(), v, false).Outcome)
		p.g.Withdraw()
		p.rest(time.Second)
		p.decide = func(r lease.Request) lease.Answer {
			if r.Urgent {
				return lease.Answer{Result: lease.Accepted}
			}
			return lease.Answer{Result: lease.Refused, Code: string(agents.CodeZone)}
		}
		v.Urgent = true
		p.beat() // brings the refusal
		p.rest(time.Second)
		p.beat()
		p.rest(time.Second)
		assert.Equal(t, evict.Evicted, p.g.Evict(t.Context(), v, false).Outcome)
		p.g.Withdraw()
		p.g.Withdraw()
		p.rest(time.Second)
		assert.Empty(t, p.requests())
	})
}

func TestRequesterFallbackWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		v := chosenAt(time.Now())
		p.g.Evict(t.Context(), v, false)
		v.Fallback = true
		assert.Equal(t, evict.Evicted, p.g.Evict(t.Context(), v, false).Outcome)
		assert.Equal(t, []evict.Victim{v}, p.alone.asked)
		text, known := p.g.Encode()
		assert.True(t, known)
		assert.Empty(t, text)
	})
}

func TestRequesterUnreadableAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		p.annotations[lease.AnswersAnnotation] = `[{"uid":"u"`
		assert.Equal(t, evict.UnknownOutcome, p.g.Evict(t.Context(), chosenAt(time.Now()), false).Outcome)
	})
}

func TestRequesterRoundEndCancelsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		assert.Equal(t, evict.UnknownOutcome, p.g.Evict(ctx, chosenAt(start), false).Outcome)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(time.Second) // the beat that is on its way
	})
}
