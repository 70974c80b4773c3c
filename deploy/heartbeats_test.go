package deploy

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server says in its answer which level a request went through.
func TestHeartbeatPriorityLevel(t *testing.T) {
	a := twoNodes(t)
	level, err := a.c.Client.FlowcontrolV1().PriorityLevelConfigurations().Get(t.Context(), "plimsoll-heartbeats", metav1.GetOptions{})
	require.NoError(t, err)
	schema, err := a.c.Client.FlowcontrolV1().FlowSchemas().Get(t.Context(), "plimsoll-heartbeats", metav1.GetOptions{})
	require.NoError(t, err)
	beat := request{method: http.MethodPatch, path: heartbeat, kind: mergePatch, body: `{"spec":{"holderIdentity":"NODE"}}`}.of("mine")
	eventually(t, "a beat goes through its own level", func() error {
		status, header, answer := send(t, a.ofPod, beat.method, beat.path, beat.kind, beat.body)
		require.Equal(t, http.StatusOK, status, answer)
		through := [2]string{header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID), header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)}
		if own := [2]string{string(schema.UID), string(level.UID)}; through != own {
			return fmt.Errorf("through schema and level %v, its own are %v", through, own)
		}
		return nil
	})
	_, _, metrics := send(t, a.c.Admin, http.MethodGet, "/metrics", "", "")
	// 5 of the 250 shares of all levels, of 400 + 200 requests in flight.
	assert.Contains(t, metrics, `apiserver_flowcontrol_nominal_limit_seats{priority_level="plimsoll-heartbeats"} 12`)
	for _, other := range []string{"/api/v1/pods", "/api/v1/nodes/mine"} {
		_, header, _ := send(t, a.ofPod, http.MethodGet, other, "", "")
		assert.NotEqual(t, string(level.UID), header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID), other)
	}
	for _, status := range schema.Status.Conditions {
		if status.Type == flowcontrolv1.FlowSchemaConditionDangling {
			assert.Equal(t, flowcontrolv1.ConditionFalse, status.Status, status.Message)
		}
	}
}

func TestHeartbeatAudit(t *testing.T) {
	a := twoNodes(t)
	for _, r := range []request{
		{method: http.MethodGet, path: heartbeat},
		{method: http.MethodPatch, path: heartbeat, kind: mergePatch, body: `{"spec":{"holderIdentity":"NODE"}}`},
		{method: http.MethodPost, path: heartbeats, kind: plain, body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"NODE"},"spec":{"holderIdentity":"NODE"}}`},
	} {
		r = r.of("mine")
		send(t, a.ofNode, r.method, r.path, r.kind, r.body)
	}
	verbs := func() map[string]bool {
		log, err := os.ReadFile(auditLog)
		require.NoError(t, err)
		found := map[string]bool{}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"username":"system:serviceaccount:plimsoll-system:plimsoll-agent"`) && strings.Contains(line, `"resource":"leases","namespace":"plimsoll-node-lease"`) {
				_, verb, _ := strings.Cut(line, `"verb":"`)
				verb, _, _ = strings.Cut(verb, `"`)
				found[verb] = true
			}
		}
		return found
	}
	eventually(t, "the one that was made is on record", func() error { // requests are recorded as they end
		if !verbs()["create"] {
			return fmt.Errorf("on record: %v", verbs())
		}
		return nil
	})
	assert.NotContains(t, verbs(), "get")
	assert.NotContains(t, verbs(), "patch")
}
