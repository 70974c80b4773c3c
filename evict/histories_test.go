package evict

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// history is an agent in a world, watched by a slow and obvious judge.
type history struct {
	*env
	t      *testing.T
	memory State
	before *plugins.Levels
	in     Input // of this part of a round
	uptime time.Duration

	granted  []string                        // UIDs, in this part of the round
	dryGoing map[string]bool                 // verdicts for which a dry run was granted in this episode
	spent    []charge                        // evictions that may have been accepted
	born     time.Duration                   // when the memory began with empty budgets
	ruled    map[string]ruled                // since when a rule is what it is
	kubelets map[string]time.Time            // when the kubelet was seen to evict a pod, by UID
	ending   map[string]time.Time            // when a pod was seen to be deleted, by UID
	marked   map[string]time.Time            // when a pod was seen to be evicted by another, by UID
	moving   map[string]time.Time            // when a pod was chosen that another then began to evict, by UID
	endless  map[string]time.Time            // since when a verdict has named one that ends, or just did, and nobody was chosen
	named    map[string]time.Time            // when it last named one
	wait     map[asked]time.Time             // who may not be asked for before
	met      map[string][]map[time.Time]bool // by condition, by level: when it was met
	taints   map[string]*flapped
	seen     map[Code]int // what decisions and candidates said
}

// charge is an eviction that may have been accepted, and whose.
type charge struct {
	uid, owner string
	at         time.Duration
}

// asked is whose eviction was requested, for real or as a dry run: neither answer holds for
// the other.
type asked struct {
	uid    string
	dryRun bool
}

type ruled struct {
	hash  string
	since time.Duration
}

// flapped is how a taint came and went.
type flapped struct {
	on      bool
	changed time.Time // when it came or went last
	flaps   int
	lifted  bool // changed is when it was lifted for want of a level
}

func TestRandomHistoriesKeepRules(t *testing.T) {
	const histories, rounds = 1500, 40
	seen := map[Code]int{}
	for seed := range uint64(histories) {
		live(t, seed, rounds, seen)
	}
	for _, c := range []Code{
		CodeEvicted, CodeInProgress, CodeWouldEvict, CodeEnded, CodeOff, CodeSoft, CodeLatched, CodeNoCandidate, CodeStale, CodeKubelet, CodeTaint,
		CodeTerminating, CodeCooldown, CodeNone, CodeNotAPod, CodeUnknownPod, CodeFinished, CodeOptedOut, CodeTooSmall,
		CodePDB, CodeRefused, CodeTerminated, CodeUnknownOutcome, CodeNext, CodeNotNeeded, pods.DaemonSet,
		CodeReportOnly, CodeRateLimit, CodeRoundLimit, CodeOverdue,
	} {
		assert.Positive(t, seen[c], "histories in which nothing is %s prove nothing of it", c)
	}
	assert.Positive(t, seen["several in a round"])
	assert.Positive(t, seen["below the floor"])
}

// live lets one history happen.
func live(t *testing.T, seed uint64, rounds int, seen map[Code]int) {
	h := &history{
		env: newWorld(seed), t: t, uptime: up(0), dryGoing: map[string]bool{}, ruled: map[string]ruled{}, kubelets: map[string]time.Time{},
		marked: map[string]time.Time{}, moving: map[string]time.Time{}, ending: map[string]time.Time{}, endless: map[string]time.Time{}, named: map[string]time.Time{},
		wait: map[asked]time.Time{}, met: map[string][]map[time.Time]bool{}, taints: map[string]*flapped{}, seen: seen,
	}
	h.born = h.uptime
	if h.chance(0.7) { // an agent that has run for long
		h.memory, h.born = seasoned(), h.uptime-time.Hour
	}
	defer func() {
		if t.Failed() {
			t.Logf("history %d, at %s: victims %+v, quiet %s", seed, h.now, h.memory.Victims, h.memory.CooldownUntil)
		}
	}()
	for range rounds {
		h.round()
		seconds := h.next()
		h.pass(seconds)
		h.uptime += time.Duration(seconds) * time.Second
	}
}

