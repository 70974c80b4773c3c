package explain

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

var update = flag.Bool("update", false, "write the golden texts anew")

const (
	evicted = "shop/cart-66b8d-mm4qz"
	blocked = "report-28f7c-x2k9p"
)

// now is a little after the newest of the made-up decisions.
func now(list []evict.Decision) time.Time { return list[0].Time.Add(90 * time.Second) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
}

func newest(t *testing.T, list []evict.Decision) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteNewest(&b, list, agentOf(list), now(append(list, evict.Decision{}))))
	return b.String()
}

// agentOf is the state of an agent that stores the decisions.
func agentOf(list []evict.Decision) *view.State {
	if len(list) > 0 && list[0].DryRun {
		return scenes.DryRun()
	}
	return scenes.Evicted()
}

// about is what is said of a name.
func about(t *testing.T, list []evict.Decision, name string) string {
	t.Helper()
	found, err := About(list, name)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, WriteAbout(&b, found, name, agentOf(list), now(list)))
	return b.String()
}

func TestExplainGolden(t *testing.T) {
	list := scenes.Decisions(false)
	golden(t, "newest", newest(t, list))
	golden(t, "evicted", about(t, list, evicted))
	golden(t, "blocked", about(t, list, blocked))
	golden(t, "decision", about(t, list, list[1].ID))
	golden(t, "dry_run", newest(t, scenes.Decisions(true)))
	hurt := scenes.ContendedDecisions(scenes.Contended())
	golden(t, "contended", newest(t, hurt)+"\n"+about(t, hurt, hurt[0].ID))
}

func TestExplainEvictedFitsScreen(t *testing.T) {
	text := about(t, scenes.Decisions(false), evicted)
	for _, want := range []string{
		evicted + " evicted", "memory-stall hard since", "working set 3.0 GiB", "Burstable", "priority 100", "ReplicaSet cart-66b8d",
		"rank        3 of 4", "evicted (201)", "14 s after the decision", "hard → none, 41.0 % (threshold >= 25.0 %) → <0.1 % (threshold >= 10.0 %)",
	} {
		assert.Contains(t, text, want)
	}
	assert.LessOrEqual(t, strings.Count(text, "\n"), 24)
}

func TestExplainBlockedQuotesAPIServer(t *testing.T) {
	text := about(t, scenes.Decisions(false), blocked)
	assert.Contains(t, text, "skipped: pdb")
	assert.Contains(t, text, "The disruption budget report needs 1 healthy pods and has 1 currently")
	assert.Contains(t, text, "blocked (429)")
	assert.Contains(t, text, "decision    evicted: "+evicted, "and who went instead")
}

func TestExplainFindsPodByEachName(t *testing.T) {
	list := scenes.Decisions(false)
	for _, name := range []string{
		evicted, "cart-66b8d-mm4qz", "41aa9e07-0000-4000-8000-00000000000a", "/kubepods.slice/pod-a.slice",
	} {
		found, err := About(list, name)
		require.NoError(t, err, name)
		assert.Equal(t, []string{list[1].ID, list[2].ID}, []string{found[0].ID, found[1].ID}, name)
		assert.Contains(t, about(t, list, name), evicted+" evicted", name)
	}
	found, err := About(list, list[0].ID)
	require.NoError(t, err)
	assert.Len(t, found, 1, "an ID is of one decision")
}

func TestExplainUnknownPodListsNames(t *testing.T) {
	_, err := About(scenes.Decisions(false), "shop/nobody")
	require.ErrorIs(t, err, ErrNotInDecisions)
	assert.Contains(t, err.Error(), `"shop/nobody"`)
	assert.Contains(t, err.Error(), "batch/"+blocked+", logging/collector-9xw2l, "+evicted+", cache.service")
	assert.NotContains(t, err.Error(), "\n")

	_, err = About(nil, "x")
	require.ErrorIs(t, err, ErrNotInDecisions)
	assert.Contains(t, err.Error(), "there is no decision yet")
	_, err = About([]evict.Decision{{}}, "x")
	assert.ErrorContains(t, err, "none of 1 has a candidate")

	var crowd evict.Decision
	for i := range 40 {
		crowd.Candidates = append(crowd.Candidates, evict.Considered{Candidate: plugins.Candidate{Name: fmt.Sprintf("web/p%02d", i)}})
	}
	_, err = About([]evict.Decision{crowd}, "x")
	assert.ErrorContains(t, err, "web/p11 and 28 more")
}

