package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// EvictionRequester sends eviction requests to the controller: they are written into the
// agent's Lease with the renewals, and the controller's answers are read from
// it. It decides nothing.
type EvictionRequester struct {
	// Direct evicts victims that need no approval of the controller.
	Direct agents.Evictor
	// Wake renews the Lease soon. LateAnswer signals an answer that came after its
	// round had stopped waiting. Neither blocks.
	Wake, LateAnswer func()
	// Round is the longest time between two rounds; nil: less than a third of minValid.
	Round func() time.Duration

	mu      sync.Mutex // guards the fields below; nothing is done under it but copying
	pending []pendingRequest
	// complete: pending is complete. Until then the requests in the Lease stay there:
	// an earlier agent made them. first is when they were first left there.
	complete bool
	first    time.Time
}

// pendingRequest is a pending request.
type pendingRequest struct {
	lease.Request
	// since when the request is pending; next is after how long the Lease is read
	// again (exponential backoff).
	since time.Time
	next  time.Duration
	// repeated: the request was repeated since the last Withdraw; repeatedAt is when last.
	repeated   bool
	repeatedAt time.Time
	// answered is closed when the answer is there.
	answered chan struct{}
	answer   *lease.Answer
}

// answerTimeout is how long a round waits for the controller, the same as for
// the API server. A later answer is used in a later round.
const answerTimeout = evict.CallTimeout

// minValid is the shortest time for which a request is in the Lease without being repeated, and
// missedRounds how many rounds may miss it: when rounds hang the Lease is renewed all the
// same, and the pod would be evicted for what once was.
const (
	minValid     = time.Minute
	missedRounds = 3
)

// firstBackoff is when the Lease is first read again, then the interval doubles
// (exponential backoff): the renewal that carries the request returns before
// the controller has seen it.
const firstBackoff = time.Second

