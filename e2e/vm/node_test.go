package vm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

// agentAddress is where an agent with no configuration answers, in the machine.
const (
	agentAddress = "127.0.0.1:9773"
	pressureURL  = "http://" + agentAddress + "/api/v1/pressure"
)

// node is a machine with the agent in it.
type node struct {
	*vm.VM
	t     *testing.T
	loads []string // units that were started, but the agent
}

// startNode boots a machine and brings the programs to /root, each of them a
// package of this module. They come on a disk that is taken out again, since the
// emulated machine would work for long on what ssh has encrypted.
func startNode(t *testing.T, o vm.Options, packages ...string) *node {
	t.Helper()
	vm.SkipUnfit(t)
	o.Share = t.TempDir()
	for _, p := range packages {
		name := filepath.Base(p)
		if p == "." {
			name = "plimsoll"
		}
		build(t, p, filepath.Join(o.Share, name))
	}
	n := &node{VM: vm.Start(t, o), t: t}
	n.run("find /share -maxdepth 1 -type f -exec cp -t /root {} + && umount /share && rmdir /share && " +
		"echo 1 >$(readlink -f /sys/class/block/$(basename $(readlink -f /dev/disk/by-id/virtio-share))/device)/../remove")
	return n
}

// built are the programs that tests have built.
var built struct {
	mu  sync.Mutex // for one build after the other
	dir string
}

func TestMain(m *testing.M) {
	var err error
	if built.dir, err = os.MkdirTemp("", "plimsoll-vm-built-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(built.dir)
	os.Exit(status)
}

// build builds a package of this module, once, for the machine's processor,
// without libc.
func build(t *testing.T, pkg, binary string) {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	once := filepath.Join(built.dir, "of-"+url.PathEscape(pkg))
	if _, err := os.Stat(once); err != nil {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s", "-o", once, pkg)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "build %s: %s", pkg, said)
	}
	program, err := os.ReadFile(once)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, program, 0o755))
}

// run runs a command that must succeed in time, also when the test has failed and
// tells what it saw.
func (n *node) run(command string) string {
	n.t.Helper()
	ctx, cancel := deadline.Context(context.WithoutCancel(n.t.Context()), patience*time.Minute)
	defer cancel()
	out, err := n.Run(ctx, command)
	require.NoError(n.t, err)
	return out
}

// startAgent runs the agent standalone, see startAgentWith.
func (n *node) startAgent() {
	n.t.Helper()
	n.startAgentWith("--standalone")
}

// startAgentWith runs the agent with these arguments, as a unit of its own, and
// waits until it answers. When the test fails, what it said is shown. One before
// it that did not end well is told of, and is no reason not to start.
func (n *node) startAgentWith(arguments string) {
	n.t.Helper()
	if before := n.run("! systemctl is-failed -q plimsoll || { systemctl show -p Result,ExecMainCode,ExecMainStatus plimsoll; journalctl -q --no-pager -n 5 -o cat -u plimsoll; systemctl reset-failed plimsoll; }"); before != "" {
		n.t.Logf("the agent before this one failed:\n%s", before)
	}
	n.run("systemd-run -q --unit=plimsoll -p OOMScoreAdjust=-999 /root/plimsoll agent " + arguments)
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("the agent said, then the kernel:\n%s",
				n.run("journalctl -q --no-pager -n 40 -o cat -u plimsoll; dmesg | tail -20"))
		}
	})
	n.until(30*time.Second, "the agent answers", func() bool {
		_, err := n.Get(n.t.Context(), agentAddress, "/api/v1/pressure")
		return err == nil
	})
}

// api is what the agent answers about a subject, such as pressure.
func (n *node) api(subject string) json.RawMessage {
	n.t.Helper()
	var b []byte
	// A machine that stalls for memory may stand for a while and drop a connection.
	// An agent that has ended answers no more: nothing starts it again.
	deadline.Within(n.t, patience*time.Minute, "the agent answers", func() (err error) {
		b, err = n.Get(context.WithoutCancel(n.t.Context()), agentAddress, "/api/v1/"+subject)
		return err
	})
	return b
}

