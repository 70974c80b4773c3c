package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// stuckFiles are cgroup files in which a limit on a disk is not written before the disk
// answers.
type stuckFiles struct {
	throttle.Files
	answers chan struct{}
}

func (f stuckFiles) Set(k throttle.Knob, limit uint64) error {
	if k.Resource() == snapshot.SharedDisk {
		<-f.answers
	}
	return f.Files.Set(k, limit)
}

// configured is an agent's configuration from a file, which it returns.
func configured(t *testing.T, text string) (*config.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	writeConfig(t, path, text)
	file, err := config.Open(path, nil)
	require.NoError(t, err)
	return file, path
}

func writeConfig(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n"+text), 0o600))
}

// The disk of a throttled pod hangs, and with it the write of the limit: the round evicts for
// memory all the same, says which limit hangs, and the agent ends. The next one removes the
// limit that was written after all.
func TestRoundEvictsWhileThrottleHangs(t *testing.T) {
	h, c := newThrottleFixture(t), newCarrying(t, "culprit")
	h.now = time.Now().UTC()
	files := stuckFiles{h.throttles.journal.Files, make(chan struct{})}
	h.throttles.journal.Files, h.throttles.journal.Timeout = files, time.Second
	a := c.Agent
	a.Config, _ = configured(t, "eviction: {dryRun: false, reportOnly: 0s, reliefWait: 0s}\nvgdp: {dryRun: false}\n")
	config := a.Config.Current()
	config.State.Dir = t.TempDir()
	var log bytes.Buffer
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	a.throttles, a.movers, a.records, a.outer = h.throttles, newMoverBudget(config.State.Dir, time.Minute, a.Log), newRecords(config.State), newOuterHost(config, time.Minute, a.Config.Current, a.Log)
	a.decisions = evict.Log{Max: config.State.Decisions}
	a.boot, a.savedState = "boot", evict.State{RateLimits: fullBuckets()}
	h.throttles.resizes = resizes{adopted: true, api: &resize.API{}, failed: assert.AnError}
	s := h.seen(plugins.Hard, false)
	s.Levels.Verdicts = append(s.Levels.Verdicts, plugins.Verdict{
		Plugin: "memory-stall", Resource: plugins.Memory, Scope: "node", Level: plugins.Hard, MetLevel: plugins.Hard,
		Candidates: []plugins.Candidate{{Cgroup: "/culprit", PodUID: "culprit", Relief: 9, Unit: "bytes"}},
	})
	a.state.Store(s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.round(t.Context())
		a.endThrottles()
	}()
	deadline.Within(t, 2*time.Second, "the pod is evicted", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.asked) == 0 {
			return fmt.Errorf("no eviction; throttles: %+v", h.throttles.shown.Load())
		}
		assert.Equal(t, []string{"culprit kept"}, c.asked)
		return nil
	})
	const hangs = "limit " + moverPod + " read 8:0: the kernel has not answered since"
	assert.Contains(t, h.throttles.shown.Load().Problem, hangs)
	deadline.Within(t, 2*time.Second, "the agent ends", func() error {
		select {
		case <-ended:
			return nil
		default:
			return assert.AnError
		}
	})
	require.NoError(t, h.throttles.resizes.failed, "of the API it is tried again")
	assert.Contains(t, log.String(), "gave up removing limits of throttled pods")
	assert.Contains(t, log.String(), " --state.dir "+config.State.Dir, "the command that removes them")
	close(files.answers)
	deadline.Within(t, 10*time.Second, "the limit is written late", func() error {
		if now := h.read(); !strings.HasSuffix(now, "rbps=209715200 wbps=max\n") { // not while the file is being written
			return errors.New(now)
		}
		return nil
	})
	h.start()
	h.throttles.disable()
	assert.Equal(t, free, h.read())
}
