package abilities

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/names"
)

// definitions of a version of Velero: those that are read.
func definitions(t *testing.T, version string) (list []*unstructured.Unstructured) {
	t.Helper()
	raw, err := velero.Definitions(version)
	require.NoError(t, err)
	for _, one := range raw {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(one, &u.Object))
		if slices.Contains(Definitions(), u.GetName()) {
			list = append(list, u)
		}
	}
	require.Len(t, list, len(Definitions()))
	return list
}

// states of the capabilities, in their order.
func states(v Velero) (list []capability.State) {
	for i, c := range v.Capabilities() {
		if c.Name != Names()[i] {
			panic("not in the order of Names: " + c.Name)
		}
		list = append(list, c.State)
	}
	return list
}

func TestOf(t *testing.T) {
	for version, row := range map[string]struct {
		direct []names.MoverKind
		queues bool
		want   []capability.State
	}{
		"v1.16.2": {[]names.MoverKind{names.PodVolumeBackup, names.PodVolumeRestore}, false, []capability.State{capability.Missing, capability.Missing, capability.Missing}},
		"v1.17.2": {nil, false, []capability.State{capability.Available, capability.Available, capability.Missing}},
		"v1.18.3": {nil, true, []capability.State{capability.Available, capability.Available, capability.Available}},
	} {
		t.Run(version, func(t *testing.T) {
			v := Of(definitions(t, version))
			for _, f := range names.MoverKinds() {
				assert.Equal(t, !slices.Contains(row.direct, f.Kind), v.Accepts(f.Kind), f.Kind)
			}
			assert.Equal(t, row.queues, v.Queues())
			assert.Equal(t, row.want, states(v))
		})
	}
}

func TestOfUnusual(t *testing.T) {
	t.Run("the table of kinds has the version", func(t *testing.T) {
		for version, older := range map[string]bool{"v1.16.2": true, "v1.17.2": false} {
			v := Of(definitions(t, version))
			for _, f := range names.MoverKinds() {
				assert.Equal(t, older && f.AcceptedSince == "1.17", !v.Accepts(f.Kind), "%s %s", version, f.Kind)
			}
		}
	})
	t.Run("what says nothing counts as the newest", func(t *testing.T) {
		none := definitions(t, "v1.16.2")
		for _, d := range none {
			unstructured.RemoveNestedField(d.Object, "spec", "versions")
		}
		for _, v := range []Velero{{}, Of(nil), Of(none), Of([]*unstructured.Unstructured{{}})} {
			assert.True(t, v.Accepts(names.PodVolumeBackup))
			assert.True(t, v.Queues())
			assert.Equal(t, []capability.State{capability.Available, capability.Available, capability.Available}, states(v))
		}
	})
	t.Run("what was not read is unknown, and why", func(t *testing.T) {
		v := Velero{Unread: "because"}
		assert.True(t, v.Accepts(names.PodVolumeBackup))
		assert.Equal(t, []capability.State{capability.Unknown, capability.Unknown, capability.Unknown}, states(v))
		for _, c := range v.Capabilities() {
			assert.Equal(t, "because", c.Why)
			assert.NotEmpty(t, c.Consequence)
		}
	})
	t.Run("only the stored version counts", func(t *testing.T) {
		list := definitions(t, "v1.16.2")
		for _, d := range list {
			versions, _, err := unstructured.NestedSlice(d.Object, "spec", "versions")
			require.NoError(t, err)
			versions[0].(map[string]any)["storage"] = false
			require.NoError(t, unstructured.SetNestedSlice(d.Object, versions, "spec", "versions"))
		}
		assert.True(t, Of(list).Accepts(names.PodVolumeBackup))
	})
}

// Whatever a definition has where the phases should be, it is read without a panic.
func FuzzOf(f *testing.F) {
	f.Add(`{"spec":{"names":{"plural":"backups"},"versions":[{"storage":true,"schema":{"openAPIV3Schema":{"properties":{"status":{"properties":{"phase":{"enum":["New",7]}}}}}}}]}}`)
	f.Add(`{"spec":{"names":{"plural":"podvolumebackups"},"versions":["x",null,{"storage":"yes"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		u := &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(text), &u.Object) != nil {
			return
		}
		if v := Of([]*unstructured.Unstructured{u}); len(v.Capabilities()) != len(Names()) {
			t.Error(text)
		}
	})
}
