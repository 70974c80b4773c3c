package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// withoutMutating is an API server that serves no MutatingAdmissionPolicy, as those
// before Kubernetes 1.36 do not.
func withoutMutating(t *testing.T) cluster.Options {
	t.Helper()
	const of = "admissionregistration.k8s.io/v1/mutatingadmissionpolic"
	o := withoutKubelets()
	o.Args = map[string][]string{}
	is, err := cluster.Pinned(cluster.APIServer)
	require.NoError(t, err)
	if version.MustParseGeneric(is).LessThan(version.MajorMinor(1, 36)) { // whose oldest do not know the flags
		return o
	}
	o.Args = map[string][]string{cluster.APIServer: {
		"--feature-gates=MutatingAdmissionPolicy=false", "--runtime-config=" + of + "ies=false," + of + "ybindings=false",
	}}
	return o
}

// capability as an API tells it.
type capability struct{ Capability, State, Reason, Consequence string }

func capabilities(t *testing.T, text string) map[string]capability {
	t.Helper()
	var list []capability
	require.NoError(t, json.Unmarshal([]byte(text), &list), text)
	all := map[string]capability{}
	for _, c := range list {
		all[c.Capability] = c
	}
	return all
}

// A cluster that serves no MutatingAdmissionPolicy. Its kube-controller-manager knows what
// makes pods of a CronJob, and misses no kubelet; afterwards nobody is there who would.
func TestLoadsWithoutMutatingPolicies(t *testing.T) {
	t.Parallel()
	o := withoutMutating(t)
	o.Without = nil
	o.Args[cluster.ControllerManager] = []string{"--controllers=cronjob-controller,job-controller,serviceaccount-controller"}
	c := cluster.New(t, o)
	t.Run("are released on schedule", func(t *testing.T) { releaseHiddenOnSchedule(t, c) })
	for _, p := range []*cluster.Process{c.ControllerManager, c.Scheduler} {
		require.NoError(t, p.Kill())
	}
	c.ControllerManager, c.Scheduler = nil, nil
	t.Run("are hidden", func(t *testing.T) { loadsWithoutMutatingPolicies(t, c) })
}

