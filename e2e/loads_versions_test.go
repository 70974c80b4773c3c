package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/matrix"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// phasesOf a kind of Velero's, as this version of it declares them.
func phasesOf(t *testing.T, client dynamic.Interface, kind schema.GroupVersionResource) []string {
	t.Helper()
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	u, err := definitions.Get(t.Context(), kind.GroupResource().String(), metav1.GetOptions{})
	require.NoError(t, err)
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	phases, _, err := unstructured.NestedStringSlice(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "phase", "enum")
	require.NoError(t, err)
	require.NotEmpty(t, phases)
	return phases
}

// Node-agents of the Velero that make matrix asks for, behind the gate: the loads
// that they accept and prepare are never more at once than may be, and all end.
func TestLoadsOnNodeAgentsOfVersion(t *testing.T) {
	t.Parallel()
	if os.Getenv("PLIMSOLL_VELERO") == "" {
		t.Skip("of older versions of Velero, in make matrix; of the newest: TestLoadsOnRealNodeAgents")
	}
	const limit, loads = 3, 24
	h := newRealVeleroWorld(t, 3, fmt.Sprintf(`{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":%d}}`, limit),
		fmt.Sprintf(", leaseDuration: %s, hideAbove: 4", deadline.Scale(12*time.Second)))
	version, err := cluster.Pinned(cluster.Velero)
	require.NoError(t, err)
	t.Attr(cluster.Velero, version)
	var kinds []vgdp.Kind
	var without []string
	for _, kind := range admission.Kinds() {
		if slices.Contains(phasesOf(t, h.client, admission.Resource(kind)), string(vgdp.Accepted)) {
			kinds = append(kinds, kind)
		} else {
			without = append(without, string(kind)+"s")
		}
	}
	require.NotEmpty(t, kinds)
	if len(without) > 0 {
		t.Attr(matrix.Smaller, fmt.Sprintf("%s were not tried: Velero %s starts them at once, without the phase Accepted", strings.Join(without, " and "), version))
	}
	h.see()
	a := h.controller().start()
	h.holds()
	for i := range loads / len(kinds) {
		for _, kind := range kinds {
			h.moves(kind, fmt.Sprintf("gated-%s-%d", strings.ToLower(string(kind)), i))
		}
	}
	within(t, time.Duration(loads/3)*patience, "all loads end", func() error {
		is := h.phases()
		assert.Zero(t, is[vgdp.Failed]+is[vgdp.Canceled], "%v", is)
		if t.Failed() || is[vgdp.Completed] == loads {
			return nil
		}
		return fmt.Errorf("%v", is)
	})
	h.leaveNothing()
	most, order := h.most()
	t.Logf("Velero %s: %d loads, %d at once at most", version, loads, most)
	assert.LessOrEqual(t, most, limit)
	assert.Len(t, order, loads, "each had a ticket")
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
}

// leaveNothing: no pod and no claim of a data mover is left.
func (h *veleroWorld) leaveNothing() {
	h.t.Helper()
	eventually(h.t, "no data mover's pod is left", func() error {
		for _, label := range []string{"velero.io/data-upload", "velero.io/data-download", "velero.io/pod-volume-backup", "velero.io/pod-volume-restore"} {
			pods, err := h.c.Client.CoreV1().Pods(h.namespace).List(h.t.Context(), metav1.ListOptions{LabelSelector: label})
			if err == nil && len(pods.Items) > 0 {
				err = errors.New(pods.Items[0].Name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
