package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Within asks until there is no complaint, and says how long that took by the
// watch; what was waited for long is asked for less often. It fails the test with
// the last complaint when d is over as [Clock] counts it.
func Within(t testing.TB, d time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	clock := Start()
	for {
		err := check()
		took := clock.Elapsed()
		if err == nil {
			return clock.Passed()
		}
		if took > d {
			t.Fatalf("not within %s (%s by the watch, on a machine as busy as this): %s: %v", d, clock.Passed().Round(time.Millisecond), what, err)
		}
		time.Sleep(min(max(took/10, mostOften), 200*time.Millisecond))
	}
}

// mostOften is how often a condition is looked at in the beginning.
const mostOften = 50 * time.Millisecond

// Eventually is testify's, with a deadline that [Clock] counts; holds is
// called in the test's own goroutine.
func Eventually(t testing.TB, holds func() bool, d, every time.Duration, messages ...any) {
	t.Helper()
	for clock := Start(); !holds(); time.Sleep(every) {
		if clock.Elapsed() > d {
			require.Fail(t, fmt.Sprintf("not within %s (%s by the watch)", d, clock.Passed().Round(time.Millisecond)), messages...)
		}
	}
}
