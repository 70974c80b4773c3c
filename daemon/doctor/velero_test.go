package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
)

func TestDoctorVeleroProtected(t *testing.T) {
	in := func(namespaces ...string) string {
		var pods []string
		for _, n := range namespaces {
			pods = append(pods, `{"metadata":{"name":"p","namespace":"`+n+`"}}`)
		}
		return `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(pods, ",") + "]}"
	}
	for list, want := range map[string]Result{in("velero", "velero"): Pass, in("velero", "backup", "backup"): Warn, in(): "", "forbidden": ""} {
		rows := veleroProtected(t.Context(), clusterOf(t, map[string]string{"/api/v1/pods": list}), []string{"kube-system", "velero"})
		if want == "" {
			assert.Empty(t, rows)
			continue
		}
		require.Len(t, rows, 1)
		assert.Equal(t, want, rows[0].Result)
		if want == Warn {
			assert.Contains(t, rows[0].Finding, "pods of backup look like Velero's")
			assert.Contains(t, rows[0].Finding, "eviction.protect.namespaces: [kube-system, velero, backup], which")
		}
	}
}

func TestVeleroRows(t *testing.T) {
	for version, want := range map[string][]Result{"v1.16.2": {Warn, Warn, Warn}, "v1.17.2": {Warn}, "v1.18.3": {Pass}} {
		t.Run(version, func(t *testing.T) {
			raw, err := velero.Definitions(version)
			require.NoError(t, err)
			var all []*unstructured.Unstructured
			for _, one := range raw {
				u := &unstructured.Unstructured{}
				require.NoError(t, yaml.Unmarshal(one, &u.Object))
				all = append(all, u)
			}
			var got []Result
			for _, r := range veleroRows(abilities.Of(all)) {
				got = append(got, r.Result)
				t.Log(r.Finding)
			}
			assert.Equal(t, want, got)
		})
	}
	assert.Empty(t, veleroRows(abilities.Velero{Unread: "forbidden"}), "nothing is known")
}
