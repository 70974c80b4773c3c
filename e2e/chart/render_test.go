package chart_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/chart"
)

var update = flag.Bool("update", false, "write deploy/plimsoll.yaml anew")

// everything is what can be switched on.
func everything() []string {
	return []string{
		"--kube-version", "1.36.0", "--set", "katalyst=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true",
		"--set", "agent.config.eviction.via=direct,agent.config.lease.target=node,agent.config.web.tokenReview=true",
	}
}

func TestHelmFindsNothingWrongWithTheChart(t *testing.T) {
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

// What the chart installs of the manifests is what they say, and nothing of
// theirs is missing but the namespaces, which it has itself.
func TestTheManifestsAreInTheChartAsTheyAre(t *testing.T) {
	all := chart.NewHelm(t, "").Render(everything()...)
	for name, manifest := range map[string][]byte{
		"rbac": deploy.RBAC, "rbac-controller": deploy.ControllerRBAC, "rbac-evict-direct": deploy.RBACEvictDirect,
		"rbac-katalyst": deploy.RBACKatalyst, "rbac-metrics": deploy.RBACMetrics, "rbac-lease-node": deploy.RBACLeaseNode, "heartbeats": deploy.Heartbeats,
		"identity": deploy.Identity, "gate-crd": deploy.GateCRD, "gate": deploy.Gate, "gate-mutating": deploy.GateMutating,
	} {
		t.Run(name, func(t *testing.T) {
			for _, want := range chart.Objects(t, string(manifest)) {
				if want.GetKind() == "Namespace" {
					assert.Contains(t, []string{chart.Namespace, "plimsoll-node-lease"}, want.GetName())
					continue
				}
				assert.Empty(t, cmp.Diff(want.Object, named(t, all, chart.NameOf(want)).Object))
			}
		})
	}
	named(t, all, "Namespace /plimsoll-node-lease")
}

// The files that Prometheus and Grafana read by themselves are what their
// operators get.
func TestRulesAndDashboardAreInTheChartAsTheyAre(t *testing.T) {
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

func TestNobodyGetsARightThatTheConfigurationDoesNotNeed(t *testing.T) {
	h := chart.NewHelm(t, "")
	for set, want := range map[string][]string{
		"katalyst=false":                         nil, // the default
		"agent.config.eviction.via=direct":       {"ClusterRole /plimsoll-agent-evict"},
		"agent.config.eviction.viaFallback=true": {"ClusterRole /plimsoll-agent-evict"},
		"agent.config.lease.target=node":         {"Role kube-node-lease/plimsoll-agent"},
		"katalyst=true":                          {"ClusterRole /plimsoll-agent-katalyst"},
		"controller.config.web.tokenReview=true": {"ClusterRole /plimsoll-metrics-reader"},
	} {
		t.Run(set, func(t *testing.T) {
			var extra []string
			for _, o := range h.Render("--no-hooks", "--set", set) {
				name := strings.Replace(chart.NameOf(o), ".rbac.authorization.k8s.io", "", 1)
				switch name {
				case "ClusterRole /plimsoll-agent", "ClusterRole /plimsoll-controller", "Role plimsoll-node-lease/plimsoll-agent",
					"Role plimsoll-node-lease/plimsoll-controller", "Role plimsoll-system/plimsoll-controller":
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

// For whoever has no helm: plimsoll.yaml, for the oldest Kubernetes.
func TestThePlainManifestIsWhatTheChartRenders(t *testing.T) {
	rendered := chart.NewHelm(t, "").Run("template", "plimsoll", chart.Dir, "--no-hooks", "--kube-version", "1.30.0")
	text := "# Code generated from the chart in this directory by go test ./e2e/chart -update. DO NOT EDIT.\n" +
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + chart.Namespace + "\n" + rendered
	path := filepath.Join(chart.Dir, "plimsoll.yaml")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(have), text), "go test ./e2e/chart -run TestThePlain -update writes it")
}

func TestAMistakeInTheValuesIsRefused(t *testing.T) {
	h := chart.NewHelm(t, "")
	for set, says := range map[string]string{
		"agnet.resources=null":    "additional properties 'agnet' not allowed",
		"profile=privileged":      "value must be one of 'full', 'observe'",
		"image.digest=latest":     "does not match pattern",
		"podMonitor.intervall=1m": "additional properties 'intervall' not allowed",
	} {
		_, err := h.Try("template", "plimsoll", chart.Dir, "--set", set)
		require.ErrorContains(t, err, says, set)
	}
	_, err := h.Try("template", "plimsoll", chart.Dir, "--namespace", "elsewhere")
	require.ErrorContains(t, err, "Plimsoll's namespace is plimsoll-system")
}

func TestTheConfigurationsOfTheChartAreGood(t *testing.T) {
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

func TestTheNotesSayWhatThisInstallationDoes(t *testing.T) {
	h := chart.NewHelm(t, "")
	const act, full, acts, movers, gate = "--set agent.config.eviction.dryRun=false", "--set profile=full", "The agents act", "--set agent.config.vgdp.dryRun=false", "--set gate.enabled=true"
	for name, c := range map[string]struct {
		set       string
		says, not []string
	}{
		"by default":     {"profile=full", []string{act, movers, "helm upgrade mine CHART"}, []string{full, acts, gate}},
		"observe":        {"profile=observe,agent.config.eviction.dryRun=false", []string{full}, []string{act, acts, movers}},
		"it acts":        {"agent.config.eviction.dryRun=false,agent.config.vgdp.dryRun=false", []string{acts}, []string{"dry run", act, movers}},
		"without a gate": {"gate.enabled=false,controller.config.vgdp.enabled=true", []string{gate}, nil},
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
