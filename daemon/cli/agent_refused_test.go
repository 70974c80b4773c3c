package cli

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// An agent was killed while it held a pod's memory. What does not start in its place, and the
// one that removes it, end the hold; where another agent runs it is that one's.
func TestLimitsEndWhereNoAgentStarts(t *testing.T) {
	type throttled struct {
		throttle.Target
		throttle.Throttle
	}
	const pod = "/kubepods/pod1"
	occupied, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer occupied.Close()
	run := func(f *agentFlags, out io.Writer) error { return f.run(t.Context(), out, io.Discard) }
	says := func(f *agentFlags, out io.Writer, wrong ...string) error {
		root := Commands()
		root.SetArgs(append([]string{"agent", "--state.dir", f.state, "--path.cgroupfs", f.cgroupfs}, wrong...))
		root.SetOut(out)
		root.SetErr(io.Discard)
		return root.ExecuteContext(t.Context())
	}
	bad := func(f *agentFlags, text string) {
		f.config = filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(f.config, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\ntick: soon\n"+text), 0o600))
	}
	for what, row := range map[string]struct {
		end  func(f *agentFlags, out io.Writer) error
		err  string
		want string // memory.high
	}{
		"a bad configuration": {func(f *agentFlags, out io.Writer) error {
			bad(f, "")
			return run(f, out)
		}, "tick", "max"},
		"a bad configuration that names the state directory": {func(f *agentFlags, out io.Writer) error {
			bad(f, "state: {dir: "+f.state+"}\n")
			f.state = ""
			return run(f, out)
		}, "tick", "max"},
		"a bad configuration beside another agent": {func(f *agentFlags, out io.Writer) error {
			lock, err := state.Acquire(f.state, time.Now(), state.BySystemd)
			require.NoError(t, err)
			defer lock.Release()
			bad(f, "")
			return run(f, out)
		}, "tick", "1073741824"},
		"flags that exclude each other": {func(f *agentFlags, out io.Writer) error {
			f.kubeconfig = "/none"
			return run(f, out)
		}, "exclude each other", "max"},
		"an unknown flag": {func(f *agentFlags, out io.Writer) error {
			return says(f, out, "--stand-alone")
		}, "unknown flag: --stand-alone: did you mean --standalone?", "max"},
		"an argument": {func(f *agentFlags, out io.Writer) error {
			return says(f, out, "standalone")
		}, `agent: it takes no argument, got "standalone": did you mean --standalone?; see plimsoll agent --help`, "max"},
		"no kubeconfig": {func(f *agentFlags, out io.Writer) error {
			f.standalone, f.kubeconfig = false, "/none"
			return run(f, out)
		}, "/none", "max"},
		"a port that is in use": {func(f *agentFlags, out io.Writer) error {
			f.addresses = []string{occupied.Addr().String()}
			return run(f, out)
		}, "address already in use", "max"},
		"release with a bad configuration": {func(f *agentFlags, out io.Writer) error {
			bad(f, "")
			return releaseNode(t.Context(), f, out, slog.New(slog.DiscardHandler))
		}, "tick", "max"},
	} {
		t.Run(what, func(t *testing.T) {
			f := &agentFlags{standalone: true, state: t.TempDir(), cgroupfs: t.TempDir(), socket: filepath.Join(t.TempDir(), "s")}
			high := filepath.Join(f.cgroupfs, pod, "memory.high")
			require.NoError(t, os.MkdirAll(filepath.Dir(high), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(f.cgroupfs, "cgroup.controllers"), []byte("cpu io memory\n"), 0o644))
			require.NoError(t, os.WriteFile(high, []byte("1073741824"), 0o644))
			require.NoError(t, (state.File[map[string]any]{Path: filepath.Join(f.state, "throttles.json"), UntilBoot: true}).Save(map[string]any{
				"limits":    []throttle.Limit{{Knob: throttle.Knob{Cgroup: pod, Name: throttle.Memory}, Value: 1 << 30, Written: true}},
				"throttles": []throttled{{throttle.Target{Cgroup: pod, Memory: true}, throttle.Throttle{Expires: time.Now().Add(throttle.Lifetime)}}},
			}))
			var out bytes.Buffer
			require.ErrorContains(t, row.end(f, &out), row.err)
			b, err := os.ReadFile(high)
			require.NoError(t, err)
			assert.Equal(t, row.want, string(b))
			assert.Equal(t, row.want == "max", bytes.Contains(out.Bytes(), []byte(pod+" memory: limit removed, which an agent that no longer runs had left\n")), out.String())
		})
	}
}

// What does not start says so although the disk of the state directory hangs, and how the limits
// are removed that it leaves.
func TestAgentRefusedWhileDiskHangs(t *testing.T) {
	f := &agentFlags{standalone: true, kubeconfig: "/none", state: t.TempDir()}
	lock := filepath.Join(f.state, "agent.lock")
	require.NoError(t, unix.Mkfifo(lock, 0o600)) // whose reader waits for a writer
	t.Cleanup(func() {
		writer, err := os.OpenFile(lock, os.O_WRONLY|unix.O_NONBLOCK, 0)
		require.NoError(t, err)
		require.NoError(t, writer.Close())
	})
	failed := make(chan error, 1)
	go func() { failed <- f.run(t.Context(), io.Discard, io.Discard) }()
	deadline.Within(t, 10*time.Second, "the command fails", func() error {
		select {
		case err := <-failed:
			require.ErrorContains(t, err, "exclude each other")
			require.ErrorContains(t, err, "so its limits stay: state: the disk does not answer in time")
			require.ErrorContains(t, err, "run on this machine as root: plimsoll release --config FILE --node ")
			return nil
		default:
			return assert.AnError
		}
	})
}
