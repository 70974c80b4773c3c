package vm_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// onLink is what network-contention says of a NIC; nothing until it is judged.
func (n *node) onLink(nic string) (plugins.Verdict, bool) {
	n.t.Helper()
	p := n.pressure()
	i := slices.IndexFunc(p.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == "network-contention" && v.Scope == nic })
	if i < 0 {
		return plugins.Verdict{}, false
	}
	return p.Verdicts[i], p.Verdicts[i].Absent == ""
}

// lossyLink has a link of a known speed between two NICs of the machine, whose
// queue loses what the kernel's netem is told to: the node is marked only where
// the link is full and TCP sends again, and not for one of the two.
func lossyLink(shared *node) func(*testing.T) {
	return func(t *testing.T) {
		n := shared.with(t)
		n.configure("window: 3s\nnetwork: {devices: [{name: eth1, speed: 4}]}\nplugins: {warmUp: 0s, networkContention: {window: 5s, clearFor: 1s}}\n")
		wired("rate 4mbit loss 4%")(n)
		t.Cleanup(func() { unwired(n) })
		n.startAgentWith("--standalone --config /root/agent.yaml")
		t.Cleanup(func() { n.run("systemctl stop plimsoll") })

		var v plugins.Verdict
		is := func(want plugins.Level, full, again bool) func() bool {
			return func() bool {
				var judged bool
				v, judged = n.onLink("eth1")
				return judged && v.Level == want && met(v, full, again)
			}
		}
		n.until(time.Minute, "full and lossy: the node is marked", is(plugins.Soft, true, true))
		assert.Equal(t, "NetworkContention", v.Condition)
		assert.Empty(t, v.Candidates)
		t.Logf("full and lossy: %s", v.Reason)

		n.run("tc qdisc change dev eth1 root netem rate 4mbit loss 0%")
		n.until(time.Minute, "full alone", is(plugins.None, true, false))
		t.Logf("full: %s", v.Reason)
		n.run("tc qdisc change dev eth1 root netem rate 2mbit loss 5%")
		n.until(time.Minute, "lossy alone", is(plugins.None, false, true))
		t.Logf("lossy: %s", v.Reason)
		n.throughout(2*time.Second, func() {
			v, _ = n.onLink("eth1")
			require.Equal(t, plugins.None, v.Level, v.Reason)
		})
	}
}

// met says whether the link was found full, and TCP to send again, as wanted.
func met(v plugins.Verdict, full, again bool) bool {
	isFull, isAgain := false, false
	for _, e := range v.Evidence {
		if e.Threshold == plugins.DefaultNetworkContention().Retransmits {
			isAgain = e.Met
		} else {
			isFull = isFull || e.Met
		}
	}
	return isFull == full && isAgain == again
}
