package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// clusterOf answers a GET of a path by what stands for it; "forbidden" refuses,
// and what is not named is not found.
func clusterOf(t *testing.T, answers map[string]string) kubernetes.Interface {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, there := answers[r.URL.Path]
		for _, of := range []string{"/apis/admissionregistration.k8s.io/", "/apis/flowcontrol.apiserver.k8s.io/", "/apis/apiextensions.k8s.io/"} {
			if !there && strings.HasPrefix(r.URL.Path, of) {
				text, there = answers["ours"]
			}
		}
		if text == "gone" {
			there = false
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
	return clientOf(t, &rest.Config{Host: s.URL})
}

func clientOf(t *testing.T, how *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(how)
	require.NoError(t, err)
	return client
}

// discovered are the kinds of Kubernetes 1.37, for clusterOf, and a Gate.
func discovered(more map[string]string) map[string]string {
	all := map[string]string{
		"/version": `{"gitVersion":"v1.37.1"}`, "/apis/plimsoll.dev/v1alpha1": `{"resources":[{"name":"gates"}]}`,
		"/apis/admissionregistration.k8s.io/v1": `{"resources":[{"name":"validatingadmissionpolicies"},{"name":"mutatingadmissionpolicies"}]}`, "/apis/admissionregistration.k8s.io/v1beta1": "gone",
	}
	maps.Copy(all, more)
	return all
}

func workloads(image string, args ...string) string {
	list, _ := json.Marshal(args)
	return fmt.Sprintf(`{"items":[{"metadata":{"namespace":"kube-system","name":"it"},"spec":{"template":{"spec":{"containers":[{"image":%q,"args":%s}]}}}}]}`, image, list)
}

func TestDoctorNeighboursOfTaints(t *testing.T) {
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
			c.answers["ours"] = "forbidden"
			rows := neighbours(t.Context(), clusterOf(t, discovered(c.answers)), true, time.Now())
			require.Equal(t, allCapable(), rows[0])
			rows = rows[1:]
			require.Len(t, rows, 1)
			assert.Equal(t, c.want.Result, rows[0].Result, rows[0].Finding)
			assert.Equal(t, c.want.Check, rows[0].Check)
			assert.Contains(t, rows[0].Finding, c.want.Finding)
		})
	}
	assert.Equal(t, []Row{allCapable()}, neighbours(t.Context(), clusterOf(t, discovered(map[string]string{"ours": "forbidden", deployments: "forbidden"})), true, time.Now()), "an agent sees nothing of it")
}

func allCapable() Row {
	return Row{Pass, "capability", "this cluster has what these need: bind-agents, hold, hide, steer"}
}

func TestDoctorMissingPolicies(t *testing.T) {
	rows := neighbours(t.Context(), clusterOf(t, discovered(map[string]string{"ours": "{}"})), true, time.Now())
	assert.Equal(t, []Row{
		{Pass, "admission policies", "all 5 that bind agents to their nodes, with their bindings, are installed"},
		{Pass, "priority level", "heartbeats have their own"},
		{Pass, "gate", "all 13 objects: kind, policies and bindings"},
		allCapable(),
	}, rows)

	const (
		admission  = "/apis/admissionregistration.k8s.io/v1/"
		validating = admission + "validatingadmissionpolicies/"
		binding    = admission + "validatingadmissionpolicybindings/"
		mutating   = admission + "mutatingadmissionpolicies/"
		mutates    = admission + "mutatingadmissionpolicybindings/"
		flow       = "/apis/flowcontrol.apiserver.k8s.io/v1/"
		kind       = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gates.plimsoll.dev"
	)
	for gone, want := range map[string]Row{
		validating + "plimsoll-agent-node":                       {Fail, "admission policies", "1 of 10 missing: ValidatingAdmissionPolicy plimsoll-agent-node: an agent's token is not bound"},
		binding + "plimsoll-lease-annotations":                   {Fail, "admission policies", "1 of 10 missing: ValidatingAdmissionPolicyBinding plimsoll-lease-annotations: "},
		flow + "flowschemas/plimsoll-heartbeats":                 {Warn, "priority level", "1 of 2 missing: FlowSchema plimsoll-heartbeats: heartbeats share a priority level"},
		flow + "prioritylevelconfigurations/plimsoll-heartbeats": {Warn, "priority level", "1 of 2 missing: PriorityLevelConfiguration plimsoll-heartbeats: "},
		kind:                                  {Fail, "gate", "1 of 7 missing: CustomResourceDefinition gates.plimsoll.dev: "},
		validating + "plimsoll-admit":         {Fail, "gate", "1 of 7 missing: ValidatingAdmissionPolicy plimsoll-admit: "},
		binding + "plimsoll-load-annotations": {Fail, "gate", "1 of 7 missing: ValidatingAdmissionPolicyBinding plimsoll-load-annotations: "},
		mutating + "plimsoll-release-hidden":  {Warn, "gate", "1 of 6 missing: MutatingAdmissionPolicy plimsoll-release-hidden: held data mover loads are not hidden"},
		mutates + "plimsoll-steer":            {Warn, "gate", "1 of 6 missing: MutatingAdmissionPolicyBinding plimsoll-steer: "},
	} {
		r := row(t, neighbours(t.Context(), clusterOf(t, discovered(map[string]string{"ours": "{}", gone: "gone"})), true, time.Now()), want.Check)
		assert.Equal(t, want.Result, r.Result, gone)
		assert.Contains(t, r.Finding, want.Finding)
	}
}