// Evict requests the eviction of one pod, or waits again for a request that is
// still pending. A request stays pending until it is answered or withdrawn. It
// is idempotent: repeating it sends no second request.
func (g *EvictionRequester) Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer {
	if v.Fallback {
		g.drop(v.UID, dryRun)
		return g.Direct.Evict(ctx, v, dryRun)
	}
	a := g.request(v, dryRun)
	for {
		select {
		case <-a.answered:
			return g.take(v, dryRun)
		default:
		}
		since := time.Since(a.since)
		if since >= a.next {
			a.next = g.nextLook(v, dryRun, since)
			g.Wake()
		}
		if since >= answerTimeout || ctx.Err() != nil {
			return evict.Answer{
				Time: time.Now(), Outcome: evict.UnknownOutcome, DryRun: dryRun, Via: evict.ViaController,
				Text: fmt.Sprintf("the controller has not answered for %s", since.Round(time.Second)),
			}
		}
		pause := time.NewTimer(min(a.next, answerTimeout) - since)
		select {
		case <-a.answered:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// request adds a request, or returns the pending one.
func (g *EvictionRequester) request(v evict.Victim, dryRun bool) pendingRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.find(v, dryRun)
	if i < 0 {
		i = len(g.pending)
		// A real request, its dry run and its urgent form differ in their time, so
		// that an answer to one is not taken for an answer to another.
		if dryRun {
			v.Since = v.Since.Add(time.Microsecond)
		}
		if v.Urgent {
			v.Since = v.Since.Add(2 * time.Microsecond)
		}
		g.pending = append(g.pending, pendingRequest{
			Request: lease.Request{
				UID: v.UID, Namespace: v.Namespace, Name: v.Name, Plugin: v.Plugin, Reason: lease.Truncate(v.Why, lease.MaxReason),
				Resource: string(v.Resource), Level: levelOf(v.Level),
				Urgent: v.Urgent, GraceSeconds: &v.GraceSeconds, Since: lease.Micro(v.Since), DryRun: dryRun,
			},
			since: time.Now(), answered: make(chan struct{}),
		})
	}
	g.complete = true
	g.pending[i].repeated, g.pending[i].repeatedAt = true, time.Now()
	return g.pending[i]
}

// levelOf is a level as the Lease carries it; empty for none.
func levelOf(l plugins.Level) string {
	switch l {
	case plugins.Soft:
		return lease.LevelSoft
	case plugins.Hard:
		return lease.LevelHard
	case plugins.None:
	}
	return ""
}

func (g *EvictionRequester) find(v evict.Victim, dryRun bool) int {
	return slices.IndexFunc(g.pending, func(a pendingRequest) bool { return a.UID == v.UID && a.DryRun == dryRun && a.Urgent == v.Urgent })
}

// nextLook records that the Lease was read and returns when to read it next.
func (g *EvictionRequester) nextLook(v evict.Victim, dryRun bool, since time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := backoff.Exponential{First: firstBackoff, Longest: math.MaxInt64}.Next(since)
	if i := g.find(v, dryRun); i >= 0 {
		g.pending[i].next = next
	}
	return next
}

// take removes an answered request and returns its answer.
func (g *EvictionRequester) take(v evict.Victim, dryRun bool) evict.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.find(v, dryRun)
	answer := convertAnswer(*g.pending[i].answer)
	answer.Time, answer.DryRun = time.Now(), dryRun
	g.pending = slices.Delete(g.pending, i, i+1)
	return answer
}

func (g *EvictionRequester) drop(uid string, dryRun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = slices.DeleteFunc(g.pending, func(a pendingRequest) bool { return a.UID == uid && a.DryRun == dryRun })
}

// Withdraw removes the requests that were not repeated since the last call: the
// rounds no longer want them.
func (g *EvictionRequester) Withdraw() {
	g.mu.Lock()
	before := len(g.pending)
	g.pending = slices.DeleteFunc(g.pending, func(a pendingRequest) bool { return !a.repeated })
	for i := range g.pending {
		g.pending[i].repeated = false
	}
	gone := len(g.pending) < before
	g.complete = true
	g.mu.Unlock()
	if gone {
		g.Wake()
	}
}

// Encode is the JSON of the pending requests for the Lease; empty: none. known
// is false until the first round has decided. What the rounds no longer repeat is left out,
// until one repeats it.
func (g *EvictionRequester) Encode() (text string, known bool) {
	if g == nil {
		return "", false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	if !g.complete && !g.stale(g.first) {
		return "", false
	}
	var list []lease.Request
	for _, a := range g.pending {
		if !g.stale(a.repeatedAt) {
			list = append(list, a.Request)
		}
	}
	if len(list) == 0 {
		return "", true
	}
	b, err := json.Marshal(list[:min(len(list), lease.MaxRequests)]) // the others follow when these are answered
	if err != nil {
		return "", true // cannot happen: strings always encode
	}
	return string(b), true
}

// stale tells whether rounds had time enough to repeat a request since then.
func (g *EvictionRequester) stale(since time.Time) bool {
	valid := minValid
	if g.Round != nil {
		valid = max(valid, missedRounds*g.Round())
	}
	return time.Since(since) > valid
}

// ReadAnswers reads the controller's answers from the Lease's annotations.
func (g *EvictionRequester) ReadAnswers(annotations map[string]string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending) == 0 {
		return
	}
	carried, err := lease.ReadContent(map[string]string{lease.AnswersAnnotation: annotations[lease.AnswersAnnotation]})
	if err != nil {
		return // unreadable: another controller's; the request stays unanswered
	}
	for i := range g.pending {
		a := &g.pending[i]
		j := slices.IndexFunc(carried.Answers, func(o lease.Answer) bool { return o.UID == a.UID && o.Since.Equal(&a.Since) })
		if j < 0 || a.answer != nil {
			continue
		}
		a.answer = &carried.Answers[j]
		close(a.answered)
		if time.Since(a.since) >= answerTimeout {
			g.LateAnswer()
		}
	}
}

// convertAnswer converts the controller's answer.
func convertAnswer(a lease.Answer) evict.Answer {
	out := evict.Answer{Text: a.Reason, Via: evict.ViaController, RetryAfter: time.Duration(a.RetryAfterSeconds) * time.Second}
	switch a.Result {
	case lease.Accepted:
		out.Outcome = evict.Evicted
	case lease.InProgress:
		out.Outcome = evict.InProgress
	case lease.Gone:
		out.Outcome = evict.NotFound
	case lease.Blocked:
		out.Outcome = evict.Blocked
	case lease.Refused:
		out.Outcome = convertRefusal(agents.Code(a.Code))
	default:
		out.Outcome, out.Text = evict.UnknownOutcome, fmt.Sprintf("unknown answer %q from the controller", a.Result)
	}
	return out
}

// convertRefusal converts the code of a refusal by the controller's rules; the API
// server's refusals have none. An unknown code, from a newer controller,
// applies to all requests alike.
func convertRefusal(code agents.Code) evict.Outcome {
	switch code {
	case "", agents.CodeWrongNode, agents.CodeProtected:
		return evict.Refused
	case agents.CodeOwner:
		return evict.Blocked
	default:
		return evict.Braked
	}
}
