package vm_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded is what the agent records to, in memory: the disk is slow.
const recorded = "/run/agent"

// recordingFile is where the recording of the shortage is kept, if it is to be;
// the tests of daemon/replay play it.
func recordingFile(t *testing.T) string {
	return cmp.Or(os.Getenv("PLIMSOLL_REPLAY_RECORDING"), filepath.Join(t.TempDir(), "agent.rec"))
}

// replays plays the recording on this host, and holds it against what the
// witness saw the agent say.
func replays(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.run("systemctl stop plimsoll")
		looks := n.looks()
		recording, binary := recordingFile(t), filepath.Join(t.TempDir(), "plimsoll")
		n.run("mv " + recorded + "/*.rec " + recorded + ".rec") // there is one segment
		require.NoError(t, n.Pull(t.Context(), recorded+".rec", recording))
		build(t, ".", binary)
		said, err := exec.CommandContext(t.Context(), binary, "replay", "--warm-up", "-o", "json", recording).Output()
		require.NoError(t, err)
		var report struct {
			Samples uint64
			Changes []struct {
				Time             time.Time
				Plugin, From, To string
			}
		}
		require.NoError(t, json.Unmarshal(said, &report))
		size, err := os.Stat(recording)
		require.NoError(t, err)
		t.Logf("%d samples, %d bytes", report.Samples, size.Size())

		levels, at := []string{"none"}, []time.Time{{}}
		for _, l := range looks {
			if l.Level != "" && l.Level != levels[len(levels)-1] {
				levels, at = append(levels, l.Level), append(at, l.Time)
			}
		}
		replayed := []string{"none"}
		for _, c := range report.Changes {
			if c.Plugin != "memory-stall" {
				continue
			}
			replayed = append(replayed, c.To)
			if i := len(replayed) - 1; i < len(at) {
				t.Logf("%s to %s: replayed %+.1f s after it was seen", c.From, c.To, c.Time.Sub(at[i]).Seconds())
			}
		}
		assert.Equal(t, levels, replayed)
		assert.Contains(t, replayed, "hard")
	}
}
