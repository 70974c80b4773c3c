package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func configured(t *testing.T, text string, changed time.Time) *configuration {
	t.Helper()
	c := newConfiguration()
	live, hints, err := vgdp.ReadNodeAgent("m", map[string]string{"c": text})
	require.NoError(t, err)
	c.changed = changed
	c.set(live, hints)
	return c
}

func agentOf(started time.Time) *agentPod {
	return &agentPod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "velero"}, Node: "n1", Ready: true, ConfigMap: "m", Started: started}
}

// oneMap is an API server with one ConfigMap, or one that fails.
type oneMap struct {
	corev1client.CoreV1Interface
	corev1client.ConfigMapInterface
	version, text string
	changed       time.Time
	err           error
}

func (m *oneMap) ConfigMaps(string) corev1client.ConfigMapInterface { return m }

func (m *oneMap) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: m.version, CreationTimestamp: metav1.NewTime(m.changed)}, Data: map[string]string{"c": m.text}}, m.err
}

func TestNodeAgentStartedConfig(t *testing.T) {
	m := &oneMap{version: "1", changed: noon(), text: `{"loadConcurrency":{"globalConfig":2,"prepareQueueLength":3}}`}
	c := newConfiguration()
	at := func(d time.Duration) time.Time { return noon().Add(time.Hour + d) }
	read := func(now time.Time, agents ...*agentPod) bool {
		return c.read(t.Context(), m, Velero{Namespace: "velero"}, agents, now)
	}
	old, restarted := agentOf(at(-time.Minute)), agentOf(at(time.Second))
	assert.True(t, read(at(-time.Second), old))
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2, PrepareLimit: 3}, c.agent(old, nil))
	assert.Zero(t, c.drift)
	assert.False(t, read(at(0), old), "no poll is due")

	m.version, m.changed, m.text = "2", at(0), `{"loadConcurrency":{"globalConfig":8,"prepareQueueLength":9}}`
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2}, c.agent(restarted, nil), "it may have read what was not polled yet")
	assert.True(t, read(at(2*time.Second), old, restarted), "so that a poll is due")
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8, PrepareLimit: 9}, c.agent(restarted, nil))
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2, PrepareLimit: 3}, c.agent(old, nil), "the lower of the two")
	assert.Equal(t, 1, c.drift)
	between := agentOf(at(-time.Second))
	assert.False(t, read(at(3*time.Second), old, restarted, between))
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8}, c.agent(between, nil), "nobody saw what this one read")

	m.err = errAway
	again := agentOf(at(time.Minute))
	assert.False(t, read(at(time.Minute), again))
	require.ErrorContains(t, c.unread, "it cannot be read")
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8}, c.agent(again, nil))
	m.err = nil
	assert.False(t, read(at(61*time.Second), again), "it is not polled again at once")
	assert.True(t, read(at(2*time.Minute), again), "of the same version")
	require.NoError(t, c.unread)
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8, PrepareLimit: 9}, c.agent(again, nil))

	m.version, m.text = "3", "no JSON"
	assert.True(t, read(at(3*time.Minute), again))
	m.err = errAway
	read(at(4*time.Minute), again)
	m.err = nil
	read(at(5*time.Minute), again)
	require.NoError(t, c.unread)
	require.ErrorIs(t, c.invalid, vgdp.ErrNodeAgent, "it stays so")
	m.version, m.text = "4", "{}"
	assert.True(t, read(at(6*time.Minute), again))
	assert.NoError(t, c.invalid)
}

// What node-agents read is not known before the ConfigMap was read once.
func TestNodeAgentConfigAfterFailedRound(t *testing.T) {
	r, v, g := listed(t, &loadServer{t: t, loads: map[string]*unstructured.Unstructured{}})
	v.config, v.core = newConfiguration(), &oneMap{version: "1", changed: noon(), text: `{"loadConcurrency":{"globalConfig":4}}`}
	require.NoError(t, r.cluster.agents.Replace([]any{agentOf(noon().Add(time.Minute))}, ""))
	v.keeper.gates = away{}
	r.observe(t.Context(), r.Settings())
	v.keeper.gates = g
	o, complete := r.observe(t.Context(), r.Settings())
	require.True(t, complete)
	agent, _ := o.Topology.Agent("n1", "velero")
	assert.Equal(t, 4, agent.Concurrency)
}

func TestClockFollowsAPIServer(t *testing.T) {
	var c clock
	asked := time.Now()
	c.set(asked.Truncate(time.Second), asked, asked)
	assert.Zero(t, c.ahead.Load())
	c.set(asked.Add(time.Hour).Truncate(time.Second), asked, asked.Add(time.Millisecond))
	assert.WithinDuration(t, time.Now().Add(time.Hour), c.now(), 2*time.Second)
}
