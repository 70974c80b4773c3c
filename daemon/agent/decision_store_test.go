package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestDecisionsSurviveRestart(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	c := config.Default().State
	c.Dir = t.TempDir()
	first := newRecords(c)
	require.Empty(t, first.load(time.Minute, log))
	relief := 5.0
	made := evict.Decision{
		ID: "a", Code: evict.CodeEvicted, Reason: "shop/web: it presses",
		Causes:     []evict.Cause{{Plugin: "memory-stall", Level: plugins.Hard, Credit: []evict.Credit{{UID: "u", Relief: &relief}}}},
		Candidates: []evict.Considered{{Code: evict.CodeEvicted, Answers: []evict.Answer{{Outcome: evict.Evicted, Code: 201}}}},
	}
	first.append(made, log)
	later := made
	later.Reason = "the same, later"
	first.append(later, log)
	require.Empty(t, said.String())

	file := filepath.Join(c.Dir, "evictions", "newer.jsonl")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(b, "0badc0de {\"id\":"...), 0o600))
	c.Decisions = 2
	next := newRecords(c)
	assert.Equal(t, []evict.Decision{made, later}, next.load(time.Minute, log))
	assert.Contains(t, said.String(), "dropped unreadable saved decisions")
	assert.Contains(t, said.String(), "lost=1 read=2")

	for i := range 4 * writesPerDecision * c.Decisions { // others push it out neither here
		other := evict.Decision{ID: "o", Time: time.Unix(int64(i+1), 0).UTC(), Causes: []evict.Cause{{Scope: fmt.Sprint(i)}}}
		next.append(other, log)
	}
	kept := newRecords(c).load(time.Minute, log)
	assert.Equal(t, []evict.Decision{made, later}, kept[:2], "the oldest first")
	assert.Less(t, len(kept), 4*writesPerDecision*c.Decisions)

	said.Reset()
	blocked := newRecords(config.State{Dir: file, Decisions: 1, DecisionsSize: 1 << 20})
	assert.Empty(t, blocked.load(time.Minute, log))
	blocked.append(made, log)
	assert.Contains(t, said.String(), "cannot save a decision; a restart will forget it")
}
