// Package kerneltest makes cgroups and loop devices of this machine's kernel
// for tests of its readers. What it makes has a name of its own and is removed
// with the test.
//
// # Concurrency
//
// All of it belongs to the goroutine of the test.
package kerneltest

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Patience is how long a kernel may take for what it does later, such as
// removing a cgroup whose process has ended.
const Patience = 20 * time.Second

// Until waits for a condition and fails the test without it. It polls in the
// test's own goroutine, since the condition may fail the test and use values of
// one goroutine.
func Until(t testing.TB, met func() bool) {
	t.Helper()
	deadline.Eventually(t, met, Patience, time.Millisecond)
}

// Unprivileged runs do with an unprivileged file system user, on this thread
// only: root may read everything.
func Unprivileged(t testing.TB, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(65534))
	defer func() { assert.NoError(t, unix.Setfsuid(0)) }()
	do()
}
