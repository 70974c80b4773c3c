package vm_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Twenty seconds lie between two ticks, so that a level which comes with a tick
// and one that comes with a sample that was woken cannot be taken for one
// another. The window of the triggers is one that takes a privilege.
const slowTicks = `apiVersion: plimsoll.dev/v1alpha1
kind: AgentConfiguration
tick: 20s
window: 40s
watchdog: 10m
log: {level: debug, format: json}
triggers: {stall: 75ms, window: 500ms}
eviction: {round: 20s}
plugins:
  warmUp: 0s
  memoryStall:
    soft: {stallFull: 0.02, window: 20s, available: 0.5}
    hard: {stallFull: 0.02, window: 20s, available: 0.5}
    clearFor: 20s
`

// triggered shows on a kernel that lets the agent have any window what triggers
// cost it, and that a level is seen before the next tick.
func triggered(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.run("cat >/root/agent.yaml <<'END'\n" + slowTicks + "END\n")
		others := n.kernelThreads()
		n.startAgentWith("--standalone --config /root/agent.yaml")
		t.Run("a group that has them costs one kernel thread", oneThreadEach(n, others))
		t.Run("a level is seen before the next tick", seenBeforeTheTick(n))
		n.run("systemctl stop plimsoll")
		assert.Equal(t, others, n.kernelThreads(), "they end with the agent")
	}
}

func oneThreadEach(shared *node, others int) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		assert.Equal(t, 2, n.pressed().Agent.Triggers.Armed, "memory and io of the host")
		assert.InDelta(t, 0.5, n.pressed().Agent.Triggers.WindowSeconds, 0)
		assert.Equal(t, others+1, n.kernelThreads())
		// The kubelet comes after the agent.
		n.run("mkdir -p /sys/fs/cgroup/kubepods/burstable /sys/fs/cgroup/kubepods/besteffort/pod1")
		n.until(time.Minute, "its cgroups are found", func() bool { return n.kernelThreads() == others+4 })
		n.run("cd /sys/fs/cgroup/kubepods && rmdir -p besteffort/pod1 burstable && rmdir /sys/fs/cgroup/kubepods")
		n.until(time.Minute, "they are let go", func() bool { return n.kernelThreads() == others+1 })
	}
}

// kernelThreads that look after triggers, whosever these are.
func (n *node) kernelThreads() int {
	n.t.Helper()
	count, err := strconv.Atoi(strings.TrimSpace(n.run("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^psimon$' || true")))
	require.NoError(n.t, err)
	return count
}

// seenBeforeTheTick presses until the level has come with a sample that was
// woken. In one of some ten times it comes with a tick that happens to be first.
func seenBeforeTheTick(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.until(2*time.Minute, "the rules can judge", func() bool { return n.memoryStall().Absent == "" })
		for range 3 {
			onset := n.clock()
			n.startHog("", "-available 50")
			n.until(3*time.Minute, "the level is hard", func() bool { return n.memoryStall().Level == "hard" })
			since := n.pressed().Verdicts[0].Since
			n.run("systemctl kill -s KILL hog")
			t.Logf("hard %s after the load began to fill memory", since.Sub(onset).Round(time.Millisecond))
			if n.woken(since) {
				return
			}
			t.Log("a tick came first: once more")
			n.until(3*time.Minute, "the level is none", func() bool { return n.memoryStall().Level == "none" })
		}
		t.Fatal("no level was seen before a tick")
	}
}

// woken says whether the sample of this time was, as the agent's log has it.
func (n *node) woken(at time.Time) bool {
	n.t.Helper()
	for line := range strings.Lines(n.run("journalctl -q --no-pager -o cat -u plimsoll | grep 'woke this sample' || true")) {
		var said struct{ Sample time.Time }
		require.NoError(n.t, json.Unmarshal([]byte(line), &said), line)
		if said.Sample.Equal(at) {
			return true
		}
	}
	return false
}

// pressed is what the agent says of itself and of its verdicts.
type pressed struct {
	Agent struct {
		Triggers struct {
			Armed         int
			WindowSeconds float64
		}
	}
	Verdicts []struct {
		Plugin string
		Since  time.Time
	}
}

func (n *node) pressed() (p pressed) {
	n.t.Helper()
	require.NoError(n.t, json.Unmarshal(n.api("pressure"), &p))
	require.Equal(n.t, "memory-stall", p.Verdicts[0].Plugin)
	return p
}
