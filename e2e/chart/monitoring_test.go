package chart_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
)

// operatorsKind is a CustomResourceDefinition of the Prometheus Operator that
// e2e/tools/operator pins, as it is handed out.
func operatorsKind(t *testing.T, name string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../tools/operator", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator").Output()
	require.NoError(t, err, "%s", out)
	var module struct{ Dir, Version string }
	require.NoError(t, json.Unmarshal(out, &module))
	t.Logf("%s of the Prometheus Operator %s", name, module.Version)
	text, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+name+".yaml"))
	require.NoError(t, err)
	return text
}

// monitored by the Prometheus Operator, of which there are the kinds alone: they
// take what the chart has for it.
func (w *world) monitored() {
	w.t.Helper()
	require.NoError(w.t, w.c.Apply(w.t.Context(), operatorsKind(w.t, "podmonitors"), operatorsKind(w.t, "servicemonitors"), operatorsKind(w.t, "prometheusrules")))
	eventually(w.t, "the kinds are served", func() error {
		list, err := w.c.Client.Discovery().ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		if err == nil && len(list.APIResources) < 3 {
			err = errors.New("not all")
		}
		return err
	})
	w.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "podMonitor.enabled=true,prometheusRule.enabled=true",
		"--set-json", `podMonitor.endpoint={"scheme":"https","tlsConfig":{"insecureSkipVerify":true},"authorization":{"credentials":{"name":"prometheus","key":"token"}}}`)
	there, objects := w.all(), chart.Objects(w.t, w.Run("get", "manifest", "plimsoll"))
	monitor := named(w.t, objects, "PodMonitor.monitoring.coreos.com plimsoll-system/plimsoll")
	for _, o := range []*unstructured.Unstructured{
		monitor, named(w.t, objects, "PrometheusRule.monitoring.coreos.com plimsoll-system/plimsoll"),
		named(w.t, objects, "PrometheusRule.monitoring.coreos.com plimsoll-system/plimsoll-recording"),
	} {
		require.Contains(w.t, there, chart.NameOf(o))
		require.NoError(w.t, w.refused(o, there))
	}
	w.scraped(monitor)
	endpoint := first(w.t, monitor, "spec", "podMetricsEndpoints")
	endpoint["intervall"] = "30s"
	require.ErrorContains(w.t, w.refused(monitor, there), `unknown field "spec.podMetricsEndpoints[0].intervall"`)
	delete(endpoint, "intervall")
	endpoint["interval"] = "half a minute"
	require.ErrorContains(w.t, w.refused(monitor, there), "spec.podMetricsEndpoints[0].interval: Invalid value")
	w.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "podMonitor.enabled=false,serviceMonitor.enabled=true",
		"--set-json", `serviceMonitor.relabelings=[{"sourceLabels":["__meta_kubernetes_pod_label_team"],"targetLabel":"team"}]`)
	there, objects = w.all(), chart.Objects(w.t, w.Run("get", "manifest", "plimsoll"))
	for _, name := range []string{"ServiceMonitor.monitoring.coreos.com", "Service"} {
		o := named(w.t, objects, name+" plimsoll-system/plimsoll")
		require.Contains(w.t, there, chart.NameOf(o))
		require.NoError(w.t, w.refused(o, there))
	}
	require.NotContains(w.t, there, chart.NameOf(monitor))
	w.Run("rollback", "plimsoll", "1")
	for _, name := range []string{"podmonitors", "servicemonitors", "prometheusrules"} {
		require.NoError(w.t, w.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
			Delete(w.t.Context(), name+".monitoring.coreos.com", metav1.DeleteOptions{}))
	}
}

// scraped are the pods of agent and controller, by a port that they have.
func (w *world) scraped(monitor *unstructured.Unstructured) {
	w.t.Helper()
	labels, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	require.NoError(w.t, err)
	pods, err := w.c.Client.CoreV1().Pods(chart.Namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(metav1.SetAsLabelSelector(labels))})
	require.NoError(w.t, err)
	seen := map[string]bool{}
	for i := range pods.Items {
		for _, port := range pods.Items[i].Spec.Containers[0].Ports {
			seen[pods.Items[i].Labels["app.kubernetes.io/component"]] = port.Name == first(w.t, monitor, "spec", "podMetricsEndpoints")["port"]
		}
	}
	assert.Equal(w.t, map[string]bool{"agent": true, "controller": true}, seen)
}

// first of the maps in a list of an object.
func first(t *testing.T, o *unstructured.Unstructured, path ...string) map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list.([]any)[0].(map[string]any)
}