// next is how long until the next round.
func (h *history) next() int {
	if h.chance(0.05) {
		return 60 + h.random.IntN(300)
	}
	return 1 + h.random.IntN(8)
}

// round is one of the agent, which may be killed in it, or restart after it.
func (h *history) round() {
	l := &plugins.Levels{Time: h.now, Verdicts: h.verdicts()}
	h.in = Input{
		Time: h.now, Uptime: h.uptime, Boot: "boot", Rules: h.rules, Levels: l, Before: h.before,
		Config: h.config, Cluster: h.cluster(), State: h.memory,
	}
	whole := h.in
	h.before = l
	h.judgeClock()
	marks, m := Mark(h.in)
	h.judgeMarks(marks)
	for _, part := range Split(h.in) {
		h.in, h.granted = part, nil
		h.in.State = m
		var killed bool
		if m, killed = h.part(); killed {
			h.memory = restarted(h.t, m)
			return
		}
	}
	h.memory, _ = Follow(whole, m)
	if h.chance(0.05) {
		h.memory = restarted(h.t, h.memory)
	}
}

// judgeMarked: no reason says that the Node is marked where it is not.
func (h *history) judgeMarked(d Decision) {
	marks, _ := Mark(h.in)
	for _, c := range append(d.Candidates, Considered{Reason: d.Reason}) {
		require.False(h.t, strings.Contains(c.Reason, "is marked") && !marksMet(marks), c.Reason)
	}
}

// part of a round, in which the agent may be killed.
func (h *history) part() (m State, killed bool) {
	d, m := Decide(h.in)
	h.judgeMarked(d)
	if h.in.besideOthers() {
		require.Equal(h.t, h.in.State.CooldownUntil, m.CooldownUntil, "a dry run of some plugins delays the others")
	}
	for _, v := range h.in.Levels.Verdicts {
		if v.Level < plugins.Hard || !h.in.Config.DryRun {
			delete(h.dryGoing, verdictKey(v))
		}
	}
	for range asks + h.config.Limits.PerRound - 1 {
		i, some := d.Next()
		if !some {
			break
		}
		var v Victim
		m, v = m.RecordChoice(h.in, &d, i)
		h.judgeAsked(v, d.DryRun)
		killed := h.chance(0.05)
		var a Answer
		if !killed || h.chance(0.7) {
			a = h.evict(v, d.DryRun)
		}
		if killed {
			return m, true
		}
		h.judgeAnswer(v, a, m.last().Time)
		d.RecordAnswer(i, a)
		m = m.RecordAnswer(a, h.in.Config)
		d.More(h.in, m)
	}
	d.Postpone()
	h.judge(d)
	h.endRound(d.DryRun)
	return m, false
}

// endRound keeps which scopes are being relieved, and how.
func (h *history) endRound(dry bool) {
	for _, uid := range h.granted {
		for _, scope := range h.naming(uid) {
			h.dryGoing[scope] = dry
			if !dry {
				delete(h.endless, scope) // not before the round is over
			}
		}
	}
}

// judgeClock keeps what the rules say of time.
func (h *history) judgeClock() {
	for _, name := range []string{"memory-stall", "disk-contention"} {
		if r, known := h.ruled[name]; !known || r.hash != h.rules[name].Hash {
			h.ruled[name] = ruled{h.rules[name].Hash, h.uptime}
		}
	}
	c := h.in.Cluster
	if !c.Pods.Synced || !c.Pods.StaleSince.IsZero() || c.Node.ReadError != "" {
		return
	}
	for _, p := range c.Pods.Pods {
		if _, known := h.kubelets[p.UID]; !known && p.StatusReason == "Evicted" {
			h.kubelets[p.UID] = h.now
		}
	}
	h.judgeEnds(c.Pods.Pods)
}

