package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// runningAgent runs until the test ends, and says where it listens.
func runningAgent(t *testing.T, text string) (url string) {
	t.Helper()
	url, _ = runAgent(t, text)
	return url
}

func runAgent(t *testing.T, text string) (url string, a *Agent) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	text = "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nweb: {listenAddresses: ['127.0.0.1:0']}\n" +
		"api: {socket: " + filepath.Join(t.TempDir(), "s") + "}\nstate: {dir: " + t.TempDir() + "}\n" + text
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	file, err := config.Open(path, nil)
	require.NoError(t, err)
	a, err = New(file, slog.New(slog.DiscardHandler), path, nil)
	require.NoError(t, err)
	listening := make(chan string, 1)
	a.OnListening = func(url string) { listening <- url }
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, a.Open(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		start := time.Now()
		assert.NoError(t, <-ended)
		t.Logf("the agent ended in %s", time.Since(start).Round(time.Millisecond))
	})
	return <-listening, a
}

func TestAgentStopWaitsForSlowDisk(t *testing.T) {
	var written atomic.Bool
	t.Cleanup(func() { assert.True(t, written.Load(), "what was decided last is known to the next agent") }) // after the agent's end
	_, a := runAgent(t, "workloads: {roots: [/plimsoll-none]}\n")
	require.ErrorIs(t, a.records.writer.Do(0, func() error {
		<-time.After(time.Second)
		written.Store(true)
		return nil
	}), state.ErrTimeout)
}

// fetch has a deadline: an endless answer is an error.
func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// scrapeUntil scrapes, and returns how long the slowest answer took.
func scrapeUntil(t *testing.T, url string, enough <-chan struct{}) (longest time.Duration) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		before := deadline.Start()
		_, err := fetch(t.Context(), url+"metrics")
		assert.NoError(t, err)
		longest = max(longest, before.Elapsed())
		select {
		case <-enough:
			return longest
		case <-pause.C:
		}
	}
}

// countTicks waits for the n-th sample, and returns the longest time between
// two.
func countTicks(t *testing.T, url string, n uint64) (gap time.Duration) {
	t.Helper()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	var last snapshot.Snapshot
	for clock := deadline.Start(); last.Sequence < n; <-pause.C {
		require.Less(t, clock.Elapsed(), time.Minute, "%d samples", last.Sequence)
		text, err := fetch(t.Context(), url+"api/v1/snapshot")
		require.NoError(t, err)
		var now snapshot.Snapshot
		if json.Unmarshal([]byte(text), &now) != nil { // before the first one
			continue
		}
		if last.Sequence > 0 && now.Sequence > last.Sequence {
			gap = max(gap, now.Time.Sub(last.Time)/time.Duration(now.Sequence-last.Sequence))
		}
		last = now
	}
	return gap
}

// A peer's defects: the first scrape beside a hung mount never ends, and a race
// with its result. Here scrapes come from the first moment on, several at a
// time, and the detector of races looks on.
func TestAgentHungMountScrapesGoOn(t *testing.T) {
	s := filesystemtest.New(t)
	dead, alive := s.Fuse("dead"), s.Mount("tmpfs", "alive", "alive", "size=1m")
	url := runningAgent(t, fmt.Sprintf("tick: 100ms\nwindow: 1s\nworkloads: {roots: [/plimsoll-none]}\npaths: {procfs: %s}\nfilesystems: {mounts: [%s, %s], every: 1s, timeout: 100ms}\n",
		s.Proc, dead.Point, alive))

	enough := make(chan struct{})
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			longest := scrapeUntil(t, url, enough)
			t.Logf("longest scrape %s", longest.Round(10*time.Microsecond))
			assert.Less(t, longest, 5*time.Second)
		})
	}
	gap := countTicks(t, url, 20)
	close(enough)
	scrapes.Wait()
	t.Logf("20 ticks of 100ms, the longest took %s", gap.Round(time.Millisecond))

	text, err := fetch(t.Context(), url+"metrics")
	require.NoError(t, err)
	assert.Contains(t, text, `plimsoll_filesystem_up{mountpoint="`+dead.Point+`"} 0`)
	assert.NotContains(t, text, `plimsoll_filesystem_probe_age_seconds{mountpoint="`+dead.Point)
	assert.Contains(t, text, `plimsoll_filesystem_avail_bytes{mountpoint="`+alive+`"} 1048576`)
	text, err = fetch(t.Context(), url)
	require.NoError(t, err)
	assert.Contains(t, text, dead.Point+": statfs hangs")
}

// The disk of the state directory never answers: a start waits for it once.
func TestAgentStartsWhileDiskHangs(t *testing.T) {
	dir := filesystemtest.New(t)
	dir.Fuse("dead")
	below := dir.Enter(filepath.Join(dir.Dir, "dead", "state"))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`), 0o600))
	file, path := configured(t, "workloads: {roots: [/plimsoll-none]}\nkubernetes: {node: n, kubeconfig: "+kubeconfig+"}\nstate: {dir: "+below+"}\n")
	log := slog.New(slog.DiscardHandler)
	clock := deadline.Start()
	lock, err := LockStateDir(below, log)
	require.NoError(t, err)
	assert.Equal(t, lateTimeout, lock.wait(), "it has had its time")
	a, err := New(file, log, path, lock)
	require.NoError(t, err)
	require.NoError(t, a.Join())
	assert.Less(t, clock.Elapsed(), 2*stateTimeout)
	t.Logf("it began after %s", clock.Passed().Round(time.Millisecond))
	a.host.Close()
	a.cluster.events.Close()
	lock.Release()
}
