package clock_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/clock"
)

func TestMain(m *testing.M) {
	if os.Getenv("PLIMSOLL_TELLS_TIME") == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().Unix(), time.Since(began).Milliseconds())
	}
}

func TestClockOfOneProcess(t *testing.T) {
	t.Parallel()
	if !clock.Supported {
		t.Skip("not known for this processor")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "PLIMSOLL_TELLS_TIME=1")
	asks, err := cmd.StdinPipe()
	require.NoError(t, err)
	tells, err := cmd.StdoutPipe()
	require.NoError(t, err)
	began := time.Now()
	c, err := clock.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { _ = asks.Close(); assert.NoError(t, cmd.Wait()) })
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		require.NoError(t, c.Set(ahead))
		before := time.Now()
		_, err := fmt.Fprintln(asks)
		require.NoError(t, err)
		var wall, ran int64
		_, err = fmt.Fscan(tells, &wall, &ran)
		require.NoError(t, err)
		after := time.Now()
		assert.GreaterOrEqual(t, wall, before.Add(ahead).Unix(), "%s ahead", ahead)
		assert.LessOrEqual(t, wall, after.Add(ahead).Unix(), "%s ahead", ahead)
		assert.LessOrEqual(t, ran, time.Since(began).Milliseconds(), "the monotonic clock runs on")
		assert.GreaterOrEqual(t, ran, int64(0))
	}
}
