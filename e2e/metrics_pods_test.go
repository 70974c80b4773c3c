package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod's series bear its names while the API server lists it, and end with it.
func TestPodSeriesOnAPIServer(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	w := startWorld(t)
	config, err := os.ReadFile(w.config)
	require.NoError(t, err)
	write(t, w.config, string(config)+"web: {podSeries: {top: 10000, maxSeries: 100000}}\n")
	w.deploy("shop", 24, nil)
	pod := w.running("shop")
	a := w.start()
	w.seen(pod, 20)

	prefix := fmt.Sprintf(`plimsoll_pod_memory_bytes{workload_namespace="%s",workload_pod="%s"} `, pod.Namespace, pod.Name)
	eventually(t, "the pod has series", func() error {
		metrics := a.mustGet("/metrics")
		_, rest, found := strings.Cut(metrics, "\n"+prefix)
		if !found {
			return fmt.Errorf("no %q", prefix)
		}
		value, _, _ := strings.Cut(rest, "\n")
		var bytes uint64
		if _, err := fmt.Sscan(value, &bytes); err != nil {
			return fmt.Errorf("%q: %w", value, err)
		}
		if bytes < 20<<20 {
			return fmt.Errorf("it holds 24 MiB, not %d", bytes)
		}
		return nil
	})
	require.NotContains(t, a.mustGet("/metrics"), string(pod.UID), "its UID says nothing to anybody")

	ends := metav1.DeletePropagationForeground
	require.NoError(t, w.c.Client.AppsV1().Deployments(pod.Namespace).Delete(t.Context(), "shop", metav1.DeleteOptions{PropagationPolicy: &ends}))
	eventually(t, "the series end with the pod", func() error {
		if metrics := a.mustGet("/metrics"); strings.Contains(metrics, prefix) || strings.Contains(metrics, string(pod.UID)) {
			return fmt.Errorf("still there")
		}
		return nil
	})
}
