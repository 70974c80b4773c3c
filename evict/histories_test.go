package evict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// history is an agent in a world, watched by a slow and obvious judge.
type history struct {
	*world
	t      *testing.T
	memory Memory
	before *plugins.Levels
	in     Input // of this round

	granted  int                             // in this round
	dryGoing bool                            // a dry run was granted in this episode
	wait     map[string]time.Time            // who may not be asked for before
	met      map[string][]map[time.Time]bool // by condition, by level: when it was met
	seen     map[Code]int                    // what decisions and candidates said
}

func TestNoHistoryOfANodeBreaksTheRules(t *testing.T) {
	const histories, rounds = 1000, 40
	seen := map[Code]int{}
	for seed := range uint64(histories) {
		live(t, seed, rounds, seen)
	}
	for _, c := range []Code{
		CodeEvicted, CodeWouldEvict, CodeEnded, CodeOff, CodeSoft, CodeHeld, CodeUnnamed, CodeStale, CodeKubelet, CodeTaint,
		CodeInFlight, CodeSettle, CodeNobody, CodeNotAPod, CodeUnknownPod, CodeFinished, CodeOptedOut, CodeTooSmall,
		CodeBudget, CodeRefused, CodeGone, CodeUnanswered, CodeNext, CodeNotNeeded, pods.DaemonSet,
	} {
		assert.Positive(t, seen[c], "histories in which nothing is %s prove nothing of it", c)
	}
}

// live lets one history happen.
func live(t *testing.T, seed uint64, rounds int, seen map[Code]int) {
	h := &history{world: newWorld(seed), t: t, wait: map[string]time.Time{}, met: map[string][]map[time.Time]bool{}, seen: seen}
	defer func() {
		if t.Failed() {
			t.Logf("history %d, at %s: last %+v, quiet %s", seed, h.now, h.memory.Last, h.memory.Quiet)
		}
	}()
	for range rounds {
		h.round()
		h.pass(h.next())
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
	h.in = Input{Time: h.now, Levels: l, Before: h.before, Config: h.config, Cluster: h.cluster(), Memory: h.memory}
	h.before, h.granted = l, 0
	marks, m := Mark(h.in)
	h.judgeMarks(marks)
	h.in.Memory = m
	d, m := Decide(h.in)
	if !slices.ContainsFunc(l.Verdicts, hard) || !h.config.DryRun {
		h.dryGoing = false
	}
	for range asks {
		i, some := d.Next()
		if !some {
			break
		}
		v := d.Victim(i, h.config.MaxGrace)
		m = m.Choose(&d, v)
		h.judgeAsked(v, d.DryRun)
		killed := h.chance(0.05)
		var a Answer
		if !killed || h.chance(0.7) {
			a = h.evict(v, d.DryRun)
		}
		if killed {
			h.memory = restarted(h.t, m)
			return
		}
		h.judgeAnswer(v, a)
		d.Answered(i, a)
		m = m.Answered(a, h.config.Settle)
	}
	d.Postpone()
	h.judge(d)
	h.memory, _, _ = Follow(h.in, m)
	if h.chance(0.05) {
		h.memory = restarted(h.t, h.memory)
	}
}

// judgeAsked is what must be so whenever a pod is asked for.
func (h *history) judgeAsked(v Victim, dryRun bool) {
	t, c := h.t, h.in.Cluster
	require.Equal(t, h.config.DryRun, dryRun)
	require.Zero(t, h.granted, "a second one in a round")
	require.True(t, h.config.Enabled)
	require.True(t, c.Pods.Synced && c.Pods.StaleSince.IsZero() && c.Node.Unknown == "", "the API server is away")
	require.True(t, dryRun || c.Marked == "", "the taint is not there")
	i := slices.IndexFunc(c.Pods.Pods, func(p pods.Pod) bool { return p.UID == v.UID })
	require.GreaterOrEqual(t, i, 0, "it is not listed")
	p := c.Pods.Pods[i]
	require.Equal(t, p.Name, v.Name)
	require.Empty(t, p.Protections)
	require.False(t, p.OptedOut && p.Namespace == "strict")
	require.Zero(t, p.GoneBy, "it is ending")
	require.Contains(t, []string{"Running", "Pending"}, p.Phase)
	require.Positive(t, v.GraceSeconds)
	require.LessOrEqual(t, v.GraceSeconds, int64(30))
	require.True(t, slices.ContainsFunc(h.in.Levels.Verdicts, func(v plugins.Verdict) bool {
		return v.Level == plugins.Hard && h.calls(v) && h.helped(v, p.UID)
	}), "nothing that presses hard is helped by it")
	require.False(t, h.now.Before(h.wait[v.UID]), "it has to wait")
	require.False(t, dryRun && h.dryGoing, "a dry run counts as done")
	h.judgeOthers(v, dryRun)
}

// judgeOthers: while another one is ending or has just gone, nobody is asked
// for.
func (h *history) judgeOthers(v Victim, dryRun bool) {
	const late, settle = 30 * time.Second, 30 * time.Second
	for _, p := range h.pods {
		writtenOff := p.gone.After(p.GoneBy.Add(late))
		if !p.ours || p.UID == v.UID || dryRun || writtenOff {
			continue
		}
		if p.gone.IsZero() {
			require.False(h.t, h.now.Before(p.GoneBy.Add(late)), "%s is ending until %s", p.UID, p.GoneBy)
		} else {
			require.False(h.t, h.now.Before(p.gone.Add(settle)), "%s has gone at %s", p.UID, p.gone)
		}
	}
	for _, p := range h.in.Cluster.Pods.Pods {
		if p.GoneBy.IsZero() || !h.now.Before(p.GoneBy.Add(late)) {
			continue
		}
		require.False(h.t, slices.ContainsFunc(h.in.Levels.Verdicts, func(v plugins.Verdict) bool {
			return v.Level == plugins.Hard && h.helped(v, p.UID)
		}), "%s is ending until %s", p.UID, p.GoneBy)
	}
}

// calls: a verdict asks for somebody to go.
func (h *history) calls(v plugins.Verdict) bool {
	own := map[plugins.Resource]string{plugins.Memory: "MemoryPressure", plugins.Disk: "DiskPressure"}
	return v.Pressing == plugins.Hard && v.Absent == "" && !slices.Contains(h.in.Cluster.Node.KubeletPressure, own[v.Resource])
}

// helped: a verdict is helped by a pod's going.
func (h *history) helped(v plugins.Verdict, uid string) bool {
	for _, c := range v.Candidates {
		if c.PodUID == uid {
			if v.Plugin == "memory-stall" {
				return c.Relief >= 10 // of 100
			}
			return c.Relief >= 0.2 // of all traffic
		}
	}
	return false
}

func (h *history) judgeAnswer(v Victim, a Answer) {
	switch a.Outcome {
	case Evicted:
		h.granted++
		h.dryGoing = a.DryRun
	case Blocked:
		h.wait[v.UID] = h.now.Add(10 * time.Second)
		if a.RetryAfter > 0 {
			h.wait[v.UID] = h.now.Add(min(a.RetryAfter, 5*time.Minute))
		}
	case Refused:
		h.wait[v.UID] = h.now.Add(5 * time.Minute)
	case Gone, Unanswered:
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
			named[identity(c)] = named[identity(c)] || v.Level > plugins.None
		}
	}
	for _, c := range d.Candidates {
		require.NotEmpty(t, c.Because, c.Name)
		require.True(t, named[identity(c.Candidate)], "%s twice, or by no verdict that is met", c.Name)
		named[identity(c.Candidate)] = false
		h.seen[c.Code]++
		h.judgeCode(d, c)
	}
	for who, missing := range named {
		require.False(t, missing, "nothing is said of %s", who)
	}
	_, going := d.Going()
	require.Equal(t, going, d.Code == CodeEvicted || d.Code == CodeWouldEvict)
	require.Equal(t, h.granted == 1, going)
}

