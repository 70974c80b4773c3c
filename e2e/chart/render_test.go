package chart_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

var update = flag.Bool("update", false, "write deploy/plimsoll.yaml anew")

// everything is what can be switched on.
func everything() []string {
	return []string{
		"--kube-version", "1.36.0", "--set", "katalyst=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true",
		"--set", "agent.config.eviction.via=request,agent.config.eviction.viaFallback=true,agent.config.lease.target=node,agent.config.web.tokenReview=true,agent.config.throttle.resize=true",
	}
}

func TestChartLint(t *testing.T) {
	h := chart.NewHelm(t, "")
	for name, args := range map[string][]string{
		"by default":     nil,
		"observe":        {"--set", "profile=observe"},
		"everything":     everything(),
		"without a gate": {"--set", "gate.enabled=false"},
	} {
		t.Run(name, func(t *testing.T) {
			out := h.Run(append([]string{"lint", "--strict", chart.Dir}, args...)...)
			assert.Contains(t, out, "1 chart(s) linted, 0 chart(s) failed")
		})
	}
}

// What the chart installs of the manifests is what they say, with its labels, and
// nothing of theirs is missing but the namespaces, which it has itself.
func TestChartHasManifests(t *testing.T) {
	all := chart.NewHelm(t, "").Render(everything()...)
	for name, manifest := range map[string][]byte{
		"rbac": deploy.RBAC, "rbac-controller": deploy.ControllerRBAC, "rbac-evict-direct": deploy.RBACEvictDirect, "rbac-evict-request": deploy.RBACEvictRequest,
		"rbac-resize": deploy.RBACResize, "rbac-katalyst": deploy.RBACKatalyst, "rbac-metrics": deploy.RBACMetrics, "rbac-viewer": deploy.RBACViewer, "rbac-lease-node": deploy.RBACLeaseNode, "heartbeats": deploy.Heartbeats,
		"identity": deploy.Identity, "gate-crd": deploy.GateCRD, "gate": deploy.Gate, "gate-mutating": deploy.GateMutating,
	} {
		t.Run(name, func(t *testing.T) {
			for _, want := range chart.Objects(t, string(manifest)) {
				if want.GetKind() == "Namespace" {
					assert.Contains(t, []string{chart.Namespace, "plimsoll-node-lease"}, want.GetName())
					continue
				}
				have := named(t, all, chart.NameOf(want)).DeepCopy()
				require.NotEmpty(t, have.GetLabels())
				have.SetLabels(want.GetLabels())
				assert.Empty(t, cmp.Diff(want.Object, have.Object))
			}
		})
	}
	named(t, all, "Namespace /plimsoll-node-lease")
}

// Agents may resize pods where throttle.resize is set, to false as well: they restore then
// what they have resized. Release may after everything else is deleted.
func TestChartResizeRights(t *testing.T) {
	h := chart.NewHelm(t, "")
	roles := func(args ...string) map[string]string {
		list := map[string]string{}
		for _, o := range h.Render(args...) {
			if strings.HasSuffix(o.GetName(), "-resize") && o.GetKind() != "ValidatingAdmissionPolicy" && o.GetKind() != "ValidatingAdmissionPolicyBinding" {
				list[o.GetKind()+" "+o.GetName()] = o.GetAnnotations()["helm.sh/hook"]
			}
		}
		return list
	}
	want := map[string]string{"ClusterRole plimsoll-release-resize": "post-delete", "ClusterRoleBinding plimsoll-release-resize": "post-delete"}
	assert.Equal(t, want, roles())
	want["ClusterRole plimsoll-agent-resize"], want["ClusterRoleBinding plimsoll-agent-resize"] = "", ""
	for _, resize := range []string{"true", "false"} {
		assert.Equal(t, want, roles("--set", "agent.config.throttle.resize="+resize))
	}
}

