package doctor

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// clusterOf answers a GET of a path by what stands for it; "forbidden" refuses,
// and what is not named is not found.
func clusterOf(t *testing.T, answers map[string]string) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, there := answers[r.URL.Path]
		if !there && strings.HasPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io") {
			text, there = answers["policies"]
		}
		code, reason := http.StatusOK, ""
		switch {
		case text == "forbidden":
			code, reason = http.StatusForbidden, "Forbidden"
		case !there:
			code, reason = http.StatusNotFound, "NotFound"
		}
		w.WriteHeader(code)
		if reason != "" {
			text = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

func workloads(image string, args ...string) string {
	list, _ := json.Marshal(args)
	return fmt.Sprintf(`{"items":[{"metadata":{"namespace":"kube-system","name":"it"},"spec":{"template":{"spec":{"containers":[{"image":%q,"args":%s}]}}}}]}`, image, list)
}

func TestProgramsThatActOnOurTaintsAreNamed(t *testing.T) {
	const deployments, maps = "/apis/apps/v1/deployments", "/api/v1/namespaces/kube-system/configmaps"
	var known []string
	for _, key := range taintKeys() {
		known = append(known, "--status-taint="+key)
	}
	policy := func(excluded string) string {
		text, _ := json.Marshal("name: RemovePodsViolatingNodeTaints\nargs: {excludedTaints: [" + excluded + "]}")
		return fmt.Sprintf(`{"items":[{"data":{"policy.yaml":%s}}]}`, text)
	}
	for name, c := range map[string]struct {
		answers map[string]string
		want    Row
	}{
		"an autoscaler that knows none": {map[string]string{deployments: workloads("r.k8s.io/autoscaling/cluster-autoscaler:v1")}, Row{Warn, "cluster-autoscaler", "--status-taint=plimsoll.dev/MemoryContention "}},
		"an autoscaler that lacks one":  {map[string]string{deployments: workloads("r/cluster-autoscaler:v1", known[1:]...)}, Row{Warn, "cluster-autoscaler", "add --status-taint=plimsoll.dev/MemoryContention"}},
		"an autoscaler that knows all":  {map[string]string{deployments: workloads("r/cluster-autoscaler:v1", known...)}, Row{Pass, "cluster-autoscaler", ""}},
		"a descheduler for taints":      {map[string]string{deployments: workloads("r/descheduler:v1"), maps: policy("")}, Row{Warn, "descheduler", "excludedTaints: [plimsoll.dev/MemoryContention, "}},
		"a descheduler that spares us":  {map[string]string{deployments: workloads("r/descheduler:v1"), maps: policy(strings.Join(taintKeys(), ", "))}, Row{Pass, "descheduler", ""}},
		"a descheduler for others":      {map[string]string{deployments: workloads("r/descheduler:v1"), maps: `{"items":[]}`}, Row{Pass, "descheduler", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			c.answers["policies"] = "forbidden"
			rows := neighbours(t.Context(), clusterOf(t, c.answers))
			require.Len(t, rows, 1)
			assert.Equal(t, c.want.Result, rows[0].Result, rows[0].Finding)
			assert.Equal(t, c.want.Check, rows[0].Check)
			assert.Contains(t, rows[0].Finding, c.want.Finding)
		})
	}
	assert.Empty(t, neighbours(t.Context(), clusterOf(t, map[string]string{"policies": "forbidden", deployments: "forbidden"})), "an agent sees nothing of it")
}

func TestAPolicyOrBindingThatIsMissingIsNamed(t *testing.T) {
	rows := neighbours(t.Context(), clusterOf(t, map[string]string{"policies": "{}"}))
	require.Len(t, rows, 1)
	assert.Equal(t, Row{Pass, "admission policies", "all 4 that bind agents to their nodes, with their bindings"}, rows[0])

	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
	rows = neighbours(t.Context(), clusterOf(t, map[string]string{policies + "plimsoll-agent-node": "{}"}))
	require.Len(t, rows, 1)
	assert.Equal(t, Fail, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "7 of 8 missing: ValidatingAdmissionPolicyBinding plimsoll-agent-node, ")
}