// judgeEnds keeps which pods are being deleted, and for which verdicts.
func (h *history) judgeEnds(listed []pods.Pod) {
	for _, p := range listed {
		if _, known := h.ending[p.UID]; !known && !p.TerminatesBy.IsZero() {
			h.ending[p.UID] = h.now
		}
		if _, known := h.marked[p.UID]; !known && p.EvictedElsewhere != "" {
			h.marked[p.UID] = h.now
		}
	}
	for _, v := range h.in.Levels.Verdicts {
		names := slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool {
			return slices.ContainsFunc([]map[string]time.Time{h.ending, h.marked, h.moving}, func(m map[string]time.Time) bool { _, is := m[c.PodUID]; return is })
		})
		scope := verdictKey(v)
		_, known := h.endless[scope]
		if names {
			h.named[scope] = h.now
		}
		switch settled := h.now.Sub(h.named[scope]) >= 30*time.Second; {
		case names && !known:
			h.endless[scope] = h.now
		case v.Level == plugins.None, v.MetLevel > plugins.None && settled:
			delete(h.endless, scope)
		}
	}
}

// judgeAsked is what must be so whenever a pod is asked for.
func (h *history) judgeAsked(v Victim, dryRun bool) {
	t, c := h.t, h.in.Cluster
	require.Equal(t, h.in.Config.DryRun, dryRun)
	require.Less(t, len(h.granted), h.config.Limits.PerRound, "more than the limit of a round")
	require.True(t, h.config.Enabled)
	require.True(t, c.Pods.Synced && c.Pods.StaleSince.IsZero() && c.Node.ReadError == "", "the API server is away")
	require.True(t, dryRun || c.Unmarked == "", "the taint is not there")
	i := slices.IndexFunc(c.Pods.Pods, func(p pods.Pod) bool { return p.UID == v.UID })
	require.GreaterOrEqual(t, i, 0, "it is not listed")
	p := c.Pods.Pods[i]
	require.Equal(t, p.Name, v.Name)
	require.Empty(t, p.Protections)
	require.False(t, p.OptedOut != "" && p.Namespace == "strict")
	require.False(t, h.spared(p, v), "it is ending")
	if since, moves := h.moving[p.UID]; moves && p.TerminatesBy.IsZero() {
		require.False(t, h.now.Before(since.Add(inProgress+5*time.Minute)), "its eviction is in progress, or counts as refused")
	}
	require.True(t, p.TerminatesBy.IsZero() || h.now.Before(p.TerminatesBy.Add(30*time.Second)), "it ends by itself, or never")
	require.False(t, slices.ContainsFunc(h.in.State.Victims, func(c Chosen) bool {
		return c.UID == v.UID && (c.Outcome == Evicted || c.Outcome == InProgress) && h.now.Sub(c.Time) < 30*time.Second
	}), "it was evicted")
	require.Contains(t, []string{"Running", "Pending"}, p.Phase)
	require.Positive(t, v.GraceSeconds)
	require.LessOrEqual(t, v.GraceSeconds, int64(30))
	require.True(t, slices.ContainsFunc(h.in.Levels.Verdicts, func(w plugins.Verdict) bool {
		return h.calls(w) && h.helped(w, p.UID) && h.misses(w, v.UID) && !h.settles(w, v.UID) && !(dryRun && h.dryGoing[verdictKey(w)])
	}), "nothing that presses hard still needs it")
	require.False(t, h.now.Before(h.wait[asked{v.UID, dryRun}]), "it has to wait")
	for _, o := range h.pods {
		if o.UID == v.UID {
			o.scopes = h.naming(v.UID)
		}
	}
	if !dryRun {
		h.judgeBudgets(p)
	}
}

// judgeBudgets counts all evictions that may have been accepted, in every time
// that ends now.
func (h *history) judgeBudgets(p pods.Pod) {
	h.spent = slices.DeleteFunc(h.spent, func(c charge) bool { return c.uid == p.UID })
	h.spent = append(h.spent, charge{p.UID, p.Namespace + "/" + p.Owner.Name[:strings.Index(p.Owner.Name, "-")], h.uptime})
	owner := h.spent[len(h.spent)-1].owner
	limits := h.config.Limits
	for from, first := range h.spent {
		all, theirs := 0, 0
		for _, c := range h.spent[from:] {
			all++
			if c.owner == owner {
				theirs++
			}
		}
		minutes := (h.uptime - first.at).Minutes()
		require.LessOrEqual(h.t, float64(all), float64(limits.PerMinute)*(1+minutes)+1e-6, "the node's budget")
		require.LessOrEqual(h.t, float64(theirs), float64(limits.PerOwnerHour)*(1+minutes/60)+1e-6, "the owner's budget")
	}
	if lived := h.uptime - h.born; lived < time.Hour { // it began with nothing
		require.LessOrEqual(h.t, float64(len(h.spent)), float64(limits.PerMinute)*lived.Minutes()+1e-6, "budgets that were empty at first")
	}
}

