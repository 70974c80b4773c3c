package view_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func culprit(name string, share float64) snapshot.Culprit {
	return snapshot.Culprit{Party: snapshot.Party{Name: name}, Share: share}
}

func sufferer(name string, waited float64, lowest bool) snapshot.Sufferer {
	return snapshot.Sufferer{Party: snapshot.Party{Name: name}, Waited: waited, Share: snapshot.Some(0.1), LowestClass: lowest}
}

func nvme(state snapshot.ContentionState, coverage snapshot.Opt[float64], culprits []snapshot.Culprit, sufferers ...snapshot.Sufferer) *snapshot.Contention {
	return &snapshot.Contention{Resource: snapshot.SharedDisk, Device: "nvme0n1", State: state, Coverage: coverage, Culprits: culprits, Sufferers: sufferers}
}

func TestContentionSentence(t *testing.T) {
	du, known := []snapshot.Culprit{culprit("batch/du-abc", 0.71), culprit("web/db", 0.2)}, snapshot.Some(0.94)
	db, backup := sufferer("web/db", 0.38, false), sufferer("velero/backup", 0.6, true)
	unknown := nvme(snapshot.ContentionUnknown, known, du)
	memory := nvme(snapshot.ContentionPresent, known, du, db)
	memory.Resource, memory.Device = snapshot.SharedMemory, ""
	uncounted := nvme(snapshot.ContentionPresent, snapshot.Opt[float64]{}, nil, db)
	uncounted.Absent.Because("coverageRatio", "the disk transferred no bytes")
	open := sufferer("web/db", 0.7, false)
	open.Share = snapshot.Opt[float64]{}
	blkio := nvme(snapshot.ContentionUnknown, snapshot.Opt[float64]{}, nil, open)
	for _, what := range []string{"coverageRatio", "culprits"} {
		blkio.Absent.Because(what, "blkio inactive")
	}
	cpu := nvme(snapshot.ContentionPresent, known, du, db)
	cpu.Resource, cpu.Device = snapshot.SharedCPU, ""
	for want, c := range map[string]*snapshot.Contention{
		"web/db waited on nvme0n1 for 70.0 % of the last 10 s, for others or for itself; culprits and coverage unknown: blkio inactive":                blkio,
		"web/db waited for a CPU for 38.0 % of the last 10 s; batch/du-abc accounts for 71.0 % of the CPU time in use; coverage 94.0 %":                cpu,
		"web/db waited on nvme0n1 for 38.0 % of the last 10 s; batch/du-abc accounts for 71.0 % of the traffic; coverage 94.0 %":                       nvme(snapshot.ContentionPresent, known, du, backup, db),
		"velero/backup waited on nvme0n1 for 60.0 % of the last 10 s; batch/du-abc accounts for 71.0 % of the traffic; coverage 94.0 %":                nvme(snapshot.ContentionBusy, known, du, backup),
		"web/db waited on nvme0n1 for 38.0 % of the last 10 s; no workload found using it; coverage 69.9 %":                                            nvme(snapshot.ContentionPresent, snapshot.Some(0.699), nil, db),
		"no workload waited on nvme0n1; no workload found using it; coverage 69.9 %":                                                                   nvme(snapshot.ContentionBusy, snapshot.Some(0.699), nil),
		"sufferers on nvme0n1 unknown; batch/du-abc accounts for 71.0 % of the traffic; coverage 94.0 %":                                               unknown,
		"web/db stalled on memory for 38.0 % of the last 10 s; batch/du-abc accounts for 71.0 % of memory growth; coverage 94.0 %":                     memory,
		"web/db waited on nvme0n1 for 38.0 % of the last 10 s; no workload found using it; coverage unknown: the disk transferred no bytes":            uncounted,
		"batch/du-abc waited on nvme0n1 for 30.0 % of the last 10 s; it accounts for 71.0 % of the traffic itself, web/db for 20.0 %; coverage 94.0 %": nvme(snapshot.ContentionPresent, known, du, sufferer("batch/du-abc", 0.3, false)),
		"batch/du-abc waited on nvme0n1 for 30.0 % of the last 10 s; it accounts for 71.0 % of the traffic itself; coverage 94.0 %":                    nvme(snapshot.ContentionPresent, known, du[:1], sufferer("batch/du-abc", 0.3, false)),
	} {
		assert.Equal(t, want, view.ContentionSentence(c, "the last 10 s"))
	}
}

