// Package live is what tests of running processes share: waiting, and what was
// said meanwhile.
package live

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Within asks until there is no complaint, and says how long that took; whoever
// has waited for long is asked less often. It fails the test with the last
// complaint when d is over.
func Within(t testing.TB, d time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := check()
		took := time.Since(start)
		if err == nil {
			return took
		}
		if took > d {
			t.Fatalf("not within %s: %s: %v", d, what, err)
		}
		time.Sleep(min(max(took/10, 20*time.Millisecond), 200*time.Millisecond))
	}
}

// Output of a process, safe to read while it writes.
type Output struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String is all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
