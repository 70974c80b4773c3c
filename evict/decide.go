package evict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Decide returns which candidates may be evicted, and why each other one is
// skipped. Candidates with CodeNext may be evicted: the actor requests the
// eviction of the first, records the answer (Decision.RecordAnswer), and calls
// Decision.More for evictions beside an accepted one. In a dry run the request is
// a dry run of the API server, too. The returned state lacks only the answers to
// come.
func Decide(in Input) (Decision, State) {
	m := in.State.observe(in)
	d := Decision{
		ID: strconv.FormatInt(in.Time.UnixNano(), 36), Time: in.Time, DryRun: in.Config.DryRun, Candidates: rank(in, m),
	}
	if in.besideOthers() {
		d.ID += "-dry" // the part that is no dry run has the same time
	}
	r := evaluate(in, m, d.Candidates)
	d.Causes = causes(r)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Code, c.Reason = r.skip(c); c.Code == "" {
			c.Code, c.Reason = r.chooseVerdict(m, c, func(v plugins.Verdict) bool { return r.evictableFor(v, c) })
		}
	}
	preferWithoutController(r, d.Candidates)
	waiting := r.unknownOutcome(d.Candidates)
	d.Code, d.Reason = r.holdRound(d.Candidates, r.waitForOthers(d.Candidates, waiting))
	m = r.stateAfter(waiting)
	if d.Code == "" {
		d.Code, d.Reason = CodeNext, "evict if no earlier candidate is evicted"
	}
	d.recode("", d.Code, d.Reason)
	if _, some := d.Next(); d.Code == CodeNext && !some {
		d.Code, d.Reason = CodeNone, whyNone(d.Candidates)
		if i := slices.IndexFunc(d.Candidates, func(c Considered) bool { return c.Code == CodeBrake }); i >= 0 {
			d.Code, d.Reason = CodeBrake, d.Candidates[i].Reason
		}
	}
	return d, m
}

// recode replaces one code of candidates by another, with its reason.
func (d *Decision) recode(from, to Code, because string) {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Code == from {
			c.Code, c.Reason = to, because
		}
	}
}

// Next is the candidate to request now; false when none is left. Once two pods of an owner are
// blocked those of other owners come first: one PodDisruptionBudget mostly covers all pods of
// an owner, and the requests of a round are few.
func (d *Decision) Next() (int, bool) {
	next := func(c Considered) bool { return c.Code == CodeNext }
	i := slices.IndexFunc(d.Candidates, func(c Considered) bool { return next(c) && !d.blockedOwner(c.Pod) })
	if i < 0 {
		i = slices.IndexFunc(d.Candidates, next)
	}
	return i, i >= 0
}

// blockedOwner reports whether two pods of the same owner are blocked, in this round or since
// an earlier one.
func (d *Decision) blockedOwner(p *pods.Pod) bool {
	blocked := 0
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Code == CodePDB && ownerOf(c.Pod) == ownerOf(p) {
			blocked++
		}
	}
	return blocked >= 2
}

// Victim is a candidate as the Evictor wants it: with the termination grace
// period of its plugin, else of the pod, within bounds. It is 0 only where a
// plugin asks for 0 and may: the API server deletes such a pod from its store
// while it may still run.
func (d *Decision) Victim(i int, maxGrace time.Duration) Victim {
	c := &d.Candidates[i]
	return Victim{UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name, GraceSeconds: c.grace(maxGrace)}
}

// grace is the termination grace period in seconds that the candidate is evicted with.
func (c *Considered) grace(longest time.Duration) int64 {
	grace, asked := c.GraceSeconds.Get()
	if !asked {
		grace = c.Pod.GraceSeconds
	}
	if !asked || grace != 0 {
		grace = max(1, min(grace, int64(longest/time.Second)))
	}
	return grace
}