// judgeCode: a candidate's code agrees with the round's.
func (h *history) judgeCode(d Decision, c Considered) {
	answered := map[Outcome]Code{Evicted: CodeEvicted, Blocked: CodeBudget, Refused: CodeRefused, Gone: CodeGone, Unanswered: CodeUnanswered}
	if d.DryRun {
		answered[Evicted] = CodeWouldEvict
	}
	rounds := map[Code][]Code{ // whose candidates may say so
		CodeEvicted: {CodeEvicted}, CodeWouldEvict: {CodeWouldEvict}, CodeGone: {CodeGone}, CodeNext: {CodeNobody},
		CodeNotNeeded: {CodeEvicted, CodeWouldEvict, CodeGone}, CodeUnanswered: {CodeUnanswered},
		CodeSettle: {CodeSettle}, CodeStale: {CodeStale}, CodeTaint: {CodeTaint}, CodeOff: {CodeOff},
	}
	if may, limited := rounds[c.Code]; limited {
		require.Contains(h.t, may, d.Code, "%s is %s: %s", c.Name, c.Code, c.Because)
	}
	require.NotContains(h.t, []Code{"", CodeNobody, CodeEnded, CodeStandalone, CodeState}, c.Code)
	if n := len(c.Answers); n > 0 {
		require.Equal(h.t, answered[c.Answers[n-1].Outcome], c.Code)
		require.Contains(h.t, []Code{CodeEvicted, CodeWouldEvict, CodeNobody, CodeGone, CodeUnanswered}, d.Code)
	} else {
		require.NotContains(h.t, []Code{CodeEvicted, CodeWouldEvict, CodeGone}, c.Code)
	}
}

// judgeMarks: the taints are those of the levels of the last five minutes.
func (h *history) judgeMarks(m Marks) {
	for _, v := range h.in.Levels.Verdicts {
		if h.met[v.Condition] == nil {
			h.met[v.Condition] = []map[time.Time]bool{nil, {}, {}}
		}
		if v.Level > plugins.None {
			h.met[v.Condition][v.Level][h.now] = true
		}
	}
	if h.config.DryRun {
		require.Equal(h.t, Marks{}, m)
		return
	}
	require.Len(h.t, m.Conditions, 2)
	for name, met := range h.met {
		var allowed []corev1.TaintEffect
		hard, maybe := h.within(met[plugins.Hard])
		if maybe {
			allowed = append(allowed, corev1.TaintEffectNoSchedule)
		}
		soft, maybe := h.within(met[plugins.Soft])
		if !hard && maybe {
			allowed = append(allowed, corev1.TaintEffectPreferNoSchedule)
		}
		if !hard && !soft {
			allowed = append(allowed, "")
		}
		require.Contains(h.t, allowed, effects(m)[Prefix+name], fmt.Sprint(name, h.now))
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
