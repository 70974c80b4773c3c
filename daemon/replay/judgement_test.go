package replay

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/labelled"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

const labelledSet = "../../e2e/labelled/testdata"

// ours is the chain of the agent, warm, with what it would have learned of the
// disks; the last snapshot and levels stay to be looked at.
type ours struct {
	chain    *chain
	snapshot *snapshot.Snapshot
	levels   *plugins.Levels
}

// newOurs judges from the first sample on: an agent that runs for long on a
// node that has, so that no warm-up hides a false level.
func newOurs(t *testing.T, l labelled.Label, first *snapshot.Sample) *ours {
	t.Helper()
	store, err := config.Open("", nil)
	require.NoError(t, err)
	c := *store.Current()
	c.Plugins.WarmUp = 0
	c.Plugins.NUMAMemory.Enabled = true // off by default; the other machines have one NUMA node
	c.Plugins.RootfsOveruse.Enabled = true
	ch := newChain(&c, false, nil)
	ch.set = plugins.NewSet(c.Plugins.Inner, learned(l, first))
	ch.set.SkipWarmUp()
	return &ours{chain: ch}
}

// learned is what an agent that had watched the disks for a day would know.
func learned(l labelled.Label, first *snapshot.Sample) plugins.Baselines {
	b := plugins.Baselines{}
	for i := range first.Disks {
		d := &first.Disks[i]
		await, told := l.Usual[d.Name]
		if !told {
			continue
		}
		u := plugins.RequestStats{Requests: 1e6, Seconds: 24 * 3600, TotalSeconds: 1e6 * await.Seconds()}
		of := plugins.Baseline{Device: d.Name, Seen: first.Time}
		for class := range of.Read {
			of.Read[class], of.Write[class] = u, u
		}
		b[plugins.DiskKey(d, first.BootID)] = of
	}
	return b
}

func (o *ours) judge(s *snapshot.Sample) (list []alarm) {
	o.snapshot, o.levels = o.chain.judge(s)
	for _, v := range o.levels.Verdicts {
		if v.Level == plugins.None {
			continue
		}
		a := alarm{v.Resource, "", v.Level}
		if v.Scope != "node" {
			a.scope = v.Scope
		}
		list = append(list, a)
	}
	return list
}

// samples of a recording.
func samples(t *testing.T, file string) []*snapshot.Sample {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var list []*snapshot.Sample
	_, err = probes.Play(f, func(s *snapshot.Sample) error {
		list = append(list, s)
		return nil
	})
	require.NoError(t, err)
	return list
}

// spell is a time in which a detector has one level for a scope.
type spell struct {
	alarm
	labelled.Span
}

// spells of a judge over a recording, a level and all below it.
func spells(list []*snapshot.Sample, j judge) []spell {
	var all []spell
	on := map[alarm]int{}
	for _, s := range list {
		at := s.Time.Sub(list[0].Time).Seconds()
		now := map[alarm]int{}
		for _, a := range j.judge(s) {
			i, was := on[a]
			if !was {
				i = len(all)
				all = append(all, spell{a, labelled.Span{From: at}})
			}
			all[i].To = at
			now[a] = i
		}
		on = now
	}
	return all
}

// besides reports whether a level of another resource is explained by a node that
// stalls: hard pressure on one resource is felt at others.
func besides(l labelled.Label, s spell) bool {
	return slices.ContainsFunc(l.Want, func(w labelled.Want) bool {
		return w.Level == plugins.Hard && s.From >= l.Load.From && s.To <= l.Load.To+leaves
	})
}

// hardLabel wants memory hard, of a load from 10 to 60 s.
func hardLabel(from, to float64) labelled.Label {
	return labelled.Label{
		Load: labelled.Span{From: 10, To: 60},
		Want: []labelled.Want{{Span: labelled.Span{From: from, To: to}, Resource: plugins.Memory, Level: plugins.Hard}},
	}
}

// leaves is how long after the load a level may stay: hysteresis.
const leaves = 40

// said is the result of one detector for one recording.
type said struct {
	spells    []spell
	falseHard []spell
	falseSoft []spell
	missed    []labelled.Want
	near      string // how near it came to what it missed
}

// held compares a detector's levels with the label. A resource that it does not
// judge is never missed.
func held(l labelled.Label, all []spell, judges ...plugins.Resource) said {
	return heldTo(l, all, plugins.Hard, judges...)
}

// heldTo is held of a judge that has no higher level than this.
func heldTo(l labelled.Label, all []spell, most plugins.Level, judges ...plugins.Resource) said {
	r := said{spells: all}
	for _, s := range all {
		switch {
		case asWanted(l, s) || s.level == plugins.Soft && besides(l, s):
		case s.level == plugins.Hard:
			r.falseHard = append(r.falseHard, s)
		default:
			r.falseSoft = append(r.falseSoft, s)
		}
	}
	for _, w := range l.Want {
		there := slices.ContainsFunc(all, func(s spell) bool {
			of := s.resource == w.Resource && (s.scope == "" || s.scope == w.Scope)
			return of && s.level >= min(w.Level, most) && s.From <= w.To && s.To >= w.From
		})
		if !there && !w.AtMost && slices.Contains(judges, w.Resource) {
			r.missed = append(r.missed, w)
		}
	}
	return r
}

