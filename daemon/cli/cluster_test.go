package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/remote"
	"github.com/plimsoll-dev/plimsoll/lease"
)

func TestNodeLine(t *testing.T) {
	for want, n := range map[string]remote.Node{
		"none":                          {Judged: true},
		"none; not judged: cpu, memory": {Judged: true, NotJudged: []string{"cpu", "memory"}},
		"cpu soft (reported)":           {Judged: true, Reported: map[string]string{"cpu": "soft"}},
		"disk hard, cpu soft (reported); not judged: memory": {Judged: true, Pressure: map[string]string{"disk": "hard"}, Reported: map[string]string{"cpu": "soft"}, NotJudged: []string{"memory"}},
		"unknown, was none; not judged: cpu":                 {Judged: true, Silent: true, NotJudged: []string{"cpu"}},
		"unknown":                                            {},
	} {
		assert.Equal(t, want, nodeLine(&n, false)[3])
	}
	for want, seconds := range map[string]float64{"2 min ago": 120, "10 min ahead": -600} {
		assert.Equal(t, want, nodeLine(&remote.Node{HeartbeatSeconds: &seconds}, false)[2])
	}
	assert.Equal(t, []string{"", "silent", "-", "unknown", "unknown"}, nodeLine(&remote.Node{Silent: true}, false), "its Lease has no renewTime")
	for want, unknown := range map[string][]string{"none": {"Network eth0"}, "unknown: Disk sda": {"Disk sda", "Network eth0"}} {
		n := remote.Node{Contention: &lease.NodeContention{Unknown: unknown}}
		assert.Equal(t, want, nodeLine(&n, false)[4], "no kernel tells who waits for a link")
	}
}

func TestWhoLine(t *testing.T) {
	line := func(coverage float64, culprits ...lease.Workload) []string {
		r := remote.Contention{Node: "worker-2", ResourceContention: lease.ResourceContention{
			Resource: "disk", Device: "sda", Coverage: &coverage, Culprits: culprits, Sufferers: []lease.Workload{{Name: "shop/db-0", Ratio: 0.38}},
		}}
		return whoLine(&r, true)[4:]
	}
	dns, db := lease.Workload{Name: "kube-system/coredns", Ratio: 0.01}, lease.Workload{Name: "shop/db-0", Ratio: 0.2}
	du := lease.Workload{Name: "batch/du", Ratio: 0.71, Throttled: 20}
	assert.Equal(t, []string{"batch/du", "71.0 %, throttled to 20 %", "94.0 %", "-", "shop/db-0 20.0 %"}, line(0.94, du, db))
	assert.Equal(t, []string{"-", "-", "12.0 %", "-", "kube-system/coredns 1.0 %"}, line(0.12, dns), "it is no culprit")
}

// Four pods wait, and a heartbeat names three: that none of the namespace is named is no all-clear.
func TestWhoOfUnnamedPod(t *testing.T) {
	r := lease.ResourceContention{Resource: "disk", Device: "sda"}
	for _, name := range []string{"a/a", "b/b", "c/c", "shop/db"} {
		r.Sufferers = append(r.Sufferers, lease.Workload{Kind: "pod", Name: name, Ratio: 0.4})
	}
	n, err := lease.ReadContention(map[string]string{lease.ContentionAnnotation: lease.NodeContention{Resources: []lease.ResourceContention{r}}.Encode()})
	require.NoError(t, err)
	all := remote.Overview{Nodes: []remote.Node{{Name: "worker-2", Contention: &n}}}
	var b strings.Builder
	c := &cobra.Command{}
	c.SetOut(&b)
	require.NoError(t, writeWho(c, all.Contentions("shop"), "shop", false))
	assert.Equal(t, "0 contentions of namespace shop reported by 1 of 1 node.\n"+
		"Not all is known of 1 node: the heartbeat does not name all workloads of a contention (plimsoll top NODE): worker-2\n", b.String())
}

func TestReportPrintable(t *testing.T) {
	var b strings.Builder
	report(&b, errors.Join(fmt.Errorf("\x1b[2J: no"), errors.New("second")))
	assert.Equal(t, "plimsoll: \\x1b[2J: no\nplimsoll: second\n", b.String())
}
