package e2e_test

import (
	"bufio"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// watch opens the page's stream of samples.
func (a *agent) watch() *bufio.Scanner {
	a.t.Helper()
	ctx, cancel := deadline.Context(a.t.Context(), time.Minute)
	a.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/live", http.NoBody)
	require.NoError(a.t, err)
	resp, err := new(http.Client).Do(r)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(a.t, http.StatusOK, resp.StatusCode)
	assert.Equal(a.t, "text/event-stream", resp.Header.Get("Content-Type"))
	return bufio.NewScanner(resp.Body)
}

// event is the text of the next one.
func event(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	var text strings.Builder
	for lines.Scan() && lines.Text() != "" {
		text.WriteString(lines.Text() + "\n")
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, text.Len(), "the agent ended")
	return text.String()
}

func TestPageLiveEvents(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(2)
	_ = a.watch() // which nobody reads
	lines := a.watch()
	first := event(t, lines)
	assert.Contains(t, first, "Contention")
	start := deadline.Start()
	for range 4 {
		next := event(t, lines)
		assert.NotEqual(t, first, next)
		first = next
	}
	assert.Less(t, start.Elapsed(), 10*time.Second, "samples, not the five seconds after which it is sent all the same")
	start = deadline.Start()
	assert.Zero(t, a.end(syscall.SIGTERM))
	assert.Less(t, start.Elapsed(), 2*time.Second, "who watches is not waited for")
}