func asWanted(l labelled.Label, s spell) bool {
	return slices.ContainsFunc(l.Want, func(w labelled.Want) bool {
		here := w.Resource == s.resource && (s.scope == "" || w.Scope == s.scope) && w.Level >= s.level
		return here && s.From >= l.Load.From && s.To <= l.Load.To+leaves
	})
}

// TestLabelledRecordings compares the levels of real
// recordings with their labels; docs/judgement.md is its table.
func TestLabelledRecordings(t *testing.T) {
	labels, err := labelled.Load(labelledSet)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(labels), 12)
	healthy := 0
	var rows []row
	for _, l := range labels {
		if l.Healthy() {
			healthy++
		}
		t.Run(l.Name, func(t *testing.T) { rows = append(rows, judged(t, l)) })
	}
	assert.GreaterOrEqual(t, 2*healthy, len(labels), "half of the set is healthy")
	if len(rows) == len(labels) { // else only some were asked for
		golden(t, "../../../docs/judgement.md", document(rows))
	}
}

// row is one recording before all judges.
type row struct {
	label   labelled.Label
	seconds float64
	bytes   int64
	by      [4]said // ours, naive PSI, oomd, kubelet

	foreseen foreseen
}

func judged(t *testing.T, l labelled.Label) row {
	t.Helper()
	file := l.Recording(labelledSet)
	info, err := os.Stat(file)
	require.NoError(t, err)
	list := samples(t, file)
	require.NotEmpty(t, list)
	r := row{label: l, bytes: info.Size(), seconds: list[len(list)-1].Time.Sub(list[0].Time).Seconds()}
	assert.Less(t, l.Load.To, r.seconds, "the load ends before the recording")
	o := newOurs(t, l, list[0])
	watched := watch{t: t, label: l, ours: o}
	r.by[0] = held(l, spells(list, &watched), plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.CPU, plugins.Filesystem)
	r.by[1] = heldTo(l, spells(list, &naivePSI{}), plugins.Soft, plugins.Memory, plugins.Disk)
	var d oomd
	var k kubelet
	r.by[2], r.by[3] = held(l, spells(list, &d), plugins.Memory), held(l, spells(list, &k), plugins.Memory)
	r.by[2].near, r.by[3].near = d.near(), k.near()
	assert.Empty(t, r.by[0].falseHard, "a false hard level evicts a pod in vain")
	for _, w := range r.by[0].missed {
		assert.NotEqual(t, plugins.Hard, w.Level, "a hard level is missed: %+v", w)
	}
	watched.check()
	watched.checkThrottled()
	r.foreseen = watched.foreseen
	r.foreseen.check(t, l.Healthy(), slices.ContainsFunc(l.Want, func(w labelled.Want) bool {
		return w.Resource == plugins.Memory && w.Level == plugins.Hard && w.Scope == ""
	}))
	for _, s := range r.by[0].falseSoft {
		t.Logf("false soft: %+v", s)
	}
	return r
}

// watch checks the named culprits during the replay.
type watch struct {
	t     *testing.T
	label labelled.Label
	ours  *ours
	first time.Time
	right map[int]int // of each Want, how often the right one was named first
	wrong map[int]map[string]int
	// unjudged is how often each NotJudged was said, open how often it had to be,
	// and shown how often the culprit and the sufferer of each Want were seen.
	unjudged, open, shown map[int]int
	throttles             map[throttle.Target]throttle.Throttle
	throttled             map[throttle.Target]bool // ever
	foreseen              foreseen
}

// throttle as if each workload might be: which would have been?
func (w *watch) throttle() {
	if w.throttled == nil {
		w.throttled = map[throttle.Target]bool{}
	}
	all := map[string]throttle.Workload{}
	for i := range w.ours.snapshot.Workloads {
		all[w.ours.snapshot.Workloads[i].Cgroup] = throttle.Workload{DryRun: true}
	}
	w.throttles = throttle.Next(w.throttles, throttle.NewInput(w.ours.snapshot, w.ours.levels, all, w.throttles))
	for t, c := range w.throttles {
		w.throttled[t] = w.throttled[t] || c.InForce()
	}
}

// checkThrottled: on a healthy machine no workload is throttled, elsewhere the culprit of
// the label alone.
func (w *watch) checkThrottled() {
	for t := range w.throttled {
		named := slices.ContainsFunc(w.label.Want, func(want labelled.Want) bool {
			of := cmp.Or(want.Culprit, want.Presser)
			return !want.NoCulprit && of != "" && strings.Contains(t.Cgroup+" "+snapshot.PodUID(t.Cgroup), of) && (want.Resource == plugins.Disk && want.Scope == t.Disk || want.Resource == plugins.CPU && t.Resource() == snapshot.SharedCPU || want.Resource == plugins.Memory && t.Memory)
		})
		assert.True(w.t, named, "throttled without being the culprit: %+v", t)
		w.t.Logf("would be throttled: %+v", t)
	}
}