// The files that Prometheus and Grafana read by themselves are what their
// operators get.
func TestChartHasRulesAndDashboard(t *testing.T) {
	all := chart.NewHelm(t, "").Render(everything()...)
	for name, file := range map[string]string{"plimsoll": "alerts.yaml", "plimsoll-recording": "recording.yaml"} {
		text, err := os.ReadFile(filepath.Join(chart.Dir, "prometheus", file))
		require.NoError(t, err)
		var want map[string]any
		require.NoError(t, yaml.Unmarshal(text, &want))
		assert.Empty(t, cmp.Diff(want, named(t, all, "PrometheusRule.monitoring.coreos.com "+chart.Namespace+"/"+name).Object["spec"]))
	}
	dashboard, err := os.ReadFile(filepath.Join(chart.Dir, "grafana", "plimsoll.json"))
	require.NoError(t, err)
	data, _, err := unstructured.NestedStringMap(named(t, all, "ConfigMap "+chart.Namespace+"/plimsoll-dashboard").Object, "data")
	require.NoError(t, err)
	assert.JSONEq(t, string(dashboard), data["plimsoll.json"])
}

// Which mutating policies the chart has, without a cluster to ask.
func TestMutatingPolicies(t *testing.T) {
	h := chart.NewHelm(t, "")
	const policy, job = "MutatingAdmissionPolicy.admissionregistration.k8s.io /plimsoll-steer", "CronJob.batch plimsoll-system/plimsoll-release-hidden"
	for name, c := range map[string]struct {
		args []string
		want map[string]string
	}{
		"1.35":                      {[]string{"--kube-version", "1.35.4"}, nil},
		"1.35 that holds loads":     {[]string{"--kube-version", "1.35.4", "--set", "controller.config.vgdp.enabled=true"}, map[string]string{job: "batch/v1"}},
		"1.36 that holds loads":     {[]string{"--kube-version", "1.36.0", "--set", "controller.config.vgdp.enabled=true"}, map[string]string{policy: "admissionregistration.k8s.io/v1"}},
		"1.34 with v1beta1":         {[]string{"--kube-version", "1.34.4", "--set", "gate.mutating=v1beta1,controller.config.vgdp.enabled=true"}, map[string]string{policy: "admissionregistration.k8s.io/v1beta1"}},
		"1.36 without, by its flag": {[]string{"--kube-version", "1.36.0", "--set", "gate.mutating=none,controller.config.vgdp.enabled=true"}, map[string]string{job: "batch/v1"}},
		"1.35 that holds no more":   {[]string{"--kube-version", "1.35.4", "--set", "controller.config.vgdp.enabled=false"}, map[string]string{job: "batch/v1"}},
		"without a gate any more":   {[]string{"--kube-version", "1.36.0", "--set", "gate.enabled=false,controller.config.vgdp.enabled=true"}, map[string]string{job: "batch/v1"}},
		"without a gate":            {[]string{"--kube-version", "1.35.4", "--set", "gate.enabled=false"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var have map[string]string
			for _, o := range h.Render(append(c.args, "--no-hooks")...) {
				if at := chart.NameOf(o); at == policy || at == job {
					if have == nil {
						have = map[string]string{}
					}
					have[at] = o.GetAPIVersion()
				}
			}
			assert.Equal(t, c.want, have)
		})
	}
}

func TestChartRightsFollowConfig(t *testing.T) {
	h := chart.NewHelm(t, "")
	for set, want := range map[string][]string{
		"katalyst=false":                         nil, // the default
		"agent.config.eviction.via=direct":       {"ClusterRole /plimsoll-agent-evict"},
		"agent.config.eviction.viaFallback=true": {"ClusterRole /plimsoll-agent-evict"},
		"agent.config.eviction.via=request":      {"ClusterRole /plimsoll-agent-evict-request"},
		"agent.config.lease.target=node":         {"Role kube-node-lease/plimsoll-agent"},
		"katalyst=true":                          {"ClusterRole /plimsoll-agent-katalyst"},
		"controller.config.web.tokenReview=true": {"ClusterRole /plimsoll-metrics-reader"},
		"agent.config.web.tokenReview=false":     {"ClusterRole /plimsoll-metrics-reader"}, // agents ask for tokens until they restart
	} {
		t.Run(set, func(t *testing.T) {
			var extra []string
			for _, o := range h.Render("--no-hooks", "--set", set) {
				name := strings.Replace(chart.NameOf(o), ".rbac.authorization.k8s.io", "", 1)
				switch name {
				case "ClusterRole /plimsoll-agent", "ClusterRole /plimsoll-controller", "Role plimsoll-node-lease/plimsoll-agent",
					"Role plimsoll-node-lease/plimsoll-controller", "Role plimsoll-system/plimsoll-controller", "ClusterRole /plimsoll-viewer",
					"ClusterRole /plimsoll-agent-evict-withdraw": // also when EvictionRequests are no longer made
				default:
					if o.GetKind() == "ClusterRole" || o.GetKind() == "Role" {
						extra = append(extra, name)
					}
				}
			}
			assert.Equal(t, want, extra)
		})
	}
}