// misses: what is ending, or was granted in this round, is not all that a
// verdict misses.
func (h *history) misses(v plugins.Verdict, but string) bool {
	sum, one := 0.0, false
	add := func(uid string) {
		for _, c := range v.Candidates {
			if c.PodUID == uid {
				sum, one = sum+c.Relief, one || h.helped(v, uid)
			}
		}
	}
	for _, p := range h.in.Cluster.Pods.Pods {
		if p.UID != but && h.leaves(p) && h.inUrgentWait(v, p) && !slices.Contains(h.granted, p.UID) && !h.outlasted(v) {
			add(p.UID)
		}
	}
	for _, uid := range h.granted {
		add(uid)
	}
	if v.Plugin == "memory-stall" {
		return sum < h.target
	}
	return !one
}

// ends: a pod is being deleted, and has been for no longer than any may take.
func (h *history) ends(p pods.Pod) bool {
	const grace, late = 30 * time.Second, 30 * time.Second
	seen, known := h.ending[p.UID]
	return known && !p.TerminatesBy.IsZero() && h.now.Before(p.TerminatesBy.Add(late)) && h.now.Before(seen.Add(grace+late))
}

// inProgress is how long an eviction by another counts.
const inProgress = 2 * time.Minute

// leaves: a pod is being deleted, or another is evicting it, and neither has been so for
// longer than it may be.
func (h *history) leaves(p pods.Pod) bool {
	if !p.TerminatesBy.IsZero() {
		return h.ends(p)
	}
	since, marked := h.marked[p.UID]
	chosen, moves := h.moving[p.UID]
	return marked && p.EvictedElsewhere != "" && h.now.Before(since.Add(inProgress)) || moves && h.now.Before(chosen.Add(inProgress))
}

// spared: a pod leaves, and this eviction does not hasten that.
func (h *history) spared(p pods.Pod, v Victim) bool { return h.leaves(p) && !h.hastened(p, v) }

// hastened: memory below its floor has waited for a pod that others end, and it ends earlier
// by this eviction. One that we asked another to end is left to that.
func (h *history) hastened(p pods.Pod, v Victim) bool {
	if chosen, moves := h.moving[p.UID]; moves && h.now.Before(chosen.Add(inProgress)) && p.TerminatesBy.IsZero() {
		return false
	}
	earlier := p.TerminatesBy.IsZero() || p.TerminatesBy.After(h.now.Add(time.Duration(v.GraceSeconds)*time.Second))
	return earlier && slices.ContainsFunc(h.in.Levels.Verdicts, func(w plugins.Verdict) bool {
		return w.Urgent && h.calls(w) && h.helped(w, p.UID) && !h.inUrgentWait(w, p)
	})
}

// urgentWait is how long memory below its floor waits for a pod that leaves.
const urgentWait = 5 * time.Second

// inUrgentWait: memory below its floor has seen a pod leave just now.
func (h *history) inUrgentWait(v plugins.Verdict, p pods.Pod) bool {
	seen := func(m map[string]time.Time) bool {
		since, is := m[p.UID]
		return is && h.now.Before(since.Add(urgentWait))
	}
	return !v.Urgent || seen(h.ending) || seen(h.marked) || seen(h.moving)
}

// outlasted: for a minute some pod or other has been ending that a verdict names,
// with gaps shorter than the settle time, and none was chosen for it; for two where another
// evicts one of them.
func (h *history) outlasted(v plugins.Verdict) bool {
	since, known := h.endless[verdictKey(v)]
	bound := time.Minute
	for _, p := range h.in.Cluster.Pods.Pods {
		names := slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.PodUID == p.UID })
		if names && p.TerminatesBy.IsZero() && h.leaves(p) {
			bound = inProgress
		}
	}
	if v.Urgent {
		bound = urgentWait
	}
	return known && h.now.Sub(since) >= bound
}

