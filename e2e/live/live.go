// Package live holds what tests of running processes share.
package live

import (
	"bytes"
	"os"
	"sync"
	"testing"
)

// Long leaves a test to make e2e; what it takes is the reason.
func Long(t testing.TB, takes string) {
	t.Helper()
	if !IsLong() {
		t.Skip(takes + ": make e2e")
	}
}

// IsLong tells whether tests run in their long forms.
func IsLong() bool { return os.Getenv("PLIMSOLL_LONG") != "" }

// Times is how often a test repeats what is random: long in make e2e, else short.
func Times(short, long int) int {
	if IsLong() {
		return long
	}
	return short
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
