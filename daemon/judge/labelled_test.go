package judge

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

const labelledSet = "../../e2e/labelled/testdata"

var update = flag.Bool("update", false, "update the generated documents")

// defaults is the configuration that the labelled set is judged with.
func defaults(t *testing.T) *config.Agent {
	t.Helper()
	c, err := config.OpenAgent("", nil)
	require.NoError(t, err)
	return Judged(c)
}

// generated compares a document with what it is generated from, or writes it.
func generated(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
	}
	assert.Equal(t, read(t, path), got)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// tuned are the recordings that rules were made with: of these our rules must be right.
// Of those that are held out only figures are made: a test that fails by one would have the
// rules made to fit it.
func tuned(t *testing.T) []entry {
	t.Helper()
	list, err := entries(labelledSet)
	require.NoError(t, err)
	return slices.DeleteFunc(list, func(e entry) bool { return e.label.HeldOut || e.label.Hole(recordingOf(t, e).samples) != "" })
}

// TestLabelledRecordings compares our levels of real recordings with their labels,
// sample by sample.
func TestLabelledRecordings(t *testing.T) {
	list := tuned(t)
	assert.GreaterOrEqual(t, len(list), 12)
	c := defaults(t)
	healthy, throttled := 0, map[snapshot.SharedResource]bool{}
	for _, e := range list {
		if e.label.Healthy() {
			healthy++
		}
		t.Run(e.label.Name, func(t *testing.T) { checkOurs(t, c, e, throttled) })
	}
	assert.GreaterOrEqual(t, 2*healthy, len(list), "half of the set is healthy")
	assert.Subset(t, slices.Collect(maps.Keys(throttled)), []snapshot.SharedResource{snapshot.SharedDisk, snapshot.SharedCPU, snapshot.SharedMemory}, "some culprit of each would be throttled")
}

// checkOurs checks what our rules say of one recording: levels, and at each sample the
// named workloads, what is not judged, and which workloads would be throttled, whose
// resources it adds.
func checkOurs(t *testing.T, c *config.Agent, e entry, throttled map[snapshot.SharedResource]bool) {
	t.Helper()
	what := recordingOf(t, e)
	rule := Plimsoll(c)
	watched := watch{t: t, label: e.label, ours: newOurs(c, e.label, what.samples)}
	spells, lacks := judgement.Play(what.samples, &watched)
	require.Empty(t, lacks)
	o := judgement.Compare(e.label, rule, spells)
	assert.Empty(t, o.FalseHard, "a false hard level evicts a pod in vain")
	for _, d := range o.Expected {
		assert.False(t, d.Want.Level == plugins.Hard && !d.Met, "a hard level is missed: %+v", d.Want)
	}
	watched.check()
	watched.checkThrottled(throttled)
	for _, s := range o.FalseSoft {
		t.Logf("false soft: %+v", s)
	}
}

// watch checks the named culprits during the replay.
type watch struct {
	t     *testing.T
	label judgement.Label
	ours  *ours
	first time.Time
	right map[int]int // of each Want, how often the right one was named first
	wrong map[int]map[string]int
	// unjudged is how often each NotJudged was said, open how often it had to be,
	// and shown how often the culprit and the sufferer of each Want were seen.
	unjudged, open, shown map[int]int
	throttles             map[throttle.Target]throttle.Throttle
	throttled             map[throttle.Target]bool // ever
}

// throttle as if each workload might be, for the CPUs too: which would have been?
func (w *watch) throttle() {
	if w.throttled == nil {
		w.throttled = map[throttle.Target]bool{}
	}
	all := map[string]throttle.Workload{}
	for i := range w.ours.snapshot.Workloads {
		all[w.ours.snapshot.Workloads[i].Cgroup] = throttle.Workload{DryRun: true}
	}
	levels := plugins.Levels{Time: w.ours.levels.Time, Verdicts: slices.Clone(w.ours.levels.Verdicts), Disks: w.ours.levels.Disks}
	for i := range levels.Verdicts { // as with cpuContention.mark
		if levels.Verdicts[i].Resource == plugins.CPU {
			levels.Verdicts[i].ReportOnly = false
		}
	}
	w.throttles = throttle.Next(w.throttles, throttle.NewInput(w.ours.snapshot, &levels, all, w.throttles))
	for t, c := range w.throttles {
		w.throttled[t] = w.throttled[t] || c.InForce()
	}
}

// checkThrottled: on a healthy machine no workload is throttled, elsewhere the culprit of
// the label alone; of the CPUs, for which the rule names none, the one that presses.
func (w *watch) checkThrottled(resources map[snapshot.SharedResource]bool) {
	for t, inForce := range w.throttled {
		if inForce {
			resources[t.Resource()] = true
		}
		named := slices.ContainsFunc(w.label.Want, func(want judgement.Want) bool {
			of := cmp.Or(want.Culprit, want.Presser)
			return (!want.NoCulprit || want.Resource == plugins.CPU) && of != "" && strings.Contains(t.Cgroup+" "+snapshot.PodUID(t.Cgroup), of) && (want.Resource == plugins.Disk && want.Scope == t.Disk || want.Resource == plugins.CPU && t.Resource() == snapshot.SharedCPU || want.Resource == plugins.Memory && t.Memory)
		})
		assert.True(w.t, named, "throttled without being the culprit: %+v", t)
		w.t.Logf("would be throttled: %+v", t)
	}
}

func (w *watch) Judge(s *snapshot.Sample) (answers []judgement.Answer, lacks string) {
	if answers, lacks = w.ours.Judge(s); lacks != "" {
		return answers, lacks
	}
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
	w.throttle()
	return answers, lacks
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
	_, seen := w.ours.snapshot.Over(10 * time.Second) // not just after a gap
	from := w.label.Load.From                         // of a pod that has just begun the quota is unknown
	if at >= windowFills && seen && (at < from || at >= from+windowFills) {
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
func (w *watch) shows(i int, want judgement.Want) {
	for _, c := range w.ours.snapshot.Contention {
		if string(c.Resource) == string(want.Resource) && c.Device == want.Scope && c.State == snapshot.ContentionPresent &&
			strings.Contains(c.Culprits[0].PodUID, want.Presser) && strings.Contains(c.Sufferers[0].PodUID, want.Sufferer) {
			w.shown[i]++
		}
	}
}

// saysSo is 1 if the page is no all-clear, names what was not judged, and shows who
// waits all the same.
func (w *watch) saysSo(not judgement.NotJudged) int {
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

func (w *watch) names(i int, want judgement.Want, v plugins.Verdict) {
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