// accept records an accepted eviction. Later candidates are skipped, unless More
// finds that they are needed too.
func (d *Decision) accept(i int) {
	c := &d.Candidates[i]
	code, prefix := CodeEvicted, ""
	if d.DryRun {
		code, prefix = CodeWouldEvict, "dry run: "
	}
	if d.accepted() == 0 {
		d.Reason = prefix
	} else {
		d.Reason += "; "
	}
	c.Code, c.Reason = code, c.Why
	d.Code = code
	d.Reason += fmt.Sprintf("%s/%s: %s", c.Pod.Namespace, c.Pod.Name, c.Why)
	d.recode(CodeNext, CodeNotNeeded, "waiting for the effect of an earlier eviction")
}

// acceptInProgress records an eviction that another component carries out: it counts as
// accepted, and no other candidate is evicted in its place.
func (d *Decision) acceptInProgress(i int, a Answer) {
	first := d.accepted() == 0
	d.accept(i)
	if d.DryRun {
		return
	}
	c := &d.Candidates[i]
	c.Code, c.Reason = CodeInProgress, c.Why+"; its eviction is in progress: "+a.reason()
	if d.Reason += " (in progress: " + a.reason() + ")"; first {
		d.Code = CodeInProgress
	}
}

// accepted is the number of accepted evictions.
func (d *Decision) accepted() int { return len(d.Evicted()) }

// endRound skips the candidates that were not requested. Code and reason become the
// round's outcome if no pod is evicted.
func (d *Decision) endRound(code Code, reason string) {
	if d.accepted() == 0 {
		d.Code, d.Reason = code, reason
	}
	d.recode(CodeNext, code, reason)
}

// RecordAnswer records the answer of the API server, or of the controller, for
// candidate i.
func (d *Decision) RecordAnswer(i int, a Answer) {
	c := &d.Candidates[i]
	c.Answers = append(c.Answers, a)
	name := c.Pod.Namespace + "/" + c.Pod.Name
	switch a.Outcome {
	case Evicted:
		d.accept(i)
	case InProgress:
		d.acceptInProgress(i, a)
	case Blocked:
		c.Code, c.Reason = CodePDB, a.reason()
	case Refused:
		c.Code, c.Reason = CodeRefused, a.reason()
	case Braked:
		c.Code, c.Reason = CodeBrake, a.reason()
		for j := range d.Candidates { // candidates for another verdict are still requested
			if o := &d.Candidates[j]; o.Code == CodeNext && o.For.String() == c.For.String() {
				o.Code, o.Reason = CodeBrake, a.reason()
			}
		}
		if _, some := d.Next(); !some {
			d.endRound(CodeBrake, a.reason())
		}
	case NotFound:
		c.Code, c.Reason = CodeTerminated, "it had already terminated; its usage counts as released"
		reason := name + " had already terminated; its usage counts as released"
		if d.accepted() == 0 {
			d.Code, d.Reason = CodeTerminated, reason
		}
		d.recode(CodeNext, CodeNotNeeded, reason)
	case UnknownOutcome:
		reason := "eviction of " + name + ": outcome unknown: " + a.Text
		c.Code, c.Reason = CodeUnknownOutcome, reason
		d.endRound(CodeUnknownOutcome, reason)
	}
}

// Postpone ends a round: candidates that were not requested are left for later
// rounds.
func (d *Decision) Postpone() {
	d.recode(CodeNext, CodeNext, "left for a later round, if still needed")
	if d.Code == CodeNext {
		d.Code, d.Reason = CodeNone, whyNone(d.Candidates)
	}
}

// StateNotSaved ends a round whose state could not be saved: an agent that restarts
// would not know of the eviction and would evict another pod.
func (d *Decision) StateNotSaved(err error) {
	d.endRound(CodeState, "cannot save the eviction state, so no pod is evicted: "+err.Error())
}