// settles: one that went for a verdict was evicted, or has gone, just now. Memory below
// its floor has no cooldown.
func (h *history) settles(v plugins.Verdict, but string) bool {
	const settle = 30 * time.Second
	if v.Urgent {
		return false
	}
	return slices.ContainsFunc(h.pods, func(p *living) bool {
		if p.ours.IsZero() || p.UID == but || slices.Contains(h.granted, p.UID) || !slices.Contains(p.scopes, verdictKey(v)) || h.in.Config.DryRun {
			return false
		}
		accepted := h.now.Before(p.ours.Add(settle)) && slices.ContainsFunc(h.memory.Victims, func(c Chosen) bool {
			return c.UID == p.UID && (c.Outcome == Evicted || c.Outcome == InProgress) // it is known
		})
		ended := p.gone
		if !p.failed.IsZero() {
			ended = p.failed
		}
		return accepted || !ended.IsZero() && h.now.Before(ended.Add(settle))
	})
}

// naming are the verdicts that name a pod now.
func (h *history) naming(uid string) []string {
	var scopes []string
	for _, v := range h.in.Levels.Verdicts {
		if slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.PodUID == uid }) {
			scopes = append(scopes, verdictKey(v))
		}
	}
	return scopes
}

// calls: a verdict asks for somebody to go.
func (h *history) calls(v plugins.Verdict) bool {
	own := map[plugins.Resource]string{plugins.Memory: "MemoryPressure", plugins.Disk: "DiskPressure"}
	words := map[plugins.Resource]string{plugins.Memory: "memory", plugins.Disk: "ephemeral-storage"}
	for uid, at := range h.kubelets {
		i := slices.IndexFunc(h.pods, func(p *living) bool { return p.UID == uid })
		if h.now.Before(at.Add(time.Minute)) && strings.Contains(h.pods[i].StatusMessage, "resource: "+words[v.Resource]) {
			return false
		}
	}
	r := h.ruled[v.Plugin]
	return v.Level == plugins.Hard && v.MetLevel == plugins.Hard && v.Absent == "" &&
		!slices.Contains(h.in.Cluster.Node.KubeletPressure, own[v.Resource]) &&
		h.uptime-r.since >= max(h.config.ReportOnly, h.rules[v.Plugin].Window)
}

// helped: a verdict is helped by a pod's going.
func (h *history) helped(v plugins.Verdict, uid string) bool {
	for _, c := range v.Candidates {
		if c.PodUID == uid {
			if v.Plugin == "memory-stall" {
				return c.Relief >= min(h.target, 20) // of 100
			}
			return c.Relief >= 0.2 // of all traffic
		}
	}
	return false
}

// undisturbed: memory is below its floor and needs this pod, and no pod that it names
// leaves or was evicted.
func (h *history) undisturbed(c Considered) bool {
	return slices.ContainsFunc(h.in.Levels.Verdicts, func(v plugins.Verdict) bool {
		leaves := slices.ContainsFunc(v.Candidates, func(o plugins.Candidate) bool {
			return slices.ContainsFunc([]map[string]time.Time{h.ending, h.marked, h.moving}, func(m map[string]time.Time) bool { _, is := m[o.PodUID]; return is })
		})
		evicted := slices.ContainsFunc(h.in.State.Victims, func(l Chosen) bool { return l.Outcome == Evicted || l.Outcome == InProgress })
		return v.Urgent && h.calls(v) && h.helped(v, c.PodUID) && !leaves && !evicted
	})
}

