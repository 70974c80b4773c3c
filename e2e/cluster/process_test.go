package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// writes is how long n writes take, one after the other.
func writes(t *testing.T, c *cluster.Cluster, n int) time.Duration {
	t.Helper()
	start := time.Now()
	for range n {
		_, err := c.Client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return time.Since(start)
}

// reads says whether an object can be read within a short time.
func reads(c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := c.Client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

func TestProcessBreakAndMend(t *testing.T) {
	long(t)
	c := cluster.New(t, bare())
	for _, p := range c.Processes() {
		t.Run(p.Name(), func(t *testing.T) {
			breakAndMend(t, c, p)
		})
	}
}

func breakAndMend(t *testing.T, c *cluster.Cluster, p *cluster.Process) {
	kept, err := c.Client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "kept-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, reads(c))

	require.Error(t, p.Start(), "it runs")
	require.NoError(t, p.Pause())
	require.ErrorIs(t, reads(c), context.DeadlineExceeded, "a paused process says nothing")
	require.NoError(t, p.Resume())
	eventually(t, "it goes on", func() bool { return reads(c) == nil })

	for what, end := range map[string]func() error{
		"killed": p.Kill, "stopped": func() error { return p.Stop(t.Context()) },
	} {
		require.NoError(t, p.Pause(), "a paused process ends as well")
		before := p.PID()
		require.NoError(t, end())
		assert.NoDirExists(t, "/proc/"+itoa(before))
		require.Error(t, reads(c), "%s is %s", p.Name(), what)
		require.NoError(t, p.Start())
		require.NoError(t, p.WaitReady(t.Context()))
		assert.NotEqual(t, before, p.PID())
		eventually(t, "requests are served again", func() bool { return reads(c) == nil })
		_, err = c.Client.CoreV1().ConfigMaps("default").Get(t.Context(), kept.Name, metav1.GetOptions{})
		require.NoError(t, err, "what was stored is there")
	}
}

func TestProcessSlowedAndResumed(t *testing.T) {
	long(t)
	c := cluster.New(t, bare())
	writes(t, c, 5) // connections and caches are warm
	for _, p := range c.Processes() {
		usual := writes(t, c, 100)
		require.NoError(t, p.Slow(0.9))
		require.NoError(t, p.Slow(0.1), "another share")
		slow := writes(t, c, 100)
		require.NoError(t, p.Resume())
		var after time.Duration
		eventually(t, "it is resumed", func() bool { // on a busy machine not at the first look
			after = writes(t, c, 100)
			return slow > 2*after
		})
		t.Logf("%s: a hundred writes %s, slowed to a tenth %s, resumed %s", p.Name(), usual, slow, after)
		assert.Greater(t, slow, 2*usual)
	}
	for _, share := range []float64{-1, 0, 1, 2} {
		assert.Error(t, c.Etcd.Slow(share))
	}
}

func TestProcessSlowedKilled(t *testing.T) {
	long(t)
	c := cluster.New(t, bare())
	require.NoError(t, c.Etcd.Slow(0.5))
	require.NoError(t, c.Etcd.Kill())
	require.Error(t, c.Etcd.Pause())
	require.NoError(t, c.Etcd.Start())
	require.NoError(t, c.Etcd.WaitReady(t.Context()))
	require.NoError(t, c.Etcd.Kill())
	require.NoError(t, c.Etcd.Kill(), "what has ended can be ended")
	require.ErrorContains(t, c.Etcd.WaitReady(t.Context()), "etcd ended (signal: killed)")
}
