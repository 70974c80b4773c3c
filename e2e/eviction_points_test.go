package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// The agent is killed at each of the points where it writes its state, from the
// begin of a pressure on: before a file is written, after it, after it is
// synced, and after it has its name.
func TestAgentKilledAtEachStateWrite(t *testing.T) {
	t.Parallel()
	killing := hooked(t)
	// The choice is the second that is written, at the points from 5 to 8. Each agent comes
	// as far; how often one writes after that is chance.
	const choice = 8
	points := []int{5, choice}
	if os.Getenv("PLIMSOLL_LONG") != "" {
		points = nil
		for n := range 24 {
			points = append(points, n+1)
		}
	}
	for _, n := range points {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			w := startWorld(t)
			w.deploy("one", 120, nil)
			w.deploy("two", 120, nil)
			one, two := w.running("one"), w.running("two")
			armed := filepath.Join(t.TempDir(), "armed")
			w.prepare = func(a *agent) {
				a.cmd.Path = killing
				a.cmd.Env = append(os.Environ(), "PLIMSOLL_KILL_ARMED="+armed, "PLIMSOLL_KILL_AT="+strconv.Itoa(n))
			}
			w.start()
			w.seen(one, 110)
			w.seen(two, 110)
			write(t, armed, "")
			w.press(true)
			killed := true
			select {
			case <-w.agent.ended:
			case <-deadline.After(patience): // it wrote less often
				require.Greater(t, n, choice, "it was to be killed there")
				killed = false
				w.agent.end(sigkill)
			}
			assert.Equal(t, sigkill, w.agent.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), w.agent.cmd.ProcessState)
			tainted := w.ourTaint()
			w.prepare = nil
			w.start()
			if tainted != "" { // or is the next one by now: soft comes before hard
				assert.NotEmpty(t, w.ourTaint(), "the taint is kept")
			}
			eventually(t, "one of the two has gone", func() error {
				if w.gone(one) == nil {
					return nil
				}
				return w.gone(two)
			})
			w.press(false)
			w.calm()
			w.noEvictionFor(2 * time.Second)
			assert.False(t, w.gone(one) == nil && w.gone(two) == nil, "a second victim: %v", w.words())
			t.Logf("killed %v, then: %v", killed, w.words())
		})
	}
}
