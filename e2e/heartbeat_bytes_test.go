package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// walBytes is what etcd has written into its log so far.
func walBytes(t *testing.T, c *cluster.Cluster) float64 {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Etcd.PID()))
	require.NoError(t, err)
	for arg := range bytes.SplitSeq(line, []byte{0}) {
		at, is := strings.CutPrefix(string(arg), "--listen-client-urls=")
		if !is {
			continue
		}
		status, body, err := get(http.DefaultClient, at+"/metrics")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		found := regexp.MustCompile(`(?m)^etcd_disk_wal_write_bytes_total (\S+)$`).FindStringSubmatch(body)
		require.NotNil(t, found)
		n, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		return n
	}
	t.Fatal("etcd has no address")
	return 0
}

// The load on etcd, of which nobody else writes anything: a small Lease every 10 s and a
// status when it means something, beside a status every 10 s.
func heartbeatBytesInEtcd(t *testing.T, c *cluster.Cluster) {
	const writes = 60
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	_, err := c.AddNode(t.Context(), "weighed", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := contextWithoutCancel(t)
		assert.NoError(t, c.Client.CoreV1().Nodes().Delete(ctx, "weighed", metav1.DeleteOptions{}))
		assert.NoError(t, gone(c.Client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, "weighed", metav1.DeleteOptions{})))
	})

	status := func(i int) {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"%s %d","lastHeartbeatTime":%q}]}}`,
			strings.Repeat("x", 14_000), i, time.Now().UTC().Format(time.RFC3339))
		_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "weighed", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	status(0)
	base := walBytes(t, c)
	for i := range writes {
		status(i + 1)
	}
	perStatus := (walBytes(t, c) - base) / writes
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), "weighed", metav1.GetOptions{})
	require.NoError(t, err)

	line, err := lease.NewConnection(agentToken(t, c))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	beaten, ended := make(chan lease.Attempt), make(chan struct{})
	b := &lease.Heartbeat{
		Node: "weighed", Namespace: lease.Namespace, Holder: "plimsoll-agent/weighed", Connection: line,
		Interval: 50 * time.Millisecond, Duration: 40 * time.Second, Uptime: bootTime,
		Annotations: func() map[string]string {
			return map[string]string{lease.NodeAnnotation: `{"pressure":{"disk":"soft"}}`}
		},
		OnAttempt: func(a lease.Attempt) { beaten <- a },
	}
	go func() {
		defer close(ended)
		assert.NoError(t, b.Run(ctx))
	}()
	for range 3 {
		<-beaten
	}
	base = walBytes(t, c)
	begin := time.Now()
	for n := 0; n < writes; {
		if a := <-beaten; a.Err == nil {
			n++
		} else {
			t.Log("tried again: ", a.Err)
		}
	}
	took := time.Since(begin)
	perBeat := (walBytes(t, c) - base) / writes
	stop()
	select { // it may be telling of one more
	case <-beaten:
	case <-ended:
	}
	<-ended

	const beats, reports = 360, 3600 / 262.5
	whole, ours := beats*perStatus, beats*perBeat+reports*perStatus
	t.Logf("into etcd's log: a status of %d bytes (as protobuf) %.0f, a renewal %.0f; of a node and hour: status every 10 s %.0f kB, Lease and reports %.0f kB (the Lease alone %.0f kB): %.1f times less (%s)",
		node.Size(), perStatus, perBeat, whole/1e3, ours/1e3, beats*perBeat/1e3, whole/ours, took.Round(time.Millisecond))
	assert.Greater(t, whole/ours, 6.0)
}
