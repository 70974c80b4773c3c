package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// writes are what node-agents write, by step, before the phase that is in the key.
var writes = map[string]struct{ from, patch string }{
	"finalizer":      {"", `{"metadata":{"finalizers":["` + names.MoverFinalizer + `"]}}`},
	"accept":         {"", `{"status":{"phase":"Accepted","acceptedByNode":"n1","node":"n1"}}`},
	"acceptLabelled": {"", `{"metadata":{"labels":{"` + names.ExposeLabel + `":"true"}},"status":{"phase":"Accepted","acceptedByNode":"n1","node":"n1"}}`},
	"startNew":       {"", `{"status":{"phase":"InProgress","node":"n1"}}`},
	"start":          {"Prepared", `{"status":{"phase":"InProgress","node":"n1"}}`},
}

// What each Velero's node-agent does when a write of its own is refused, as its source
// says. The policies refuse each write that is tried again and none that fails the load.
func TestGateRefusals(t *testing.T) {
	raw, err := os.ReadFile("testdata/node-agent-writes.json")
	require.NoError(t, err)
	var rows []struct {
		Velero, Step, Refused, Source string
		Kinds                         []string
	}
	require.NoError(t, json.Unmarshal(raw, &rows))
	q := newGateFixture(t, plane(t))
	q.gate(gate.Main, fresh(nil))
	q.gate(gate.Holds, gate.Spec{Epoch: 7, Holds: map[string]metav1.Time{"n1": metav1.NewTime(time.Now().Add(lease))}})
	for kind := range kinds {
		for _, name := range []string{"new", "prepared", "ticket", "other-ticket"} {
			_, err := q.load(kind, name, "")
			require.NoError(t, err)
		}
		q.phase(kind, "prepared", "Prepared")
		q.annotate(kind, "ticket", gate.Admitted, "*@7")
		q.annotate(kind, "other-ticket", gate.Admitted, "*@6")
	}
	q.until(held, func() string { return q.accepts("DataUpload", "new", "n1") })
	q.until(held, func() string { return q.starts("DataUpload", "prepared", "n1") })
	try := func(q *gateFixture, kind, name, patch string) string {
		return q.became(q.patch(q.velero, kind, name, patch, metav1.DryRunAll))
	}
	for _, row := range rows {
		for _, kind := range row.Kinds {
			t.Run(row.Velero+" "+kind+" "+row.Step, func(t *testing.T) {
				q := q.in(t)
				w := writes[row.Step]
				name := map[string]string{"": "new", "Prepared": "prepared"}[w.from]
				want := map[string]string{"retries": held, "fails": passes}[row.Refused]
				require.NotEmpty(t, want)
				assert.Equal(t, want, try(q, kind, name, w.patch), row.Source)
			})
		}
	}
	for _, kind := range []string{"DataUpload", "DataDownload"} {
		finalizer := writes["finalizer"].patch
		assert.Equal(t, passes, try(q, kind, "ticket", finalizer), "with a ticket")
		assert.Equal(t, held, try(q, kind, "other-ticket", finalizer), "with one of an earlier leader")
		assert.Equal(t, passes, try(q, kind, "new", `{"spec":{"cancel":true},"metadata":{"finalizers":["`+names.MoverFinalizer+`"]}}`), "a canceled one")
		assert.Equal(t, passes, try(q, kind, "new", `{"metadata":{"finalizers":["example.com/other"]}}`), "the finalizer of others")
		assert.Equal(t, passes, try(q, kind, "prepared", finalizer), "a later phase")
	}
}

// listed finds the list of data movers in a policy's expression.
var listed = regexp.MustCompile(`datamover\.orValue\(''\) in (\[[^\]]*\])`)

// The manifests spell out what package names has as a table.
func TestGateTables(t *testing.T) {
	var movers []string
	for _, m := range names.DataMovers() {
		movers = append(movers, m.Name)
	}
	t.Run("data movers", func(t *testing.T) {
		found := listed.FindAllStringSubmatch(string(Gate), -1)
		require.Len(t, found, 2, "plimsoll-admit and plimsoll-start")
		for _, f := range found {
			var list []string
			require.NoError(t, yaml.Unmarshal([]byte(f[1]), &list))
			assert.Equal(t, movers, list)
		}
	})
	t.Run("finalizer and label", func(t *testing.T) {
		for _, word := range []string{names.MoverFinalizer, names.ExposeLabel} {
			assert.Contains(t, string(Gate), "'"+word+"'")
		}
	})
	t.Run("rights", func(t *testing.T) {
		for _, f := range names.MoverKinds() {
			for _, manifest := range [][]byte{ControllerRBAC, ReleaseRBAC} {
				assert.Contains(t, string(manifest), f.Resource)
			}
			assert.Contains(t, string(ControllerRBAC), "- "+f.Resource+"."+names.VeleroGroup)
		}
	})
}

// Each policy is asked about kinds of the table, those that hold about all of them.
func TestGateKinds(t *testing.T) {
	all := map[string]bool{} // whether it has a data mover
	for _, f := range names.MoverKinds() {
		all[f.Version+" "+f.Resource] = f.HasMover
	}
	for document := range strings.SplitSeq(string(Gate)+"\n---\n"+string(GateMutating), "\n---\n") {
		policy, matched := matchedKinds(t, document)
		switch policy {
		case "plimsoll-admit", "plimsoll-start", "plimsoll-load-annotations":
			assert.Len(t, matched, len(all), policy)
		case "plimsoll-release-hidden":
			for _, m := range matched {
				assert.True(t, all[m], "%s has no data mover", m)
			}
		}
		for _, m := range matched {
			assert.Contains(t, all, m, policy)
		}
	}
}

// matchedKinds are the name of a policy and the kinds of Velero, with their versions, that
// it is asked about; no name where the document is no policy.
func matchedKinds(t *testing.T, document string) (name string, kinds []string) {
	t.Helper()
	var policy struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Spec     struct {
			MatchConstraints struct {
				ResourceRules []struct{ APIGroups, APIVersions, Resources []string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(document), &policy))
	if !strings.HasSuffix(policy.Kind, "AdmissionPolicy") {
		return "", nil
	}
	for _, r := range policy.Spec.MatchConstraints.ResourceRules {
		if slices.Equal(r.APIGroups, []string{names.VeleroGroup}) {
			for _, resource := range r.Resources {
				kinds = append(kinds, r.APIVersions[0]+" "+resource)
			}
		}
	}
	return policy.Metadata.Name, kinds
}