func (h *history) judgeAnswer(v Victim, a Answer, chosen time.Time) {
	switch a.Outcome {
	case Evicted, InProgress:
		if a.Outcome == InProgress && !a.DryRun {
			h.moving[v.UID] = chosen
		}
		h.granted = append(h.granted, v.UID)
	case Blocked:
		h.wait[asked{v.UID, a.DryRun}] = h.now.Add(10 * time.Second)
		if a.RetryAfter > 0 {
			h.wait[asked{v.UID, a.DryRun}] = h.now.Add(min(a.RetryAfter, 5*time.Minute))
		}
	case Refused:
		h.wait[asked{v.UID, a.DryRun}] = h.now.Add(5 * time.Minute)
	case NotFound, UnknownOutcome:
	}
	if a.Outcome == Blocked || a.Outcome == Refused || a.Outcome == NotFound {
		h.spent = slices.DeleteFunc(h.spent, func(c charge) bool { return c.uid == v.UID })
	}
}

// judge is what must be so of every decision.
func (h *history) judge(d Decision) {
	t := h.t
	require.NotEmpty(t, d.Reason)
	h.seen[d.Code]++
	named := map[string]bool{}
	for _, v := range h.in.Levels.Verdicts {
		for _, c := range v.Candidates {
			named[workloadKey(c)] = named[workloadKey(c)] || v.Level > plugins.None
		}
	}
	for _, c := range d.Candidates {
		require.NotEmpty(t, c.Reason, c.Name)
		require.True(t, named[workloadKey(c.Candidate)], "%s twice, or by no verdict that is met", c.Name)
		named[workloadKey(c.Candidate)] = false
		h.seen[c.Code]++
		h.judgeCode(d, c)
	}
	for who, missing := range named {
		require.False(t, missing, "nothing is said of %s", who)
	}
	_, going := d.FirstEvicted()
	require.Equal(t, going, d.Code == CodeEvicted || d.Code == CodeInProgress || d.Code == CodeWouldEvict)
	require.Len(t, d.Evicted(), len(h.granted))
	if len(h.granted) > 1 {
		h.seen["several in a round"]++
	}
}

// judgeCode: a candidate's code agrees with the round's.
func (h *history) judgeCode(d Decision, c Considered) {
	answered := map[Outcome]Code{Evicted: CodeEvicted, InProgress: CodeInProgress, Blocked: CodePDB, Refused: CodeRefused, NotFound: CodeTerminated, UnknownOutcome: CodeUnknownOutcome}
	if d.DryRun {
		answered[Evicted], answered[InProgress] = CodeWouldEvict, CodeWouldEvict
	}
	rounds := map[Code][]Code{ // whose candidates may say so
		CodeEvicted: {CodeEvicted, CodeInProgress}, CodeInProgress: {CodeInProgress, CodeEvicted}, CodeWouldEvict: {CodeWouldEvict},
		CodeTerminated: {CodeTerminated, CodeEvicted, CodeInProgress, CodeWouldEvict}, CodeNext: {CodeNone, CodeEvicted, CodeInProgress, CodeWouldEvict},
		CodeNotNeeded: {CodeEvicted, CodeInProgress, CodeWouldEvict, CodeTerminated}, CodeUnknownOutcome: {CodeUnknownOutcome, CodeEvicted, CodeInProgress, CodeWouldEvict},
		CodeStale: {CodeStale}, CodeTaint: {CodeTaint}, CodeOff: {CodeOff}, CodeRoundLimit: {CodeEvicted, CodeInProgress, CodeWouldEvict},
	}
	if may, limited := rounds[c.Code]; limited {
		require.Contains(h.t, may, d.Code, "%s is %s: %s", c.Name, c.Code, c.Reason)
	}
	require.NotContains(h.t, []Code{"", CodeNone, CodeEnded, CodeStandalone, CodeState}, c.Code)
	if h.undisturbed(c) {
		h.seen["below the floor"]++
		require.NotEqual(h.t, CodeCooldown, c.Code, c.Reason)
		waits := strings.HasPrefix(c.Reason, "waiting: the outcome")
		pending := h.in.State.pending(h.now)
		require.False(h.t, waits && c.PodUID != pending.UID && h.now.Sub(pending.Time) >= urgentWait, c.Reason)
	}
	if n := len(c.Answers); n == 0 && strings.HasPrefix(c.Reason, "not requested again until") {
		_, was := h.wait[asked{c.PodUID, d.DryRun}]
		given := strings.Contains(c.Reason, "no answer for") || strings.Contains(c.Reason, "was in progress")
		require.True(h.t, was || given && !d.DryRun, "held back by an answer of the other kind: %s", c.Reason)
	}
	if n := len(c.Answers); n > 0 {
		require.Equal(h.t, answered[c.Answers[n-1].Outcome], c.Code)
		require.Contains(h.t, []Code{CodeEvicted, CodeInProgress, CodeWouldEvict, CodeNone, CodeTerminated, CodeUnknownOutcome}, d.Code)
	} else {
		require.NotContains(h.t, []Code{CodeEvicted, CodeInProgress, CodeWouldEvict, CodeTerminated}, c.Code)
	}
}

