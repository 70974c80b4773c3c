package kube

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	corev1 "k8s.io/api/core/v1"
)

// katalysts is a CustomNodeResource as Katalyst writes it, with a field of a
// taint and one of a condition that nobody here knows.
const katalysts = `{
  "metadata": {"name": "n1", "annotations": {"other": "x"}},
  "spec": {"taints": [{"key": "node.katalyst.kubewharf.io/a", "value": "", "effect": "NoSchedule", "qosLevel": "shared_cores", "later": 7}]},
  "status": {"topologyPolicy": "None", "conditions": [{"type": "AgentReady", "status": "True", "probed": "yes"}]}
}`

// repatched is the object after a patch, or the error of its tests.
func repatched(t *testing.T, object string, patch []byte) (string, error) {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	require.NoError(t, err)
	after, err := p.Apply([]byte(object))
	return string(after), err
}

func cnrOf(t *testing.T, object string) *CNR {
	t.Helper()
	c, err := parseCNR([]byte(object))
	require.NoError(t, err)
	return c
}

func TestCNRTaintPatchBesideOthers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := []corev1.Taint{{Key: "plimsoll.dev/NUMA", Effect: "reclaimed_cores/NoSchedule"}}
	c := cnrOf(t, katalysts)
	patch, changed := taintPatch(&c.node, c, want, now)
	require.True(t, changed)
	tainted, err := repatched(t, katalysts, patch)
	require.NoError(t, err)
	assert.Contains(t, tainted, `{"key":"node.katalyst.kubewharf.io/a","value":"","effect":"NoSchedule","qosLevel":"shared_cores","later":7}`)
	assert.Contains(t, tainted, `{"key":"plimsoll.dev/NUMA","effect":"NoSchedule","qosLevel":"reclaimed_cores"}`)

	c = cnrOf(t, tainted)
	assert.Equal(t, []evict.OwnTaint{{Key: "plimsoll.dev/NUMA", Effect: "reclaimed_cores/NoSchedule", Since: c.Owned()[0].Since}}, c.Owned())
	_, again := taintPatch(&c.node, c, want, now.Add(time.Hour))
	assert.False(t, again)
	patch, changed = taintPatch(&c.node, c, nil, now)
	require.True(t, changed)
	after, err := repatched(t, tainted, patch)
	require.NoError(t, err)
	assert.JSONEq(t, katalysts, after, "as if nothing had been")
}

func TestCNRTaintPatchConcurrentWriter(t *testing.T) {
	c := cnrOf(t, `{"metadata": {}, "spec": {}}`)
	patch, changed := taintPatch(&c.node, c, []corev1.Taint{{Key: "plimsoll.dev/NUMA", Effect: "reclaimed_cores/NoSchedule"}}, time.Unix(0, 0))
	require.True(t, changed)
	_, err := repatched(t, katalysts, patch)
	require.Error(t, err, "the patch fails its test")
}

func TestCNRConditionPatchWhenMeaningful(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := []evict.Condition{{Type: "plimsoll.dev/NUMA", Status: corev1.ConditionTrue, Reason: "Hard", Message: "9 of 8"}}
	patch, changed, err := cnrOf(t, katalysts).conditionPatch(want, now)
	require.NoError(t, err)
	require.True(t, changed)
	marked, err := repatched(t, katalysts, patch)
	require.NoError(t, err)
	var o struct {
		Status struct{ Conditions []map[string]string }
	}
	require.NoError(t, json.Unmarshal([]byte(marked), &o))
	assert.Equal(t, []map[string]string{
		{"type": "AgentReady", "status": "True", "probed": "yes"},
		{"type": "plimsoll.dev/NUMA", "status": "True", "reason": "Hard", "message": "9 of 8", "lastHeartbeatTime": "2026-03-01T12:00:00Z"},
	}, o.Status.Conditions)

	for name, c := range map[string]struct {
		want    []evict.Condition
		after   time.Duration
		written bool
	}{
		"nothing new":      {want, time.Minute, false},
		"a number alone":   {[]evict.Condition{{Type: want[0].Type, Status: want[0].Status, Reason: "Hard", Message: "10 of 8"}}, time.Minute, false},
		"another reason":   {[]evict.Condition{{Type: want[0].Type, Status: want[0].Status, Reason: "Soft"}}, time.Minute, true},
		"long not written": {want, cnrHeartbeat, true},
		"another type":     {[]evict.Condition{{Type: "plimsoll.dev/B", Status: want[0].Status, Reason: "Hard"}}, time.Minute, true},
		"none any more":    {nil, time.Minute, true},
	} {
		_, changed, err := cnrOf(t, marked).conditionPatch(c.want, now.Add(c.after))
		require.NoError(t, err)
		assert.Equal(t, c.written, changed, name)
	}
	patch, _, err = cnrOf(t, marked).conditionPatch(nil, now)
	require.NoError(t, err)
	after, err := repatched(t, marked, patch)
	require.NoError(t, err)
	assert.JSONEq(t, katalysts, after)
}

func TestCNRUnreadableNamesPlace(t *testing.T) {
	for place, object := range map[string]string{"taints": `{"spec":{"taints":[7]}}`, "conditions": `{"status":{"conditions":["x"]}}`} {
		c, err := parseCNR([]byte(object))
		if err == nil {
			_, _, err = c.conditionPatch(nil, time.Unix(0, 0))
		}
		require.ErrorContains(t, err, place)
	}
}
