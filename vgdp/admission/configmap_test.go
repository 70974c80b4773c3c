package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	return &agentPod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Node: "n1", Ready: true, Started: started}
}

func TestNodeAgentStartedConfig(t *testing.T) {
	c := configured(t, `{"loadConcurrency":{"globalConfig":2,"prepareQueueLength":3}}`, noon())
	old := agentOf(noon().Add(time.Minute))
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2, PrepareLimit: 3}, c.agent(old, nil))
	assert.Zero(t, c.drift)

	live, _, err := vgdp.ReadNodeAgent("m", map[string]string{"c": `{"loadConcurrency":{"globalConfig":8,"prepareQueueLength":9}}`})
	require.NoError(t, err)
	c.changed = noon().Add(time.Hour)
	c.set(live, nil)
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2, PrepareLimit: 3}, c.agent(old, nil), "the lower of the two")
	assert.Equal(t, 1, c.drift)
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8, PrepareLimit: 9}, c.agent(agentOf(noon().Add(2*time.Hour)), nil), "it was restarted")
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 8}, c.agent(agentOf(noon().Add(30*time.Minute)), nil), "nobody saw what this one read")
}

func TestClockFollowsAPIServer(t *testing.T) {
	var c clock
	asked := time.Now()
	c.set(asked.Truncate(time.Second), asked, asked)
	assert.Zero(t, c.ahead.Load())
	c.set(asked.Add(time.Hour).Truncate(time.Second), asked, asked.Add(time.Millisecond))
	assert.WithinDuration(t, time.Now().Add(time.Hour), c.now(), 2*time.Second)
}
