package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const calmLabel = "class: calm\nmachine: here\ndid: nothing\nload: {from: 1, to: 3}\nwhy: it is idle\n"

// labelled is a directory with one labelled recording.
func labelled(t *testing.T, label string) string {
	t.Helper()
	file := measured(t)
	require.NoError(t, os.WriteFile(strings.TrimSuffix(file, ".rec")+".yaml", []byte(label), 0o600))
	return filepath.Dir(file)
}

// measured is a recording of some seconds in which nothing happened, without swap.
func measured(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calm.rec")
	r, err := probes.CreateRecording(file, "v0.1.0", "")
	require.NoError(t, err)
	for i := range 5 {
		at := time.Hour + time.Duration(i)*time.Second
		s := &snapshot.Sample{Time: time.Unix(1_700_000_000+int64(i), 0), Monotonic: at, Boottime: at, BootID: "b"}
		s.Pressure.Memory.Full, s.Pressure.IO.Full, s.Pressure.CPU.Some = snapshot.Some[uint64](0), snapshot.Some[uint64](0), snapshot.Some[uint64](0)
		s.Memory.AvailableBytes = snapshot.Some[uint64](1 << 30)
		require.NoError(t, r.Add(s))
	}
	require.NoError(t, r.Close())
	return file
}

func TestJudge(t *testing.T) {
	dir := labelled(t, calmLabel)
	t.Run("text", func(t *testing.T) {
		status, stdout, stderr := told("judge", dir)
		assert.Zero(t, status, stderr)
		assert.Empty(t, stderr)
		assert.True(t, strings.HasPrefix(stdout, dir+": 1 recording, none held out"), stdout)
		assert.Regexp(t, `Plimsoll +0/1 \(0–98 %\) +0/1 \(0–98 %\)`, stdout)
		assert.Contains(t, stdout, "systemd-oomd: 1 recording not judged: lacks MemTotal, MemAvailable, SwapTotal or SwapFree of /proc/meminfo\n")
		assert.Contains(t, stdout, "\nsystemd-oomd          not judged\n")
		assert.NotContains(t, stdout, "CULPRIT FIRST", "nothing is expected")
	})
	t.Run("held out", func(t *testing.T) {
		apart := filepath.Join(dir, "held-out")
		require.NoError(t, os.Mkdir(apart, 0o700))
		for _, name := range []string{"calm.rec", "calm.yaml"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(apart, "other-"+name), text, 0o600))
		}
		status, stdout, stderr := told("judge", dir)
		assert.Zero(t, status, stderr)
		assert.Contains(t, stdout, "2 recordings, 1 of them held out\n")
		assert.Contains(t, stdout, "\nTUNED: rules may have been tuned by these: 1 recording, 1 healthy;")
		assert.Contains(t, stdout, "\nHELD OUT: no rule was tuned by these: 1 recording, 1 healthy;")
		figures, _, found := strings.Cut(stdout, "\nKEP-5394 WITH EACH THRESHOLD")
		assert.True(t, found)
		assert.NotContains(t, figures, "/2 ", "they are not summed")
	})
	t.Run("nothing measured", func(t *testing.T) {
		file := recorded(t)
		require.NoError(t, os.WriteFile(strings.TrimSuffix(file, ".rec")+".yaml", []byte(calmLabel), 0o600))
		_, stdout, _ := told("judge", filepath.Dir(file))
		assert.NotContains(t, stdout, "0/1", "no judge has found that nothing is wrong")
		assert.Contains(t, stdout, "Plimsoll: 1 recording not judged: lacks full of /proc/pressure/memory\n")
	})
	t.Run("json and yaml", func(t *testing.T) {
		status, stdout, _ := told("judge", dir, "-o", "json")
		assert.Zero(t, status)
		var r struct {
			Format     string `json:"format"`
			Recordings []struct {
				Name    string `json:"name"`
				HeldOut bool   `json:"heldOut"`
			} `json:"recordings"`
			Parts []struct {
				Name    string `json:"name"`
				Figures []struct {
					Judge     string `json:"judge"`
					FalseHard struct {
						Of int     `json:"of"`
						To float64 `json:"to"`
					} `json:"falseHardOfHealthy"`
				} `json:"figures"`
			} `json:"parts"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &r), stdout)
		assert.Equal(t, "plimsoll-judge/1", r.Format)
		require.Len(t, r.Parts, 2)
		assert.Equal(t, []string{"tuned", "held out"}, []string{r.Parts[0].Name, r.Parts[1].Name})
		assert.Equal(t, "Plimsoll", r.Parts[0].Figures[0].Judge)
		assert.InDelta(t, 0.975, r.Parts[0].Figures[0].FalseHard.To, 0.001)
		assert.Equal(t, []bool{false, true}, []bool{r.Recordings[0].HeldOut, r.Recordings[1].HeldOut})
		status, stdout, _ = told("judge", dir, "-o", "yaml")
		assert.Zero(t, status)
		assert.True(t, strings.HasPrefix(stdout, "---\n"))
	})
}

// Each mistake is told with its file, and where it is.
func TestJudgeMistakes(t *testing.T) {
	broken := labelled(t, calmLabel)
	require.NoError(t, os.WriteFile(filepath.Join(broken, "calm.rec"), []byte("no gzip"), 0o600))
	alone := filepath.Dir(recorded(t))
	lost := labelled(t, calmLabel)
	require.NoError(t, os.Remove(filepath.Join(lost, "calm.rec")))
	severe := labelled(t, calmLabel+"want:\n  - {resource: memory, level: severe, from: 1, to: 2}\n  - {resource: ram, level: soft, from: 1, to: 2}\n")
	misspelt := labelled(t, calmLabel+"wants: []\n")
	unknown := labelled(t, calmLabel+"usual: {sdz: 5ms}\n")
	below := labelled(t, calmLabel)
	require.NoError(t, os.Mkdir(filepath.Join(below, "heldout"), 0o700))
	require.NoError(t, os.Link(filepath.Join(below, "calm.rec"), filepath.Join(below, "heldout", "calm.rec")))
	long := labelled(t, strings.Replace(calmLabel, "to: 3", "to: 30", 1))
	for _, c := range []struct {
		name   string
		status int
		want   string
		args   []string
	}{
		{"no directory named", exitUsage, "judge: missing argument: plimsoll judge DIRECTORY", []string{"judge"}},
		{"format", exitUsage, `-o "svg": want text, json or yaml`, []string{"judge", broken, "-o", "svg"}},
		{"no directory", exitFailure, "judge: open /none: no such file or directory", []string{"judge", "/none"}},
		{"empty", exitFailure, "judge: ", []string{"judge", t.TempDir()}},
		{"no label", exitFailure, "judge: " + alone + "/calm.rec: no label beside it: want calm.yaml", []string{"judge", alone}},
		{"no recording", exitFailure, "judge: " + lost + "/calm.yaml: no recording beside it: want calm.rec", []string{"judge", lost}},
		{"no recording's format", exitFailure, "judge: " + broken + "/calm.rec: recording: ", []string{"judge", broken}},
		{"level", exitFailure, "judge: " + severe + "/calm.yaml: line 7: want[0].level: want soft or hard", []string{"judge", severe}},
		{"key", exitFailure, "judge: " + misspelt + "/calm.yaml: line 6: unknown key wants", []string{"judge", misspelt}},
		{"disk", exitFailure, "judge: " + unknown + "/calm.yaml: usual.sdz: the recording has no disk of that name", []string{"judge", unknown}},
		{"directory", exitFailure, "judge: " + below + "/heldout: it has recordings, and of the directories here held-out alone is read: judge it by itself", []string{"judge", below}},
		{"too short", exitFailure, "judge: " + long + "/calm.yaml: load.to is 30 s, but the recording ends after 4.000 s", []string{"judge", long}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := told(c.args...)
			assert.Equal(t, c.status, status)
			assert.Empty(t, stdout)
			assert.True(t, strings.HasPrefix(stderr, "plimsoll: "+c.want), stderr)
			assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}
