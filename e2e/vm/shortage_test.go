package vm_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm"
)

// What is wanted of memory-stall with its defaults.
const (
	stallWindow    = 5 * time.Second // hard: stall full >= 25 % over it,
	stallFull      = 0.25
	availableRatio = 0.04             // with less than this available
	cleared        = 30 * time.Second // and so long without, before it is left
	// Twice the kubelet's own 100 MiB, of a machine with 2 GiB, and a little:
	// below this the level is hard as well, once reclaim moves.
	floorRatio = 0.11
)

// The machine is emulated and shares two processors with other tests: a tick
// may come late, the answer to the witness as well.
const slack = 5 * time.Second

// watched is how long each state is watched.
func watched() time.Duration {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return 3 * time.Minute
	}
	return 5 * time.Second
}

// TestMemoryStall shows the two sides of the rule in one machine that has no
// swap: a workload that thrashes at its own limit while the node has plenty is
// left alone, and a node that is really short of memory is seen at once, for as
// long as it is short, and not longer. Then it shows what triggers are for.
func TestMemoryStall(t *testing.T) {
	n := startNode(t, vm.Options{Name: "memory", Disks: 1}, ".", "./e2e/vm/hog", "./e2e/vm/witness")
	n.withPages(1000)
	n.run("printf 'apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nrecording: {dir: " + recorded + ", minAvailable: 0}\n' >/root/agent.yaml")
	n.startAgentWith("--standalone --config /root/agent.yaml")
	n.startWitness()
	t.Run("a workload at its own limit is no shortage of the node", atItsOwnLimit(n))
	t.Run("a real shortage is hard at once and over when it is over", realShortage(n))
	t.Run("a replay of what the agent recorded says the same", replays(n))
	n.run("systemctl stop witness")
	t.Run("triggers", triggered(n))
}

func atItsOwnLimit(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.startHog("-p MemoryMax=160M", "-fill 60")
		looks := n.waitFor("the node stalls as a whole", time.Minute, n.clock(), stalledAt)
		from := looks[len(looks)-1].Time
		n.waitFor("watched for long enough", watched()+slack, from, lasting(watched()))
		n.run("systemctl stop hog")
		// Nor is it one when the workload is gone and its stall is still in the window.
		gone := n.clock()
		n.waitFor("watched until the window has gone by", stallWindow+slack, gone, lasting(stallWindow))
		looks = since(n.looks(), from)
		for _, l := range answered(t, looks) {
			require.Equal(t, "none", l.Level, "%s %s", l.Time, l.Reason)
			require.Greater(t, l.AvailableRatio, 0.5, "the node has plenty")
		}
		t.Logf("at its own limit:\n%s", course(looks))
	}
}

func realShortage(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		start := n.clock()
		n.startHog("", "-available 50")
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seen:\n%s", course(since(n.looks(), start)))
			}
		})
		looks := n.waitFor("the node is short of memory", 2*time.Minute, start, func(looks []look) (int, bool) { return hardAt(looks, floorRatio) })
		short := looks[len(looks)-1].Time
		looks = n.waitFor("the level is hard", slack, start, level("hard"))
		hard := looks[len(looks)-1].Time
		assert.Less(t, looks[len(looks)-1].AvailableRatio, floorRatio, "it is not hard while there is enough")
		n.until(time.Minute, "it is said who takes the memory", func() bool { return named(n.contention(""), "hog.service") > 0.5 })
		t.Logf("who takes memory: %+v", n.contention(""))
		n.waitFor("short for long enough", watched()+slack, short, lasting(watched()))
		end := n.clock()
		n.run("systemctl kill -s KILL hog")
		looks = n.waitFor("the level is none again", 2*cleared+slack, end, level("none"))
		none := looks[len(looks)-1].Time

		for _, l := range answered(t, since(n.looks(), hard)) {
			if l.Time.Before(none) {
				require.Equal(t, "hard", l.Level, "%s %s", l.Time, l.Reason)
			}
		}
		t.Logf("short -> hard %.1f s, end -> none %.1f s", hard.Sub(short).Seconds(), none.Sub(end).Seconds())
		assert.Greater(t, none.Sub(end), cleared-slack, "the level is not left early")
		assert.NotContains(t, n.run("dmesg"), "Out of memory", "the node stalled; the kernel did not end it")
		t.Logf("seen:\n%s", course(since(n.looks(), start)))
	}
}

// startHog starts the load in a cgroup of its own with the given properties. No
// page of its file is in memory yet: pages count for the cgroup that read them
// first. It leaves processor time to the agent and to those who watch.
func (n *node) startHog(properties, flags string) {
	n.t.Helper()
	n.startHogOn("/mnt/pages", properties, flags)
}

func (n *node) startHogOn(file, properties, flags string) {
	n.t.Helper()
	n.run("sync; echo 3 >/proc/sys/vm/drop_caches; systemd-run -q --collect --unit=hog --slice=hog -p CPUWeight=10 -p OOMScoreAdjust=1000 " +
		properties + " /root/hog -file " + file + " " + flags)
	n.loads = append(n.loads, "hog")
	n.t.Cleanup(func() { n.run("systemctl stop hog 2>/dev/null || true") })
}

// level is there at the first look that shows it.
func level(wanted string) func([]look) (int, bool) {
	return func(looks []look) (int, bool) {
		i := slices.IndexFunc(looks, func(l look) bool { return l.Level == wanted })
		return max(i, 0), i >= 0
	}
}

// lasting is there once the looks span d.
func lasting(d time.Duration) func([]look) (int, bool) {
	return func(looks []look) (int, bool) {
		i := slices.IndexFunc(looks, func(l look) bool { return l.Time.Sub(looks[0].Time) >= d })
		return max(i, 0), i >= 0
	}
}