func (w *watch) judge(s *snapshot.Sample) []alarm {
	alarms := w.ours.judge(s)
	if w.right == nil {
		w.right, w.wrong, w.first = map[int]int{}, map[int]map[string]int{}, s.Time
		w.unjudged, w.open, w.shown = map[int]int{}, map[int]int{}, map[int]int{}
	}
	at := s.Time.Sub(w.first).Seconds()
	for i, want := range w.label.Want {
		for _, v := range w.ours.levels.Verdicts {
			of := v.Resource == want.Resource && (want.Scope == "" || want.Scope == v.Scope)
			if of && v.Level > plugins.None && at <= want.To {
				w.names(i, want, v)
				w.shows(i, want)
			}
		}
	}
	w.holds(s, at)
	for _, d := range w.ours.levels.Disks {
		require.Empty(w.t, d.Slow, "no disk of these became slow by itself")
	}
	w.foreseen.add(w.ours.snapshot, w.ours.levels, at)
	w.throttle()
	return alarms
}

// holds counts what must be said not to be judged, and that nothing else lacks what was
// recorded.
func (w *watch) holds(s *snapshot.Sample, at float64) {
	for i, not := range w.label.NotJudged {
		if at >= not.From+windowFills && at <= not.To {
			w.open[i]++
			w.unjudged[i] += w.saysSo(not)
		}
	}
	gap := w.ours.snapshot.WindowSeconds == 0 // there is no rate after one
	from := w.label.Load.From                 // of a pod that has just begun the quota is unknown
	if at >= windowFills && !gap && (at < from || at >= from+windowFills) {
		unjudged := w.ours.levels.Unjudged(w.ours.snapshot)
		require.False(w.t, slices.ContainsFunc(unjudged, func(u plugins.Unjudged) bool {
			return u.Resource == plugins.CPU && u.Why != justStarted
		}), "all that the CPU rule needs was recorded: %+v", unjudged)
	}
}

const (
	// windowFills is how long after the begin of a load it fills the windows.
	windowFills = 15
	justStarted = "the agent, the node or the rule has just started"
)

// shows counts the contention in which a Want's culprit and sufferer are the first.
func (w *watch) shows(i int, want labelled.Want) {
	for _, c := range w.ours.snapshot.Contention {
		if string(c.Resource) == string(want.Resource) && c.Device == want.Scope && c.State == snapshot.ContentionPresent &&
			strings.Contains(c.Culprits[0].PodUID, want.Presser) && strings.Contains(c.Sufferers[0].PodUID, want.Sufferer) {
			w.shown[i]++
		}
	}
}

// saysSo is 1 if the page is no all-clear, names what was not judged, and shows who
// waits all the same.
func (w *watch) saysSo(not labelled.NotJudged) int {
	s := &view.State{Snapshot: w.ours.snapshot, Levels: w.ours.levels}
	names := slices.ContainsFunc(s.Unjudged(), func(u plugins.Unjudged) bool {
		return u.Resource == not.Resource && u.Scope == not.Scope && u.Why != justStarted
	})
	waits := slices.ContainsFunc(view.Contention(s), func(c snapshot.Contention) bool {
		return string(c.Resource) == string(not.Resource) && c.Device == not.Scope && c.State == snapshot.ContentionUnknown &&
			slices.ContainsFunc(c.Sufferers, func(s snapshot.Sufferer) bool {
				return s.PodUID == not.Sufferer && s.Waited >= snapshot.WaitedThreshold
			})
	})
	if names && waits && !s.AllClear() {
		return 1
	}
	return 0
}

func (w *watch) names(i int, want labelled.Want, v plugins.Verdict) {
	if want.NoCulprit {
		require.Empty(w.t, v.Candidates, "no pod may be named: %s", v.Reason)
		return
	}
	if len(v.Candidates) == 0 || v.MetLevel == plugins.None { // no pod is evicted for pressure that has ended
		return
	}
	if first := v.Candidates[0]; strings.Contains(first.Cgroup+first.PodUID+first.Name, want.Culprit) {
		w.right[i]++
	} else {
		if w.wrong[i] == nil {
			w.wrong[i] = map[string]int{}
		}
		w.wrong[i][first.Cgroup]++
	}
}

// check compares the named culprits with the label.
func (w *watch) check() {
	for i, want := range w.label.Want {
		if want.Culprit != "" {
			assert.Positive(w.t, w.right[i], "%s is never named", want.Culprit)
			assert.Empty(w.t, w.wrong[i], "another workload is named first for %s %s", want.Resource, want.Scope)
		}
		if want.Presser != "" {
			assert.Positive(w.t, w.shown[i], "%s is never shown as the culprit of %s", want.Presser, want.Sufferer)
		}
	}
	for i, not := range w.label.NotJudged {
		assert.Greater(w.t, w.open[i], 50)
		assert.Equal(w.t, w.open[i], w.unjudged[i], "an all-clear that was not seen: %s %s", not.Resource, not.Scope)
	}
}

func (s spell) String() string {
	of := string(s.resource)
	if s.scope != "" {
		of += " " + s.scope
	}
	return fmt.Sprintf("%s %s %.0f–%.0f s", of, s.level, s.From, s.To)
}
