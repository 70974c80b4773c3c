package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
)

// Everything that is not the heartbeat is in trouble at once: all cores are
// busy, the agent stalls for memory in a cgroup at its limit, a plugin never
// answers, a kernel file hangs, so does the mount that has the agent's state, from its
// start on, and nobody reads what the agent writes.
func TestHeartbeatDelayedByNothing(t *testing.T) {
	// So long that a heartbeat which stops within the first three seconds is found.
	interval, length := time.Second, 10*time.Second
	if live.IsLong() {
		interval, length = 10*time.Second, 10*time.Minute
	}
	c := cluster.Shared(t, cluster.Options{})
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	const node = "stressed"
	_, err := c.AddNode(t.Context(), node, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node, metav1.DeleteOptions{}))
	})
	kubeconfig, err := c.ServiceAccount(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(t, err)
	dir := t.TempDir()
	_, limited := limitedCgroup(t, 64<<20)
	space := filesystemtest.New(t)
	proc, plugins := space.Proc, filepath.Join(dir, "plugins")
	mute(t, plugins)
	dead := space.Fuse("dead").Point
	seen := newWitness(t, c)

	a := prepareAgent(t, "--config", configFile(t, fmt.Sprintf(`
tick: 100ms
window: 1s
watchdog: 1h
paths: {procfs: %q}
workloads: {roots: [/plimsoll-none]}
filesystems: {mounts: [%s], every: 1s, timeout: 500ms}
kubernetes: {kubeconfig: %q, node: %s}
state: {dir: %q}
lease: {interval: %s, duration: %s}
eviction: {round: 1s}
plugins: {dirs: [%q], deadline: 1s}
`, proc, dead, kubeconfig, node, filepath.Join(dead, "state"), interval, 4*interval, plugins)))
	read, fill := unread(t, a)
	before := deadline.Start() // the load of this test lengthens no bound
	a.start()
	eventually(t, "the lease is renewed", func() error {
		if n := len(seen.of(node)); n < 3 {
			return fmt.Errorf("%d times", n)
		}
		if page := a.mustGet("/"); !strings.Contains(page, dead+": statfs hangs") {
			return errors.New("the mount does not hang yet")
		}
		return nil
	})
	begin, bound := time.Now(), before.Stretch(2*(interval+2500*time.Millisecond))
	vmstat := filepath.Join(proc, "vmstat")
	require.NoError(t, os.Remove(vmstat))
	require.NoError(t, syscall.Mkfifo(vmstat, 0o644)) // opening it waits for a writer that never comes
	fill()
	startLoad(t, "burn", strconv.Itoa(2*runtime.NumCPU()))
	for _, d := range limited {
		write(t, filepath.Join(d, "cgroup.procs"), strconv.Itoa(a.cmd.Process.Pid))
	}
	startThrash(t, 160<<20, limited)
	// The agent has something to say of its heartbeat, which nobody reads.
	sleep(t.Context(), length/2)
	leases := c.Client.CoordinationV1().Leases(lease.Namespace)
	require.NoError(t, leases.Delete(t.Context(), node, metav1.DeleteOptions{}))
	eventually(t, "the lease is made anew", func() error {
		_, err := leases.Get(t.Context(), node, metav1.GetOptions{})
		return err
	})
	sleep(t.Context(), length/2)
	gap := seen.longestGap(node, begin, time.Now())
	stalled := stallOf(t, limited)
	t.Logf("longest gap in %s with an interval of %s: %.2f s; all of the cgroup stalled for memory %.1f s", length, interval, gap.Seconds(), stalled.Seconds())
	assert.Greater(t, stalled, length/100)
	assert.LessOrEqual(t, gap, bound)
	status, body, err := a.get("/-/ready")
	require.NoError(t, err)
	assert.Equal(t, 503, status, "the rest does hang")
	assert.Contains(t, body, "sample: ")
	read()
}

// stallOf a cgroup is for how long all of it has waited for memory.
func stallOf(t *testing.T, dirs []string) time.Duration {
	t.Helper()
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "memory.pressure"))
		if err != nil {
			continue // of another hierarchy
		}
		m := regexp.MustCompile(`full .*total=(\d+)`).FindSubmatch(b)
		require.NotNil(t, m, "%s", b)
		us, err := strconv.Atoi(string(m[1]))
		require.NoError(t, err)
		return time.Duration(us) * time.Microsecond
	}
	t.Fatal("no cgroup here has pressure")
	return 0
}

// mute is the socket of a plugin that never answers.
func mute(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	l, err := net.Listen("unix", filepath.Join(dir, "mute.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
}

// unread gives the agent a pipe to write into, which is read until fill fills
// it, and from read on again.
func unread(t *testing.T, a *agent) (read, fill func()) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	a.cmd.Stdout, a.cmd.Stderr = w, w
	stop, done := make(chan struct{}), make(chan struct{})
	drain := func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = r.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			n, err := r.Read(b)
			_, _ = a.stderr.Write(b[:n]) // it is kept in memory
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}
	go drain()
	t.Cleanup(func() {
		_ = w.Close()
		_ = r.Close()
		<-done
	})
	fill = func() {
		close(stop)
		<-done
		full, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		require.NoError(t, err)
		defer full.Close()
		require.NoError(t, full.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = full.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the pipe is full")
	}
	read = func() {
		stop, done = make(chan struct{}), make(chan struct{})
		go drain()
	}
	return read, fill
}