// What is missing is told everywhere, and loads are hidden as soon as a CronJob would
// release them.
func loadsWithoutMutatingPolicies(t *testing.T, c *cluster.Cluster) {
	const loads = 12
	h := newVeleroWorld(t, c, 3, `{"loadConcurrency":{"globalConfig":20,"prepareQueueLength":1}}`, fmt.Sprint(", hideAbove: 4, diagnoseAfter: 0s, leaseDuration: ", deadline.Scale(8*time.Second)))
	h.agents.Concurrency, h.agents.Prepares = 20, time.Hour
	h.report(h.nodes[0], lease.NodeReport{})
	a := h.controller().start()
	for i := range loads {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	h.holds()
	h.refuses("du-0", "du-1") // one of which may have the ticket
	stop := h.runAgents()
	h.become(1, vgdp.Accepted)
	eventually(t, "the controller tells that they are not hidden", func() error {
		if l := loadsOf(a); len(l.Veleros) != 1 || l.Veleros[0].NotHidden == "" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	assert.Zero(t, h.hiddenLoads())
	h.tellsWhatIsMissing(a)
	h.cronJob()
	a.end(syscall.SIGTERM)
	a = h.controller().start()
	within(t, 2*patience, "they are hidden", func() error { return wanted(h.hiddenLoads(), loads-1) })
	assert.Equal(t, "available", capabilities(t, a.mustGet("/api/v1/capabilities"))["hide"].State)
	h.nothingIsRefused()
	h.releasedByTheJob(a, loads-1)
	h.become(loads, vgdp.Accepted)
	stop()
}

// refuses waits until the API server knows the Gate: it refuses one of the loads.
func (h *veleroWorld) refuses(loadNames ...string) {
	h.t.Helper()
	loads := h.client.Resource(admission.Resource(vgdp.DataUpload)).Namespace(h.namespace)
	within(h.t, 2*patience, "the API server knows the Gate", func() error {
		for _, name := range loadNames {
			_, err := loads.Patch(h.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.ExposeLabel+`":"true"}},"status":{"phase":"Accepted","acceptedByNode":"none"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsForbidden(err) {
				return nil
			}
		}
		return errors.New("none is refused")
	})
}

// tellsWhatIsMissing in the cluster: the controller in page, API and metrics, and the
// commands.
func (h *veleroWorld) tellsWhatIsMissing(a *agent) {
	t := h.t
	t.Helper()
	const serves, job, visible = "serves no MutatingAdmissionPolicy", "CronJob plimsoll-release-hidden is not installed", "stay visible to node-agents"
	var has map[string]capability
	eventually(t, "the controller has read what the cluster has", func() error {
		if has = capabilities(t, a.mustGet("/api/v1/capabilities")); has["hide"].State == "unknown" {
			return errors.New(has["hide"].Reason)
		}
		return nil
	})
	for name, state := range map[string]string{"bind-agents": "available", "hold": "available", "hide": "missing", "steer": "missing"} {
		assert.Equal(t, state, has[name].State, name)
	}
	assert.Contains(t, has["hide"].Reason, serves)
	assert.Contains(t, has["hide"].Reason, job)
	assert.Contains(t, has["hide"].Consequence, visible)
	assert.Contains(t, a.mustGet("/"), visible)
	assert.Contains(t, a.mustGet("/metrics"), "\nplimsoll_capability_available{capability=\"hold\"} 1\nplimsoll_capability_available{capability=\"hide\"} 0\n")
	assert.Contains(t, a.stderr.String(), "capability is not available")
	_, out, stderr := run(t, "doctor", "--kubeconfig", h.c.Kubeconfig)
	assert.Regexp(t, `WARN +capability +hide is missing: Kubernetes 1\.\d+\.\d+ `+serves+`.*`+job+`.*`+visible, out, stderr)
	assert.Regexp(t, `WARN +capability +steer is missing: `, out)
	assert.Regexp(t, `PASS +gate +all 7 objects that this cluster has the kinds for`, out)
	status, out, stderr := run(t, "nodes", "--kubeconfig", h.c.Kubeconfig)
	assert.Zero(t, status, stderr)
	assert.Contains(t, stderr, "hide is missing: ")
	assert.Contains(t, stderr, "steer is missing: ")
	assert.Contains(t, out, h.nodes[0])
	_, out, _ = run(t, "nodes", "--kubeconfig", h.c.Kubeconfig, "-o", "json")
	assert.Contains(t, out, `"capability": "steer"`)
}

// cronJob that releases hidden loads, and that kube-controller-manager, which is not
// there, has seen succeed.
func (h *veleroWorld) cronJob() {
	h.t.Helper()
	manifest, err := os.ReadFile("../deploy/release-hidden.yaml")
	require.NoError(h.t, err)
	require.NoError(h.t, h.c.Apply(h.t.Context(), manifest))
	h.succeeded(time.Now())
}

func (h *veleroWorld) succeeded(at time.Time) {
	h.t.Helper()
	h.cronJobIs(`{"status":{"lastScheduleTime":%[1]q,"lastSuccessfulTime":%[1]q}}`, at)
}

// cronJobIs writes into its status what came of it at a time.
func (h *veleroWorld) cronJobIs(status string, at time.Time) {
	h.t.Helper()
	body := fmt.Appendf(nil, status, at.UTC().Format(time.RFC3339))
	_, err := h.c.Client.BatchV1().CronJobs("plimsoll-system").Patch(h.t.Context(), gate.ReleaseHidden, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	require.NoError(h.t, err)
}

// hiddenLoads counts the hidden DataUploads.
func (h *veleroWorld) hiddenLoads() (n int) {
	h.t.Helper()
	list, err := h.client.Resource(admission.Resource(vgdp.DataUpload)).Namespace(h.namespace).List(h.t.Context(), metav1.ListOptions{})
	require.NoError(h.t, err)
	for i := range list.Items {
		if text(&list.Items[i], "spec", "datamover") == gate.HiddenMover {
			n++
		}
	}
	return n
}

// nothingIsRefused while the Gate is renewed twice, as soon as node-agents have seen that
// the loads are hidden: one that had read them before may have tried once more.
func (h *veleroWorld) nothingIsRefused() {
	h.t.Helper()
	renewed := func() string { return text(h.gate(gate.Main), "spec", "renewTime") }
	eventually(h.t, "node-agents leave hidden loads alone", func() error {
		_, before := h.wrote()
		for range 2 {
			was := renewed()
			eventually(h.t, "the Gate is renewed", func() error {
				if renewed() == was {
					return errors.New("not yet")
				}
				return nil
			})
		}
		_, after := h.wrote()
		return wanted(after, before)
	})
}

// releasedByTheJob as soon as the controller, which is killed, holds them no more, by
// what the CronJob runs with its rights.
func (h *veleroWorld) releasedByTheJob(a *agent, n int) {
	t := h.t
	t.Helper()
	as, err := h.c.ServiceAccount(t.Context(), "plimsoll-system", gate.ReleaseHidden, cluster.BoundTo{})
	require.NoError(t, err)
	release := func() string {
		status, said, stderr := run(t, "release", "--stale", "--kubeconfig", as)
		require.Zero(t, status, stderr)
		return said
	}
	assert.Equal(t, fmt.Sprintf("0 data mover loads released, %d hidden ones are held by a controller\n", n), release())
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	eventually(t, "the Gate is stale", func() error {
		if h.hiddenLoads() == n {
			release()
		}
		return wanted(h.hiddenLoads(), 0)
	})
	assert.Equal(t, "0 data mover loads released, 0 hidden ones are held by a controller\n", release())
}
