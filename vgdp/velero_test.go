package vgdp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Where Velero does not count again although the count has changed, it decides
// on a stale number. Here the number is that of the phases, always.
func TestSlotsCountedByPhase(t *testing.T) {
	rows := read[struct {
		Invalidation []struct {
			Old, New Phase
			Recount  bool
		} `json:"invalidation"`
	}](t, "vgdp-counter.json").Invalidation
	require.Len(t, rows, 72)
	stale := 0
	for _, row := range rows {
		before, after := load("x", DataUpload, in(row.Old)), load("x", DataUpload, in(row.New))
		if before.Slot(limited) == after.Slot(limited) {
			continue
		}
		if !row.Recount {
			stale++
			assert.Equal(t, Prepared, row.New, "%s to %s: only a step that Velero never takes", row.Old, row.New)
		}
	}
	assert.Equal(t, 7, stale)
}

// A node-agent has its concurrency as a quota, which a load that it finds
// running after a restart may exceed.
func TestNodePlacesAsVeleroQuota(t *testing.T) {
	sequences := read[struct {
		Sequences []struct {
			Limit int        `json:"limit"`
			Ops   [][]string `json:"ops"`
		} `json:"sequences"`
	}](t, "datapath-quota.json").Sequences
	require.Len(t, sequences, 2)
	for _, s := range sequences {
		var running []Load
		for _, op := range s.Ops {
			name := op[1]
			i := slices.IndexFunc(running, func(l Load) bool { return l.Name == name })
			switch op[0] {
			case "create":
				d := Decide(world(99, nodes(1, s.Limit), append(slices.Clone(running), load(name, PodVolumeBackup, on("n1")))...))
				assert.Equal(t, op[2] == "ok", len(d.Admit) == 1, op)
				if op[2] == "ok" {
					running = append(running, load(name, PodVolumeBackup, on("n1"), in(InProgress)))
				}
			case "resume":
				running = append(running, load(name, PodVolumeBackup, on("n1"), in(InProgress)))
			case "get":
				assert.Equal(t, op[2] == "found", i >= 0, op)
			case "remove":
				if i >= 0 {
					running = slices.Delete(running, i, i+1)
				}
				assert.Equal(t, op[2], fmt.Sprintf("size=%d", len(running)))
			}
		}
	}
}

func TestPhasesAndLabelsAsVelero(t *testing.T) {
	c := read[struct {
		Phases, Terminal []Phase
		PodLabels        map[Kind]string
		Timeouts         map[string]any
		Transitions      []struct{ From, To string }
	}](t, "phase-machine.json")
	require.Len(t, c.Phases, 8)
	for _, p := range c.Phases {
		l := load("x", DataUpload, in(p))
		states := 0
		for _, is := range []bool{l.unaccepted(), l.preparing(), l.running(), slices.Contains(c.Terminal, p)} {
			if is {
				states++
			}
		}
		assert.Equal(t, 1, states, "%s: it is to be accepted, prepared, running or over", p)
	}
	require.Len(t, c.PodLabels, 4)
	for kind, label := range c.PodLabels {
		assert.Equal(t, label, kind.Facts().PodLabel)
	}
	assert.Contains(t, c.Timeouts["inProgress"], "(4h)")
	assert.Equal(t, 4*time.Hour, VeleroTimeout)
	// The two steps that a gate holds are the only ones to Accepted and to InProgress.
	for _, step := range c.Transitions {
		switch step.To {
		case "Accepted":
			assert.Equal(t, "New", step.From)
		case "InProgress":
			assert.Equal(t, "Prepared", step.From)
		}
	}
	assert.True(t, slices.ContainsFunc(c.Transitions, func(s struct{ From, To string }) bool { return strings.Contains(s.To, "InProgress") }))
}