// patience is how many times longer than on a machine of its own something may
// take: it is emulated. By its own clock the machine may stand for seconds where the
// host is busy, so that no test holds a time in it against a bound from above.
const patience = 4

// until asks twice a second until what holds, whoever has waited for long less
// often, and fails when it does not in time.
func (n *node) until(limit time.Duration, what string, holds func() bool) {
	n.t.Helper()
	clock := deadline.Start()
	for !holds() {
		took := clock.Elapsed()
		require.Less(n.t, took, patience*limit, "%s: not so within %s", what, patience*limit)
		time.Sleep(min(max(took/10, 500*time.Millisecond), 2*time.Second))
	}
}

// throughout asks twice a second for that long.
func (n *node) throughout(d time.Duration, ask func()) {
	n.t.Helper()
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-every.C {
		ask()
	}
}

// verdict is what the agent says of one plugin.
type verdict struct{ Plugin, Level, Reason, Absent string }

// memoryStall is the agent's verdict of memory-stall.
func (n *node) memoryStall() verdict {
	n.t.Helper()
	var p struct{ Verdicts []verdict }
	require.NoError(n.t, json.Unmarshal(n.api("pressure"), &p))
	i := slices.IndexFunc(p.Verdicts, func(v verdict) bool { return v.Plugin == "memory-stall" })
	require.GreaterOrEqual(n.t, i, 0, "no verdict of memory-stall")
	return p.Verdicts[i]
}

// workload is one of the agent's workloads.
type workload struct {
	Cgroup, Kind, Name, PodUID    string
	MemoryBytes, MemoryLimitBytes uint64
}

// workload is the one whose name ends so.
func (n *node) workload(name string) (workload, bool) {
	n.t.Helper()
	var s struct{ Workloads []workload }
	require.NoError(n.t, json.Unmarshal(n.snapshot(), &s))
	i := slices.IndexFunc(s.Workloads, func(w workload) bool { return strings.HasSuffix(w.Name, name) })
	if i < 0 {
		return workload{}, false
	}
	return s.Workloads[i], true
}

// with is the same node, for a subtest.
func (n *node) with(t *testing.T) *node { return &node{VM: n.VM, t: t} }

// look is one line of the witness.
type look struct {
	Time                        time.Time
	AvailableRatio, FullSeconds float64
	Scans                       uint64
	Level, Reason, Error        string
}

const witnessed = "/run/witness.jsonl"

// startWitness has the witness look at the node and its agent twice a second.
func (n *node) startWitness() {
	n.t.Helper()
	n.run("systemd-run -q --unit=witness -p OOMScoreAdjust=-999 -p StandardOutput=file:" + witnessed + " /root/witness " + pressureURL)
}

// looks are what the witness has seen.
func (n *node) looks() []look {
	n.t.Helper()
	var all []look
	for line := range strings.Lines(n.run("cat " + witnessed)) {
		if !strings.HasSuffix(line, "\n") {
			break // not yet written in full
		}
		var l look
		require.NoError(n.t, json.Unmarshal([]byte(line), &l), line)
		all = append(all, l)
	}
	return all
}

// waitFor waits until what is found among the looks since from, and returns
// these up to the one at which it was.
func (n *node) waitFor(what string, limit time.Duration, from time.Time, find func([]look) (int, bool)) []look {
	n.t.Helper()
	var found []look
	n.until(limit, what, func() bool {
		looks := since(n.looks(), from)
		i, ok := find(looks)
		if ok {
			found = looks[:i+1]
		}
		return ok
	})
	return found
}

// clock is the time in the machine.
func (n *node) clock() time.Time {
	n.t.Helper()
	now, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(n.run("date -u +%Y-%m-%dT%H:%M:%S.%NZ")))
	require.NoError(n.t, err)
	return now
}