// whyNone is why no candidate is evicted, in one line: the reason of the workload whose
// eviction would release most, then the most frequent reason of the other pods.
// Workloads that are not pods are no candidates; the largest may be one of them.
func whyNone(list []Considered) string {
	if len(list) == 0 {
		return "the plugin named no pod"
	}
	isPod := func(c Considered) bool { return c.Code != CodeNotAPod }
	candidates, largest := 0, 0
	for i, c := range list {
		if isPod(c) {
			candidates++
		}
		if c.Unit == list[0].Unit && c.Relief > list[largest].Relief { // other units do not compare
			largest = i
		}
	}
	first := &list[largest]
	name := "the largest workload, " + first.Name
	if first.Relief == 0 { // a plugin that does not tell
		name = "the first candidate, " + first.Name
	}
	if !strings.Contains(first.Reason, first.Why) {
		name += " (" + first.Why + ")"
	}
	if candidates == 0 {
		return "the plugin named no pod; " + name + ": " + first.Reason
	}
	others := slices.DeleteFunc(slices.Delete(slices.Clone(list), largest, largest+1), func(c Considered) bool { return !isPod(c) })
	return fmt.Sprintf("none of %d candidates is evicted; %s: %s", candidates, name, first.Reason) + reasonOfOthers(others, first)
}

// reasonOfOthers is the most frequent reason of these candidates; of equally frequent ones
// that of the first.
func reasonOfOthers(list []Considered, first *Considered) string {
	if len(list) == 0 {
		return ""
	}
	count := map[Code]int{}
	for _, c := range list {
		count[c.Code]++
	}
	most := slices.MaxFunc(list, func(a, b Considered) int { return cmp.Compare(count[a.Code], count[b.Code]) })
	of, why := "", most.Reason
	if count[most.Code] < len(list) {
		of = fmt.Sprintf(" of %d", len(list))
	}
	if why == first.Reason {
		why = "the same"
	}
	noun := "others"
	if len(list) == 1 {
		noun = "other"
	}
	return fmt.Sprintf("; %d%s %s: %s", count[most.Code], of, noun, why)
}

// Outdated ends a round whose choice no longer holds.
func (d *Decision) Outdated() {
	d.endRound(CodeStale, "pods, levels or the configuration changed since the decision; the next round decides again")
}

// More selects further candidates beside the accepted evictions of this round, if
// these do not release enough and the limits allow it. m is the state with the
// choices of this round.
func (d *Decision) More(in Input, m State) {
	if d.accepted() == 0 || slices.ContainsFunc(d.Candidates, endsRound) {
		return
	}
	r := further{evaluate(in, in.State.observe(in), d.Candidates), d, m}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Code != CodeNotNeeded && c.Code != CodeNext {
			continue
		}
		if c.Code, c.Reason = r.skipFurther(c); c.Code == "" {
			c.Code, c.Reason = CodeNext, "evict too if earlier evictions do not release enough"
		}
	}
}

// saveTimeout is how long no pod is evicted while the state cannot be saved. A
// workload that stalls or fills the disk may prevent that, and must not escape
// eviction by it.
const saveTimeout = time.Minute

// EvictUnsaved reports whether candidate i is evicted although the state could not be
// saved, for the time unkept so far. The cost is one pod too many if the agent is
// killed before the API server has answered. Memory below its floor does not wait
// for the disk.
func (d *Decision) EvictUnsaved(i int, unkept time.Duration) bool {
	return unkept >= saveTimeout || d.Candidates[i].For.Urgent
}

// notCarriedOut updates a decision: the evictions of these pods were in progress, and were
// not carried out. code is the candidates' now, and round the decision's if no pod is left.
func (d *Decision) notCarriedOut(uids []string, code, round Code, why string) {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Code == CodeInProgress && slices.Contains(uids, c.Pod.UID) {
			c.Code, c.Reason = code, why
			if d.accepted() == 0 {
				d.Code, d.Reason = round, c.Name+": "+why
			}
		}
	}
}
