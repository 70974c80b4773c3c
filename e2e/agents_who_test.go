package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// busyNode is a large report: two disks, with all workloads that a report names.
func busyNode(i int) string {
	var n lease.NodeContention
	for _, device := range []string{"nvme0n1", "nvme1n1"} {
		r := lease.ResourceContention{Resource: "disk", Device: device, Coverage: new(0.94)}
		for w := range 3 {
			name := fmt.Sprintf("team-%d/workload-%d-7d4b9c6f5-x%04d", i%50, w, i)
			r.Culprits = append(r.Culprits, lease.Workload{Kind: "pod", Name: "batch-" + name, Ratio: 0.3})
			r.Sufferers = append(r.Sufferers, lease.Workload{Kind: "pod", Name: name, Ratio: 0.38})
		}
		n.Resources = append(n.Resources, r)
	}
	n.Version = "v1.2.3"
	return n.Encode()
}

func whoOfManyAgents(t *testing.T, c *cluster.Cluster) {
	n, interval := 100, 2*time.Second
	if os.Getenv("PLIMSOLL_LONG") != "" {
		n, interval = 5000, 10*time.Second
	}
	b := newBeats(t, c, 0, "")
	b.populate(n, 8)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{lease.ContentionAnnotation: busyNode(i)}}})
				if err == nil {
					_, err = c.Client.CoordinationV1().Leases(lease.Namespace).Patch(t.Context(), b.names[i], types.MergePatchType, body, metav1.PatchOptions{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
	b.many(32, interval)
	type answer struct {
		Contentions []struct{ Node string }
		Nodes       int
	}
	ask := func() (who answer, size int) {
		status, stdout, stderr := run(t, "who", "-o", "json", "--kubeconfig", c.Kubeconfig)
		require.Zero(t, status, stderr)
		decode(t, stdout, &who)
		return who, len(stdout)
	}
	within(t, interval+patience, "all agents renew", func() error { // some have expired since they were made
		who, _ := ask()
		return wanted(len(who.Contentions), 2*n)
	})
	const times = 5
	for range times {
		clock := deadline.Start()
		start := time.Now()
		who, size := ask()
		took := time.Since(start)
		t.Logf("%d agents, %d contentions: %s, %d bytes printed", who.Nodes, len(who.Contentions), took.Round(time.Millisecond), size)
		assert.Equal(t, n, who.Nodes)
		assert.Len(t, who.Contentions, 2*n)
		assert.Less(t, took, clock.Stretch(2*2*time.Second), "promised: 2 s for 5,000 agents")
	}
}
