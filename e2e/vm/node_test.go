package vm_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

// pressureURL is where an agent with no configuration answers, in the machine.
const pressureURL = "http://127.0.0.1:9773/api/v1/pressure"

// node is a machine with the agent in it.
type node struct {
	*vm.VM
	t *testing.T
}

// startNode boots a machine and copies the programs there, each of them a
// package of this module.
func startNode(t *testing.T, o vm.Options, packages ...string) *node {
	t.Helper()
	n := &node{VM: vm.Start(t, o), t: t}
	for _, p := range packages {
		n.push(p)
	}
	return n
}

// push builds the program and copies it to /root.
func (n *node) push(pkg string) {
	n.t.Helper()
	name := filepath.Base(pkg)
	if pkg == "." {
		name = "plimsoll"
	}
	binary := filepath.Join(n.t.TempDir(), name)
	build(n.t, pkg, binary)
	require.NoError(n.t, n.Push(n.t.Context(), binary, "/root/"+name))
}

// build builds a package of this module for the machine's processor, without libc.
func build(t *testing.T, pkg, binary string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "build %s: %s", pkg, said)
}

// run runs a command that must succeed within a minute, also when the test has
// failed and tells what it saw.
func (n *node) run(command string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), time.Minute)
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
		_, err := n.Run(n.t.Context(), "busybox wget -q -O- "+pressureURL)
		return err == nil
	})
}

// patience is how many times longer than on a machine of its own something may
// take: it is emulated, beside other tests. What the product promises is measured
// by the clock of the machine, and asserted apart.
const patience = 4

// until asks twice a second until what holds, and fails when it does not in time.
func (n *node) until(limit time.Duration, what string, holds func() bool) {
	n.t.Helper()
	every := time.NewTicker(500 * time.Millisecond)
	defer every.Stop()
	for end := time.Now().Add(patience * limit); !holds(); <-every.C {
		require.True(n.t, time.Now().Before(end), "%s: not so within %s", what, patience*limit)
	}
}

// verdict is what the agent says of one plugin.
type verdict struct{ Plugin, Level, Reason, Absent string }

// memoryStall is the agent's verdict of memory-stall.
func (n *node) memoryStall() verdict {
	n.t.Helper()
	var p struct{ Verdicts []verdict }
	require.NoError(n.t, json.Unmarshal([]byte(n.run("busybox wget -q -O- "+pressureURL)), &p))
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
	url := strings.ReplaceAll(pressureURL, "pressure", "snapshot")
	require.NoError(n.t, json.Unmarshal([]byte(n.run("busybox wget -q -O- "+url)), &s))
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