// For whoever has no helm: plimsoll.yaml, for the oldest Kubernetes, and what belongs to
// it where data mover loads are held and no policy releases hidden ones.
func TestPlainManifest(t *testing.T) {
	h := chart.NewHelm(t, "")
	plain(t, "plimsoll.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+chart.Namespace+
		"\n  labels:\n    # Its agents mount directories of the host.\n    pod-security.kubernetes.io/enforce: privileged\n",
		h.Run("template", "plimsoll", chart.Dir, "--no-hooks", "--kube-version", "1.30.0"))
	plain(t, "release-hidden.yaml", "# To remove it where plimsoll.yaml stays, leave the PriorityClass and its policy: they are\n# of that, too.\n",
		h.Run("template", "plimsoll", chart.Dir, "--kube-version", "1.30.0", "--set", "controller.config.vgdp.enabled=true",
			"--show-only", "templates/priority.yaml", "--show-only", "templates/release-hidden.yaml"))
}

// plain is a manifest of the chart, for kubectl.
func plain(t *testing.T, file, begins, rendered string) {
	t.Helper()
	rendered = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`).ReplaceAllString(rendered, "") // Helm has no part in it
	text := "# Code generated from the chart in this directory by go test ./e2e/chart -update. DO NOT EDIT.\n" +
		"# Its image is in the registry once that version is released. Until then, or for an\n" +
		"# image of your own: docs/install-kubernetes.md, \"Get the image\".\n" +
		begins + rendered
	all := chart.Objects(t, text)
	for _, o := range all { // by which what is no longer applied is found
		assert.True(t, o.GetLabels()["app.kubernetes.io/name"] == "plimsoll" || chart.NameOf(o) == "Namespace /"+chart.Namespace, chart.NameOf(o))
		if pod := podSpec(t, o); pod != nil { // which is refused without its class
			named(t, all, "PriorityClass.scheduling.k8s.io /"+pod.PriorityClassName)
		}
	}
	path := filepath.Join(chart.Dir, file)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(have), text), "go test ./e2e/chart -run TestPlainManifest -update writes it")
}

func TestChartRefusesBadValues(t *testing.T) {
	h := chart.NewHelm(t, "")
	for set, says := range map[string]string{
		"agnet.resources=null":                                  "additional properties 'agnet' not allowed",
		"profile=privileged":                                    "value must be one of 'full', 'observe'",
		"image.digest=latest":                                   "does not match pattern",
		"priorityClass.preemptionPolicy=Sometimes":              "value must be one of 'Never', 'PreemptLowerPriority'",
		"podMonitor.intervall=1m":                               "additional properties 'intervall' not allowed",
		"agent.config.eviction.dryRn=false":                     "at '/agent/config/eviction': additional properties 'dryRn' not allowed",
		"agent.config.eviction.via=contoller":                   "at '/agent/config/eviction/via': value must be one of 'direct', 'controller'",
		"agent.config.tick=10":                                  "at '/agent/config/tick': got number, want string",
		"agent.config.tick=1 s":                                 "at '/agent/config/tick': '1 s' does not match pattern",
		"agent.config.plugins.memoryStall.hard.stallFul=1":      "additional properties 'stallFul' not allowed",
		"agent.config.plugins.diskContention.ceilings[0].iop=1": "at '/agent/config/plugins/diskContention/ceilings/0': additional properties 'iop' not allowed",
		"controller.config.backups.limt=2":                      "at '/controller/config/backups': additional properties 'limt' not allowed",
		"controller.config.eviction.dryRun=true":                "at '/controller/config': additional properties 'eviction' not allowed",
		"agent.podAnnotations.a[0]=b":                           "want string",
		"podMonitor.enabled=true,serviceMonitor.enabled=true":   "enable one of them",
		"controller.config.election.namespace=elsewhere":        "controller.config.election.namespace: the controller has rights on its Lease in plimsoll-system alone",
		"controller.config.election.enabled=false":              "controller.config.election.enabled=false: two replicas",
		"agent.config.lease.enabled=false":                      "agent.config.lease.enabled=false: the agents' Leases carry their requests",

		"agent.config.eviction.dryRun=false,controller.replicas=0":                  "no controller would answer the agents' requests",
		"agent.config.eviction.dryRun=false,controller.config.agents.enabled=false": "no controller would answer the agents' requests",
	} {
		_, err := h.Try("template", "plimsoll", chart.Dir, "--set", set)
		require.ErrorContains(t, err, says, set)
	}
	_, err := h.Try("template", "plimsoll", chart.Dir, "--set", "image.tag=v1,image.digest=sha256:"+strings.Repeat("0", 64))
	require.ErrorContains(t, err, "image.digest and image.tag: which of the two runs?")
	_, err = h.Try("template", "plimsoll", chart.Dir, "--namespace", "elsewhere")
	require.ErrorContains(t, err, "Plimsoll's namespace is plimsoll-system")
}

// A controller that answers no agent is refused only where agents that act wait for it.
func TestChartWithoutAnswers(t *testing.T) {
	h := chart.NewHelm(t, "")
	const acts, away = "agent.config.eviction.dryRun=false,", "controller.replicas=0,controller.config.agents.enabled=false"
	for _, set := range []string{
		away, acts + "profile=observe," + away, acts + "agent.config.eviction.enabled=false," + away, acts + "agent.config.eviction.viaFallback=true," + away,
		acts + "agent.config.eviction.via=direct,agent.config.lease.enabled=false," + away, acts + "agent.config.eviction.via=request," + away,
	} {
		h.Render("--set", set)
	}
}

func TestChartConfigsValid(t *testing.T) {
	h := chart.NewHelm(t, "")
	for _, profile := range []string{"full", "observe"} {
		all := h.Render("--set", "profile="+profile+",controller.config.vgdp.enabled=true")
		for name, file := range map[string]string{"plimsoll-agent": "agent.yaml", "plimsoll-controller": "controller.yaml"} {
			text, found, err := unstructured.NestedString(named(t, all, "ConfigMap plimsoll-system/"+name).Object, "data", file)
			require.NoError(t, err)
			require.True(t, found)
			path := filepath.Join(t.TempDir(), file)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			out, err := exec.CommandContext(t.Context(), filepath.Join(unpacked(t), "plimsoll"), "config", "check", path).CombinedOutput()
			require.NoError(t, err, "%s:\n%s\n%s", profile, text, out)
		}
	}
}

// A key without a value gives agents no right to evict, and a key config without one is an
// empty configuration.
func TestChartWithoutConfigs(t *testing.T) {
	h := chart.NewHelm(t, "")
	for _, set := range []string{"agent.config.eviction.via=null", "agent.config.eviction=null", "agent.config=null", "controller.config=null", "agent.config=null,controller.config=null"} {
		h.Run("install", "mine", chart.Dir, "--dry-run=client", "--set", set)
		all := h.Render("--set", set)
		text, _, err := unstructured.NestedString(named(t, all, "ConfigMap plimsoll-system/plimsoll-agent").Object, "data", "agent.yaml")
		require.NoError(t, err)
		assert.Contains(t, text, "\n  via: controller\n", set)
		for _, o := range all {
			assert.NotEqual(t, "plimsoll-agent-evict", o.GetName(), set)
		}
	}
}

// The agents protect the Veleros that the controller is told of, in addition to what they
// protect by default, or are told to.
func TestChartProtectsVeleros(t *testing.T) {
	h := chart.NewHelm(t, "")
	const velero = "controller.config.velero[0].namespace=backup,controller.config.velero[1].namespace=velero"
	for set, want := range map[string][]string{
		"profile=full": nil, // the program's own
		velero:         append(pods.DefaultRules().Namespaces, "backup"),
		velero + ",agent.config.eviction.protect.namespaces={mine}": {"mine", "backup", "velero"},
	} {
		text, _, err := unstructured.NestedString(named(t, h.Render("--set", set), "ConfigMap plimsoll-system/plimsoll-agent").Object, "data", "agent.yaml")
		require.NoError(t, err)
		var config struct {
			Eviction struct{ Protect pods.Rules }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &config))
		assert.Equal(t, want, config.Eviction.Protect.Namespaces, set)
	}
}

func TestChartNotes(t *testing.T) {
	h := chart.NewHelm(t, "")
	const label = "kubectl label namespace plimsoll-system pod-security.kubernetes.io/enforce=privileged"
	const act, full, acts, movers, gate = "--set agent.config.eviction.dryRun=false", "--set profile=full", "The agents act", "--set agent.config.vgdp.dryRun=false", "--set gate.enabled=true"
	const queue, pending = "Before helm uninstall hand the queue back", "stays Pending"
	for name, c := range map[string]struct {
		set       string
		says, not []string
	}{
		"by default":     {"profile=full", []string{act, movers, label, pending, "helm upgrade mine CHART"}, []string{full, acts, gate, queue}},
		"observe":        {"profile=observe,agent.config.eviction.dryRun=false", []string{full}, []string{act, acts, movers}},
		"it acts":        {"agent.config.eviction.dryRun=false,agent.config.vgdp.dryRun=false,agent.config.throttle.dryRun=false", []string{acts}, []string{"dry run", act, movers}},
		"without a gate": {"gate.enabled=false,controller.config.vgdp.enabled=true", []string{gate}, nil},
		"with the queue": {"controller.config.backups.enabled=true,priorityClass.preemptionPolicy=PreemptLowerPriority", []string{queue}, []string{pending}},
	} {
		t.Run(name, func(t *testing.T) {
			_, notes, found := strings.Cut(h.Run("install", "mine", chart.Dir, "--dry-run=client", "--set", c.set), "\nNOTES:\n")
			require.True(t, found)
			for _, want := range c.says {
				assert.Contains(t, notes, want)
			}
			for _, no := range c.not {
				assert.NotContains(t, notes, no)
			}
		})
	}
}

// The defaults as the program prints them, all keys, are values of the chart.
func TestTheSchema(t *testing.T) {
	h := chart.NewHelm(t, "")
	for kind, at := range map[string]string{"AgentConfiguration": "agent", "ControllerConfiguration": "controller"} {
		t.Run(kind+" takes what the program prints", func(t *testing.T) {
			empty := filepath.Join(t.TempDir(), "empty.yaml")
			require.NoError(t, os.WriteFile(empty, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: "+kind+"\n"), 0o644))
			out, err := exec.CommandContext(t.Context(), filepath.Join(unpacked(t), "plimsoll"), "config", "print", empty).Output()
			require.NoError(t, err)
			var config map[string]any
			require.NoError(t, yaml.Unmarshal(out, &config))
			require.Equal(t, kind, config["kind"])
			delete(config, "kind")
			delete(config, "apiVersion")
			require.Greater(t, len(config), 5)
			values, err := yaml.Marshal(map[string]any{at: map[string]any{"config": config}})
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "values.yaml")
			require.NoError(t, os.WriteFile(path, values, 0o644))
			h.Render("--values", path)
		})
	}
}

func TestLabels(t *testing.T) {
	all := chart.NewHelm(t, "").Render(append(everything(), "--set", "commonLabels.team=storage")...)
	require.Greater(t, len(all), 30)
	for _, o := range all {
		labels := o.GetLabels()
		assert.Equal(t, "storage", labels["team"], chart.NameOf(o))
		assert.Equal(t, "Helm", labels["app.kubernetes.io/managed-by"], chart.NameOf(o))
		for _, name := range []string{"name", "instance", "part-of"} {
			assert.Equal(t, "plimsoll", labels["app.kubernetes.io/"+name], "%s of %s", name, chart.NameOf(o))
		}
		if pod := podOf(t, o); pod != nil {
			assert.Equal(t, "storage", pod.Labels["team"], chart.NameOf(o))
			assert.NotContains(t, pod.Labels, "helm.sh/chart", "%s: a new chart with the same image would replace pods", chart.NameOf(o))
		}
	}
}

// podOf a workload of the chart; nil: it is none.
func podOf(t *testing.T, o *unstructured.Unstructured) *corev1.PodTemplateSpec {
	t.Helper()
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	require.NoError(t, err)
	if !found {
		return nil
	}
	var pod corev1.PodTemplateSpec
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod))
	return &pod
}

// podSpec of an object, hooks and CronJobs too; nil: it has none.
func podSpec(t *testing.T, o *unstructured.Unstructured) *corev1.PodSpec {
	t.Helper()
	for _, at := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}, {"spec"}} {
		found, is, err := unstructured.NestedMap(o.Object, at...)
		require.NoError(t, err)
		if is && found["containers"] != nil {
			var spec corev1.PodSpec
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found, &spec))
			return &spec
		}
	}
	return nil
}

// allPods are the pods of an installation that has each of them, by the names of what
// makes them.
func allPods(t *testing.T, all []*unstructured.Unstructured) map[string]*corev1.PodSpec {
	t.Helper()
	list := map[string]*corev1.PodSpec{}
	for _, o := range all {
		if spec := podSpec(t, o); spec != nil {
			list[o.GetName()] = spec
		}
	}
	require.Len(t, list, 5, "agent, doctor, controller, and two that release")
	return list
}

// What runs once is put where the controller, or an agent, may be, and not on a node that
// does not answer. A quota of requests refuses no pod.
func TestPlacement(t *testing.T) {
	all := allPods(t, chart.NewHelm(t, "").Render("--kube-version", "1.35.0", "--set", "controller.config.vgdp.enabled=true", "--set-json", `controller={
		"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "type", "operator": "DoesNotExist"}]}]}}},
		"tolerations": [{"key": "mine", "operator": "Exists"}]}`, "--set-json", `agent.tolerations=[{"operator": "Exists"}, {"key": "mine", "operator": "Exists"}]`))
	controller := all["plimsoll-controller"]
	require.Len(t, controller.Tolerations, len(plugins.Conditions())+1)
	for name, pod := range all {
		for _, c := range pod.Containers {
			assert.Len(t, c.Resources.Requests, 2, "%s, %s", name, c.Name)
		}
		if name == "plimsoll-agent" {
			continue
		}
		assert.Equal(t, controller.Tolerations, pod.Tolerations, name)
		if name != "plimsoll-doctor" {
			assert.Equal(t, controller.Affinity, pod.Affinity, name)
		}
	}
}

// A PriorityClass cannot be changed: the other policy is another class.
func TestPriorityClass(t *testing.T) {
	h := chart.NewHelm(t, "")
	for policy, name := range map[string]string{"Never": "plimsoll-non-preempting", "PreemptLowerPriority": "plimsoll"} {
		all := h.Render("--kube-version", "1.35.0", "--set", "controller.config.vgdp.enabled=true,priorityClass.preemptionPolicy="+policy)
		have, _, err := unstructured.NestedString(named(t, all, "PriorityClass.scheduling.k8s.io /"+name).Object, "preemptionPolicy")
		require.NoError(t, err)
		assert.Equal(t, policy, have)
		for of, pod := range allPods(t, all) {
			if of != "plimsoll-release" { // it is there when the class is gone
				assert.Equal(t, name, pod.PriorityClassName, of)
			}
		}
	}
}

// Files that only the group of a process may read (defaultMode: 0440) are its pod's.
func TestFSGroup(t *testing.T) {
	h := chart.NewHelm(t, "")
	for profile, want := range map[string]int{"full": 3, "observe": 5} {
		n := 0
		for name, pod := range allPods(t, h.Render("--kube-version", "1.35.0", "--set", "controller.config.vgdp.enabled=true,profile="+profile)) {
			if rules := pod.Containers[0].SecurityContext; rules.RunAsNonRoot != nil && *rules.RunAsNonRoot {
				n++
				if assert.NotNil(t, pod.SecurityContext, name) {
					assert.Equal(t, rules.RunAsGroup, pod.SecurityContext.FSGroup, name)
				}
			}
		}
		assert.Equal(t, want, n, profile)
	}
}

// OpenShift makes no pod whose account may not use a SecurityContextConstraints that
// allows it. The right of a hook's account is there before the hook.
func TestChartOnOpenShift(t *testing.T) {
	args := []string{"--kube-version", "1.35.0", "--set", "controller.config.vgdp.enabled=true"}
	h := chart.NewHelm(t, "")
	for _, o := range h.Render(args...) {
		assert.NotContains(t, o.GetName(), "-scc", "no other cluster has the kind")
	}
	all := h.Render(append(args, "--api-versions", "security.openshift.io/v1")...)
	uses := map[string]string{}
	for _, o := range all {
		var binding rbacv1.RoleBinding
		if o.GetKind() != "RoleBinding" || !strings.HasSuffix(o.GetName(), "-scc") {
			continue
		}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding))
		var role rbacv1.Role
		of := named(t, all, "Role.rbac.authorization.k8s.io "+binding.Namespace+"/"+binding.RoleRef.Name)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(of.Object, &role))
		assert.Equal(t, o.GetAnnotations(), of.GetAnnotations())
		require.Len(t, role.Rules, 1)
		require.Len(t, role.Rules[0].ResourceNames, 1)
		assert.Equal(t, rbacv1.PolicyRule{
			APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"}, Verbs: []string{"use"}, ResourceNames: role.Rules[0].ResourceNames,
		}, role.Rules[0])
		uses[binding.Subjects[0].Name] = role.Rules[0].ResourceNames[0] + " " + o.GetAnnotations()["helm.sh/hook"] + o.GetAnnotations()["helm.sh/hook-weight"]
	}
	assert.Equal(t, map[string]string{
		"plimsoll-agent": "privileged ", "plimsoll-controller": "nonroot-v2 ", "plimsoll-release-hidden": "nonroot-v2 ", "plimsoll-release": "nonroot-v2 post-delete-1",
	}, uses)
	for name, pod := range allPods(t, all) {
		assert.Contains(t, uses, pod.ServiceAccountName, name)
	}
}

// What installations differ in stands in the pods, beside what the chart has.
func TestPods(t *testing.T) {
	h := chart.NewHelm(t, "")
	for component, object := range map[string]string{"agent": "DaemonSet.apps plimsoll-system/plimsoll-agent", "controller": "Deployment.apps plimsoll-system/plimsoll-controller"} {
		was := podOf(t, named(t, h.Render(), object))
		pod := podOf(t, named(t, h.Render("--set-json", component+`={
			"nodeSelector": {"pool": "a"}, "podLabels": {"team": "storage"}, "podAnnotations": {"note": "1"},
			"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]}}},
			"tolerations": [{"key": "mine", "operator": "Exists"}],
			"probeScheme": "HTTPS", "extraArgs": ["--log.level=debug"], "extraEnv": [{"name": "GODEBUG", "value": "x=1"}],
			"extraContainers": [{"name": "beside", "image": "i"}],
			"extraVolumes": [{"name": "more", "emptyDir": {}}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]}`), object))
		main := pod.Spec.Containers[0]
		for what, found := range map[string]bool{
			"node selector": pod.Spec.NodeSelector["pool"] == "a",
			"label":         pod.Labels["team"] == "storage" && pod.Labels["app.kubernetes.io/component"] == component,
			"annotation":    pod.Annotations["note"] == "1",
			"affinity":      pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil,
			"toleration":    pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1].Key == "mine",
			"argument":      main.Args[len(main.Args)-1] == "--log.level=debug" && len(main.Args) == len(was.Spec.Containers[0].Args)+1,
			"environment":   main.Env[len(main.Env)-1].Name == "GODEBUG" && len(main.Env) == len(was.Spec.Containers[0].Env)+1,
			"probes":        main.LivenessProbe.HTTPGet.Scheme == "HTTPS" && main.ReadinessProbe.HTTPGet.Scheme == "HTTPS" && was.Spec.Containers[0].LivenessProbe.HTTPGet.Scheme == "HTTP",
			"container":     len(pod.Spec.Containers) == 2 && pod.Spec.Containers[1].Name == "beside",
			"volume":        pod.Spec.Volumes[len(pod.Spec.Volumes)-1].Name == "more" && len(pod.Spec.Volumes) == len(was.Spec.Volumes)+1,
			"mount":         main.VolumeMounts[len(main.VolumeMounts)-1].MountPath == "/more",
		} {
			assert.True(t, found, "%s: %s", component, what)
		}
	}
}

// The agent is privileged only where it writes cgroups; what evicts writes to the
// API server.
func TestPrivilege(t *testing.T) {
	h := chart.NewHelm(t, "")
	for want, sets := range map[string][]string{
		seeing:  {"profile=full", "agent.config.eviction.dryRun=false", "agent.config.vgdp.dryRun=false,agent.config.vgdp.enabled=false", "agent.config.throttle.dryRun=false,agent.config.throttle.enabled=false"},
		acting:  {"agent.config.vgdp.dryRun=false", "agent.config.throttle.dryRun=false"},
		nothing: {"profile=observe", "profile=observe,agent.config.vgdp.dryRun=false,agent.config.throttle.dryRun=false"},
	} {
		for _, set := range sets {
			t.Run(set, func(t *testing.T) { agentNeeds(t, h.Render("--set", set), want) })
		}
	}
}

// agentNeeds that of its node, and its configuration says where the cgroups are.
func agentNeeds(t *testing.T, all []*unstructured.Unstructured, want string) {
	t.Helper()
	pod := &corev1.Pod{Spec: podOf(t, named(t, all, "DaemonSet.apps plimsoll-system/plimsoll-agent")).Spec}
	require.Equal(t, want, needsOf(pod))
	privileges(t, pod.Spec.Containers[0], want)
	text, _, err := unstructured.NestedString(named(t, all, "ConfigMap plimsoll-system/plimsoll-agent").Object, "data", "agent.yaml")
	require.NoError(t, err)
	assert.Equal(t, want != acting, strings.Contains(text, "cgroupfs: /host/sys/fs/cgroup"), "the host's cgroups are elsewhere in a container that is not privileged")
}

// privileges of an agent's container that needs that of its node.
func privileges(t *testing.T, c corev1.Container, needs string) {
	t.Helper()
	rules := c.SecurityContext
	assert.True(t, *rules.ReadOnlyRootFilesystem)
	if needs != acting {
		assert.False(t, *rules.AllowPrivilegeEscalation)
		assert.Equal(t, []corev1.Capability{"ALL"}, rules.Capabilities.Drop)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, rules.SeccompProfile.Type)
	}
	if needs == seeing {
		assert.Equal(t, []corev1.Capability{"SYS_PTRACE", "DAC_OVERRIDE", "SYS_RESOURCE", "IPC_LOCK"}, rules.Capabilities.Add)
	}
	for _, m := range c.VolumeMounts {
		if m.Name == "sys" || m.Name == "proc" {
			assert.True(t, m.ReadOnly && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible, m.Name)
		}
	}
}

// Each value, down to where the keys are no longer the chart's, stands in its README.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart.Dir, "README.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-zA-Z.]+)`").FindAllStringSubmatch(string(text), -1)
	rows := map[string]bool{}
	for _, m := range named {
		rows[m[1]] = true
	}
	values, err := os.ReadFile(filepath.Join(chart.Dir, "values.yaml"))
	require.NoError(t, err)
	var sections map[string]any
	require.NoError(t, yaml.Unmarshal(values, &sections))
	n := 0
	for section, v := range sections {
		keys, isMap := v.(map[string]any)
		if !isMap || len(keys) == 0 {
			n++
			assert.True(t, rows[section], section)
			continue
		}
		for key := range keys {
			n++
			assert.True(t, rows[section+"."+key], "%s.%s", section, key)
		}
	}
	require.Greater(t, n, 40)
}