func TestExplainPartialNameNotFound(t *testing.T) {
	for _, name := range []string{"cart", "shop", "shop/", ""} {
		_, err := About(scenes.Decisions(false), name)
		assert.ErrorIs(t, err, ErrNotInDecisions, "%q", name)
	}
}

func TestExplainBeforeFirstDecision(t *testing.T) {
	const claim = "No decision yet: no level has changed since the agent started.\n"
	for want, change := range map[string]func(s *view.State){
		"Now: cluster: 2 pods on this node\n" + claim:                                                                   func(*view.State) {},
		"Now: DRY RUN of evictions: no mark, no eviction\n" + claim:                                                     func(s *view.State) { s.Cluster.DryRun = true },
		"Now: standalone mode: evictions disabled\n" + claim:                                                            func(s *view.State) { s.Agent.Mode, s.Cluster = "standalone", nil },
		"Now: cluster: pods not listed yet, evictions paused\n" + claim:                                                 func(s *view.State) { s.Cluster.PodsSynced = false },
		"Now: cluster: rounds stuck for 10 min, no pod is evicted\nNo decision yet.\n":                                  func(s *view.State) { s.Cluster.RoundsStuckSeconds = 600 },
		"Now: cluster: 2 pods on this node\nNo new sample for 1 min: the present levels are as old\nNo decision yet.\n": func(s *view.State) { s.SampleAge = time.Minute },
	} {
		s := *scenes.Evicted()
		c := *s.Cluster
		s.Cluster = &c
		change(&s)
		var b bytes.Buffer
		require.NoError(t, WriteNewest(&b, nil, &s, time.Now()))
		assert.Equal(t, want, b.String())
		b.Reset()
		require.NoError(t, WriteAbout(&b, nil, "a", &s, time.Now()))
		first, _, _ := strings.Cut(want, "No decision yet")
		assert.Equal(t, first, b.String())
	}
}

func TestExplainTerminatingEviction(t *testing.T) {
	list := scenes.Decisions(false)
	list[1].TerminatedAt, list[1].Candidates[2].TerminatedAt, list[1].After = time.Time{}, time.Time{}, nil
	text := about(t, list, evicted)
	assert.Contains(t, text, "terminated  not yet")
	assert.Contains(t, text, "pressure    not known until each evicted pod has terminated")
}

// Each pod of a decision terminates at its own time.
func TestExplainTwoEvicted(t *testing.T) {
	list := scenes.TwoEvicted()
	first := about(t, list, blocked)
	assert.Contains(t, first, "terminated  12:01:00 UTC, 5 s after the decision\n")
	assert.NotContains(t, first, "not yet")
	assert.Contains(t, about(t, list, evicted), "terminated  not yet\n")
	for _, whole := range []string{newest(t, list), about(t, list, list[0].ID)} {
		assert.Contains(t, whole, "terminated  batch/"+blocked+": 12:01:00 UTC, 5 s after the decision\n  terminated  "+evicted+": not yet\n")
	}
	list[0].TerminatedAt, list[0].Candidates[2].TerminatedAt = list[0].Time.Add(10*time.Minute), list[0].Time.Add(10*time.Minute)
	assert.Contains(t, about(t, list, blocked), "terminated  12:01:00 UTC, 5 s after the decision\n", "the last one is another pod")
}

