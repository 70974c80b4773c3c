package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// historyAnswer is what a client reads of /api/v1/history.
type historyAnswer struct {
	From time.Time
	Node map[string]struct{ Mean []*float64 }
}

// keptSteps are the times of the last hour at which the agent knows how much memory was
// available.
func (a *agent) keptSteps() []time.Time {
	a.t.Helper()
	var h historyAnswer
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/history")), &h))
	var list []time.Time
	for i, v := range h.Node["availableRatio"].Mean {
		if v != nil {
			list = append(list, h.From.Add(time.Duration(i)*10*time.Second))
		}
	}
	return list
}

func (a *agent) keeps(steps int) []time.Time {
	a.t.Helper()
	var list []time.Time
	deadline.Within(a.t, 30*time.Second, fmt.Sprintf("%d steps are kept", steps), func() error {
		if list = a.keptSteps(); len(list) < steps {
			return fmt.Errorf("%d are: %v", len(list), list)
		}
		return nil
	})
	return list
}

// The agent ends, starts, is killed and starts again. It saves every 5 min and at its end:
// what the killed one has seen is lost, and nothing that was saved before.
func TestHistoryOverRestarts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	start := func() *agent { return startAgent(t, "--state.dir", dir).ticked(2) }
	a := start()
	first := a.keeps(2)
	require.Zero(t, a.end(syscall.SIGTERM))
	info, err := os.Stat(filepath.Join(dir, "history"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.Less(t, info.Size(), int64(64<<10))

	a = start()
	second := a.keeps(len(first) + 2)
	assert.Equal(t, first, second[:len(first)], "the first agent's")
	a.end(syscall.SIGKILL)

	a = start()
	third := a.keeps(len(first) + 1)
	assert.Equal(t, first, third[:len(first)], "still the first agent's")
	assert.NotContains(t, a.stderr.String(), "history")

	page := a.mustGet("/history")
	assert.Contains(t, page, "Memory available")
	assert.Contains(t, a.mustGet("/"), `href="history"`)
	status, body, err := a.get("/history?at=noon")
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, body, `at="noon": want a time`)
}

// The page of the history without scripts, as wide as a phone and as a screen.
func TestBrowserHistory(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(2)
	a.keeps(1)
	b := startBrowser(t)
	for _, width := range []int{420, 1400} {
		for _, scheme := range []string{"light", "dark"} {
			b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
			b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
			b.open(a.url + "/history?range=hour")
			b.waitFor("the page is there", `!!document.querySelector('.plot-axes') && document.readyState === 'complete'`)
			assert.Equal(t, false, b.js(`document.documentElement.scrollWidth > innerWidth`), "%d px show its whole width", width)
			assert.Equal(t, true, b.js(`[...document.querySelectorAll('.plot')].every((p) => p.getBoundingClientRect().right <= innerWidth)`))
			assert.Equal(t, true, b.js(`[...document.querySelectorAll('.plot-axes text')].every((x) => {
				const r = x.getBoundingClientRect(), p = x.closest('.plot').getBoundingClientRect();
				return r.left >= p.left && r.right <= p.right;
			})`), "no text is cut off at %d px", width)
			assert.Equal(t, true, b.js(`[...document.querySelectorAll('.plot-axes text')].every((x) => parseFloat(getComputedStyle(x).fontSize) >= 11)`),
				"texts keep their size")
			assert.Equal(t, float64(0), b.js(`document.scripts.length`))
			if dir := os.Getenv("PLIMSOLL_PICTURES"); dir != "" {
				b.picture(filepath.Join(dir, fmt.Sprintf("history_%d_%s.png", width, scheme)))
			}
		}
	}
}

// picture writes what the browser shows.
func (b *browser) picture(file string) {
	b.t.Helper()
	var shot struct{ Data []byte }
	require.NoError(b.t, json.Unmarshal(b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}), &shot))
	require.NoError(b.t, os.WriteFile(file, shot.Data, 0o644))
}