func TestDoctorCronJobHides(t *testing.T) {
	job := fmt.Sprintf(`{"status":{"lastSuccessfulTime":%q}}`, time.Now().UTC().Format(time.RFC3339))
	r := row(t, neighbours(t.Context(), clusterOf(t, discovered(map[string]string{
		"ours": "{}", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/plimsoll-steer": "gone",
		"/apis/batch/v1/namespaces/plimsoll-system/cronjobs/plimsoll-release-hidden": job,
	})), true, time.Now()), "gate")
	assert.Equal(t, Row{Warn, "gate", "1 of 6 missing: MutatingAdmissionPolicy plimsoll-steer: movers may be scheduled to nodes that take none (apply deploy/gate-mutating.yaml)"}, r)
}

func TestDoctorGateNotInstalled(t *testing.T) {
	rows := neighbours(t.Context(), clusterOf(t, discovered(nil)), true, time.Now())
	assert.Equal(t, Pass, row(t, rows, "gate").Result, "who wants no load held has none of it")
	assert.Equal(t, Fail, row(t, rows, "admission policies").Result)
	assert.Equal(t, Warn, row(t, rows, "priority level").Result)
	assert.Len(t, rows, 3, "there is nothing to hide, and nothing to steer")
}

func TestDoctorCapabilities(t *testing.T) {
	const v1, beta = "/apis/admissionregistration.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1beta1"
	old := discovered(map[string]string{"ours": "{}", "/version": `{"gitVersion":"v1.34.4"}`, v1: `{"resources":[{"name":"validatingadmissionpolicies"}]}`, beta: "{}"})
	rows := neighbours(t.Context(), clusterOf(t, old), true, time.Now())
	assert.Equal(t, Row{Pass, "gate", "all 7 objects that this cluster has the kinds for"}, row(t, rows, "gate"))
	var missing []string
	for _, r := range rows {
		if r.Check == "capability" {
			assert.Equal(t, Warn, r.Result)
			name, finding, _ := strings.Cut(r.Finding, " ")
			missing = append(missing, name)
			assert.Contains(t, finding, "Kubernetes 1.34.4 serves no MutatingAdmissionPolicy")
		}
	}
	assert.Equal(t, []string{"hide", "steer"}, missing)

	rows = neighbours(t.Context(), clusterOf(t, old), false, time.Now())
	assert.Equal(t, Row{Pass, "capability", "this cluster has what these need: bind-agents"}, row(t, rows, "capability"), "without Velero")

	old[beta] = `{"resources":[{"name":"mutatingadmissionpolicies"}]}`
	assert.Equal(t, Row{Pass, "gate", "all 13 objects: kind, policies and bindings"}, row(t, neighbours(t.Context(), clusterOf(t, old), true, time.Now()), "gate"))
	old[beta+"/mutatingadmissionpolicies/plimsoll-steer"] = "gone"
	r := row(t, neighbours(t.Context(), clusterOf(t, old), true, time.Now()), "gate")
	assert.Equal(t, Warn, r.Result)
	assert.Contains(t, r.Finding, "(apply deploy/gate-mutating-v1beta1.yaml)")
}