func TestContentionText(t *testing.T) {
	known := snapshot.Some(1.0)
	for want, c := range map[string]*snapshot.Contention{
		"contention":                        nvme(snapshot.ContentionPresent, known, nil, sufferer("a", 0.3, false)),
		"busy, no contention":               nvme(snapshot.ContentionBusy, known, nil),
		"busy, short waits only":            nvme(snapshot.ContentionBusy, known, nil, sufferer("b", 0.5, true), sufferer("a", 0.03, false)),
		"busy, only the lowest class waits": nvme(snapshot.ContentionBusy, known, nil, sufferer("a", 0.5, true)),
		"sufferers unknown":                 nvme(snapshot.ContentionUnknown, known, nil),
	} {
		assert.Equal(t, want, view.ContentionText(c))
	}
	assert.Equal(t, "sufferers unknown", view.ContentionText(nvme("made-up", known, nil)), "a state of a newer agent")
}

func TestContentionOrder(t *testing.T) {
	s := scenes.Calm()
	s.Snapshot.Contention = []snapshot.Contention{
		{Device: "a", State: snapshot.ContentionBusy},
		{Device: "b", State: snapshot.ContentionUnknown},
		{Device: "c", State: snapshot.ContentionPresent},
		{Device: "d", State: snapshot.ContentionBusy},
		{Device: "e", State: snapshot.ContentionPresent},
	}
	order := ""
	for _, c := range view.Contention(s) {
		order += c.Device
	}
	assert.Equal(t, "cebad", order)
	assert.Equal(t, "a", s.Snapshot.Contention[0].Device, "a snapshot never changes")
}

func TestContentionHasPodNames(t *testing.T) {
	s := scenes.Contended()
	raw := s.Snapshot.Contention[0].Culprits[0].Name
	assert.Contains(t, raw, "pod 5eed")
	b, err := json.Marshal(s.Pressure())
	require.NoError(t, err)
	var heard view.Pressure
	require.NoError(t, json.Unmarshal(b, &heard))
	require.Len(t, heard.Contention, 4)
	assert.Equal(t, "batch-analytics/du-of-the-whole-data-lake-28f7c-x2k9p", heard.Contention[0].Culprits[0].Name)
	assert.Equal(t, view.Contention(s), view.Contention(heard.State(s.Snapshot)), "a client of the socket sees the same names")
	assert.Equal(t, raw, s.Snapshot.Contention[0].Culprits[0].Name)
}

// The scene is what the tests of the page and of the terminal look at.
func TestContentionSceneFromRealSamples(t *testing.T) {
	list := view.Contention(scenes.Contended())
	var states []snapshot.ContentionState
	for _, c := range list {
		states = append(states, c.State)
		assert.LessOrEqual(t, len(c.Culprits), 10)
	}
	assert.Equal(t, []snapshot.ContentionState{snapshot.ContentionPresent, snapshot.ContentionPresent, snapshot.ContentionPresent, snapshot.ContentionBusy}, states)
	assert.Equal(t, []string{"Disk nvme0n1", "Disk sda", "Memory", "Disk sdb"}, []string{
		view.ContentionTitle(&list[0]), view.ContentionTitle(&list[1]), view.ContentionTitle(&list[2]), view.ContentionTitle(&list[3]),
	})
	assert.Positive(t, list[0].MoreCulprits)
	assert.Positive(t, list[0].MoreSufferers)
}