// judgeMarks: the taints are those of the levels of the last five minutes, but
// that one which came back stays on, and off at soft, for longer.
func (h *history) judgeMarks(m Marks) {
	dry := func(v plugins.Verdict) bool { return h.config.DryRun || IsDryRun(h.config.DryRunPlugins, v.Plugin) }
	wanted := effects(m)
	for _, v := range h.in.Levels.Verdicts {
		if h.met[v.Condition] == nil {
			h.met[v.Condition], h.taints[v.Condition] = []map[time.Time]bool{nil, {}, {}}, &flapped{}
		}
		if dry(v) { // what was before it ends is forgotten
			h.met[v.Condition] = []map[time.Time]bool{nil, {}, {}}
			*h.taints[v.Condition] = flapped{}
			require.NotContains(h.t, wanted, names.Prefix+v.Condition)
			continue
		}
		if v.Level > plugins.None {
			h.met[v.Condition][v.Level][h.now] = true
		}
		h.judgeTaint(v.Condition, wanted[names.Prefix+v.Condition])
	}
}

// judgeTaint is a slow look at one.
func (h *history) judgeTaint(name string, effect corev1.TaintEffect) {
	was := h.taints[name]
	hard, maybeHard := h.within(h.met[name][plugins.Hard])
	soft, maybeSoft := h.within(h.met[name][plugins.Soft])
	least := min(time.Hour, 5*time.Minute<<was.flaps)
	on := effect != ""
	switch {
	case on && !was.on:
		require.True(h.t, maybeHard || maybeSoft, "%s comes for nothing", name)
		early := was.lifted && h.now.Sub(was.changed) < least
		require.True(h.t, !early || maybeHard, "%s is back at soft after %s", name, h.now.Sub(was.changed))
		flaps := 0
		if was.lifted && h.now.Sub(was.changed) < time.Hour {
			flaps = was.flaps + 1
		}
		*was = flapped{on: true, changed: h.now, flaps: flaps}
	case !on && was.on:
		require.False(h.t, hard || soft, "%s goes too early", name)
		require.GreaterOrEqual(h.t, h.now.Sub(was.changed), least, "%s goes too early", name)
		*was = flapped{changed: h.now, flaps: was.flaps, lifted: true}
	case on:
		require.True(h.t, maybeHard || maybeSoft || h.now.Sub(was.changed) < least, "%s stays for nothing", name)
	default:
		require.False(h.t, hard, "%s does not come at hard", name)
		require.True(h.t, !soft || was.lifted && h.now.Sub(was.changed) < least, "%s does not come", name)
	}
	h.judgeEffect(effect, hard, soft && !maybeHard)
}

// judgeEffect: a taint that is on is that of its level.
func (h *history) judgeEffect(effect corev1.TaintEffect, hard, soft bool) {
	if hard {
		require.Equal(h.t, corev1.TaintEffectNoSchedule, effect)
	}
	if soft && effect != "" {
		require.Equal(h.t, corev1.TaintEffectPreferNoSchedule, effect)
	}
}

// within: some time is surely, or maybe, within the transition period; what is
// remembered may be 15 s old.
func (h *history) within(times map[time.Time]bool) (surely, maybe bool) {
	for t := range times {
		surely = surely || h.now.Sub(t) < 5*time.Minute-15*time.Second
		maybe = maybe || h.now.Sub(t) < 5*time.Minute
	}
	return surely, maybe
}