func TestExplainDryRun(t *testing.T) {
	list := scenes.Decisions(true)
	for _, text := range []string{newest(t, list), about(t, list, evicted), about(t, list, list[0].ID)} {
		assert.Contains(t, text, "dry run")
		assert.NotContains(t, text, ": evicted\n")
		assert.NotContains(t, text, evicted+" evicted")
		assert.NotContains(t, text, "terminated ")
	}
	assert.Contains(t, about(t, list, evicted), evicted+" would be evicted")
}

func TestExplainManyDecisionsAbridged(t *testing.T) {
	var list []evict.Decision
	for i := range 50 {
		d := scenes.Decisions(false)[1]
		d.ID = fmt.Sprintf("d%02d", i)
		list = append(list, d)
	}
	text := newest(t, list)
	assert.Contains(t, text, "and 44 older decisions; -o json prints all")
	assert.LessOrEqual(t, strings.Count(text, "\n"), 60)
	text = about(t, list, evicted)
	assert.Contains(t, text, "and 46 older decisions about it")
	assert.NotContains(t, text, "d10")
}

func TestExplainOldEvictionShown(t *testing.T) {
	all := scenes.Decisions(false)
	list := append(slices.Repeat([]evict.Decision{all[2]}, 20), all[1])
	text := newest(t, list)
	assert.Contains(t, text, "and 15 older decisions; -o json prints all")
	assert.Contains(t, text, "evicted (decision "+all[1].ID+")")
}

func TestExplainOmittedCandidatesCounted(t *testing.T) {
	d := scenes.Decisions(false)[1]
	d.Omitted = 7
	assert.Contains(t, newest(t, []evict.Decision{d}), "1 pdb, 1 daemonset, 1 not-a-pod, 7 not stored")
	assert.Contains(t, about(t, []evict.Decision{d}, d.ID), "and 7 more, all skipped")
	assert.Contains(t, about(t, []evict.Decision{d}, evicted), "3 of 11")
}

func TestHostileNameIsOnlyText(t *testing.T) {
	const evil = "web/\x1b[2J\u202e\n"
	d := scenes.Decisions(false)[1]
	d.Reason, d.ID = evil, evil
	d.Candidates = []evict.Considered{{
		Candidate: plugins.Candidate{Name: evil, Cgroup: evil, Why: evil, Unit: evil}, Plugins: []string{evil}, Code: evict.Code(evil), Reason: evil,
		Answers: []evict.Answer{{Text: evil}},
	}}
	d.Causes[0].Plugin, d.Causes[0].Reason = evil, evil
	for _, text := range []string{newest(t, []evict.Decision{d}), about(t, []evict.Decision{d}, "web/\x1b[2J\u202e\n")} {
		assert.NotContains(t, text, "\x1b")
		assert.NotContains(t, text, "\u202e")
		assert.Contains(t, text, `\x1b[2J\u202e\x0a`)
	}
}

func TestExplainOverTheWire(t *testing.T) {
	list := scenes.Decisions(false)
	b, err := json.Marshal(list)
	require.NoError(t, err)
	var heard []evict.Decision
	require.NoError(t, json.Unmarshal(b, &heard))
	assert.Equal(t, newest(t, list), newest(t, heard))
	assert.Equal(t, about(t, list, evicted), about(t, heard, evicted))
}

func TestNotJudged(t *testing.T) {
	var b bytes.Buffer
	s := scenes.EverythingAbsent()
	require.NoError(t, WriteNewest(&b, nil, s, time.Now()))
	require.NotEmpty(t, s.UnjudgedText())
	for _, what := range s.UnjudgedText() {
		assert.Contains(t, b.String(), "Not judged now: "+what+"\n")
	}
}

// An outer plugin tells no relief, which is not a relief of 0.
func TestReliefUnknown(t *testing.T) {
	c := evict.Considered{}
	assert.Equal(t, "unknown", relief(&c))
	c.Relief, c.Unit = 3<<30, "bytes"
	assert.Equal(t, "3.0 GiB", relief(&c))
}
