package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/fleet"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// granter asks the controller for evictions. What it is asked for stands in the
// agent's Lease from one beat to the next, and so does the answer. It decides
// nothing.
type granter struct {
	// alone evicts what goes without the controller.
	alone evictor
	// wake makes the Lease be renewed soon, and late is told of an answer that
	// nobody waits for any more. Neither blocks.
	wake, late func()

	mu    sync.Mutex // guards what follows; nothing is done under it but copying
	asked []asked
	// known: asked is all that this node wants. Until then what stands in the
	// Lease is left there: the agent before this one asked for it.
	known bool
}

// asked is a request that stands.
type asked struct {
	lease.Request
	// since when, and after how long the Lease is looked at next.
	since time.Time
	next  time.Duration
	// fresh: it was asked for since the last withdraw.
	fresh bool
	// heard is closed when there is an answer.
	heard  chan struct{}
	answer *lease.Answer
}

// answerTimeout is how long a round waits for the controller: as for the API
// server. An answer that comes later is taken up in a later round.
const answerTimeout = evict.DefaultEvictTimeout

// firstLook at the Lease after a request, doubled from then on: the beat that
// carries the request comes back before the controller has seen it.
const firstLook = time.Second

// Evict asks for one pod, again for one that was asked for and not answered.
// The request stands until it is answered or withdrawn.
func (g *granter) Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer {
	if v.Alone {
		g.drop(v.UID, dryRun)
		return g.alone.Evict(ctx, v, dryRun)
	}
	a := g.ask(v, dryRun)
	for {
		select {
		case <-a.heard:
			return g.take(v, dryRun)
		default:
		}
		since := time.Since(a.since)
		if since >= a.next {
			a.next = g.looked(v, dryRun, since)
			g.wake()
		}
		if since >= answerTimeout || ctx.Err() != nil {
			return evict.Answer{
				Time: time.Now(), Outcome: evict.Unanswered, DryRun: dryRun, Via: evict.ViaController,
				Text: fmt.Sprintf("the controller has not answered for %s", since.Round(time.Second)),
			}
		}
		pause := time.NewTimer(min(a.next, answerTimeout) - since)
		select {
		case <-a.heard:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// ask for a pod, or find the request that stands.
func (g *granter) ask(v evict.Victim, dryRun bool) asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.find(v, dryRun)
	if i < 0 {
		i = len(g.asked)
		// What counts, a dry run beside it, and what has become urgent since are told
		// apart by the time: an answer to one is none to another.
		if dryRun {
			v.Since = v.Since.Add(time.Microsecond)
		}
		if v.Urgent {
			v.Since = v.Since.Add(2 * time.Microsecond)
		}
		g.asked = append(g.asked, asked{
			Request: lease.Request{
				UID: v.UID, Namespace: v.Namespace, Name: v.Name, Plugin: v.Plugin, Reason: lease.Clip(v.Why, lease.MaxReason),
				Resource: string(v.Resource), Level: levelOf(v.Level),
				Urgent: v.Urgent, GraceSeconds: &v.GraceSeconds, Since: lease.Micro(v.Since), DryRun: dryRun,
			},
			since: time.Now(), heard: make(chan struct{}),
		})
	}
	g.known = true
	g.asked[i].fresh = true
	return g.asked[i]
}

// levelOf is a level as a Lease says it; empty: none.
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

func (g *granter) find(v evict.Victim, dryRun bool) int {
	return slices.IndexFunc(g.asked, func(a asked) bool { return a.UID == v.UID && a.DryRun == dryRun && a.Urgent == v.Urgent })
}

// looked at the Lease: when to look again.
func (g *granter) looked(v evict.Victim, dryRun bool, since time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := max(firstLook, 2*since)
	if i := g.find(v, dryRun); i >= 0 {
		g.asked[i].next = next
	}
	return next
}

// take the answer; the request is over.
func (g *granter) take(v evict.Victim, dryRun bool) evict.Answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.find(v, dryRun)
	answer := meaning(*g.asked[i].answer)
	answer.Time, answer.DryRun = time.Now(), dryRun
	g.asked = slices.Delete(g.asked, i, i+1)
	return answer
}

func (g *granter) drop(uid string, dryRun bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = slices.DeleteFunc(g.asked, func(a asked) bool { return a.UID == uid && a.DryRun == dryRun })
}

// withdraw what was not asked for since the last time: a round that does not
// ask for it again does not want it.
func (g *granter) withdraw() {
	g.mu.Lock()
	before := len(g.asked)
	g.asked = slices.DeleteFunc(g.asked, func(a asked) bool { return !a.fresh })
	for i := range g.asked {
		g.asked[i].fresh = false
	}
	gone := len(g.asked) < before
	g.known = true
	g.mu.Unlock()
	if gone {
		g.wake()
	}
}

// carry is what the Lease says is asked for; empty: nothing. It is not known
// before the first round has decided.
func (g *granter) carry() (text string, known bool) {
	if g == nil {
		return "", false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.known || len(g.asked) == 0 {
		return "", g.known
	}
	standing := g.asked[:min(len(g.asked), lease.MaxRequests)] // the others wait for room
	list := make([]lease.Request, len(standing))
	for i, a := range standing {
		list[i] = a.Request
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", true // strings cannot fail
	}
	return string(b), true
}

// hear what the Lease says that was answered.
func (g *granter) hear(annotations map[string]string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.asked) == 0 {
		return
	}
	carried, err := lease.ReadCarried(map[string]string{lease.GrantedAnnotation: annotations[lease.GrantedAnnotation]})
	if err != nil {
		return // of a controller that is not ours: it stays unanswered
	}
	for i := range g.asked {
		a := &g.asked[i]
		j := slices.IndexFunc(carried.Answers, func(o lease.Answer) bool { return o.UID == a.UID && o.Since.Equal(&a.Since) })
		if j < 0 || a.answer != nil {
			continue
		}
		a.answer = &carried.Answers[j]
		close(a.heard)
		if time.Since(a.since) >= answerTimeout {
			g.late()
		}
	}
}

// meaning of the controller's answer for the pod.
func meaning(a lease.Answer) evict.Answer {
	out := evict.Answer{Text: a.Reason, Via: evict.ViaController, RetryAfter: time.Duration(a.RetryAfterSeconds) * time.Second}
	switch a.Result {
	case lease.Accepted:
		out.Outcome = evict.Evicted
	case lease.Gone:
		out.Outcome = evict.Gone
	case lease.Blocked:
		out.Outcome = evict.Blocked
	case lease.Refused:
		out.Outcome = refusal(fleet.Code(a.Code))
	default:
		out.Outcome, out.Text = evict.Unanswered, fmt.Sprintf("unknown answer %q from the controller", a.Result)
	}
	return out
}

// refusal by the controller's rules, or for good by the API server, which has
// no code. A reason that is not known here, of a newer controller, holds for
// all that is asked for the same.
func refusal(code fleet.Code) evict.Outcome {
	switch code {
	case "", fleet.CodeElsewhere, fleet.CodeProtected:
		return evict.Refused
	case fleet.CodeOwner:
		return evict.Blocked
	default:
		return evict.Braked
	}
}
