package deploy

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// mover of a load, and what it was before it was hidden.
func mover(u *unstructured.Unstructured) string {
	is, set, _ := unstructured.NestedString(u.Object, "spec", "datamover")
	was, hidden := u.GetAnnotations()[gate.OriginalDataMover]
	return fmt.Sprintf("%q %v was %q %v", is, set, was, hidden)
}

// hideBy somebody.
func (q *gateFixture) hideBy(by dynamic.Interface, kind, name, was string) error {
	return q.patch(by, kind, name, fmt.Sprintf(`{"spec":{"datamover":%q},"metadata":{"annotations":{%q:%q}}}`, gate.HiddenMover, gate.OriginalDataMover, was))
}

// hide makes a load, which the controller hides.
func (q *gateFixture) hide(kind, prefix, was string) (name string) {
	q.t.Helper()
	u, err := q.load(kind, prefix, was)
	require.NoError(q.t, err)
	require.NoError(q.t, q.hideBy(q.controller, kind, u.GetName(), was))
	return u.GetName()
}

// hidden does so, and tells what it is then.
func (q *gateFixture) hidden(kind, name, was string) string {
	q.t.Helper()
	return mover(q.get(kind, q.hide(kind, name, was)))
}

// byAnother tells what becomes of a load that Velero makes hidden. Any Gate has that
// refused, and the controller hides a load whether or not there is one: this alone tells
// that the validating policies have seen the first Gate.
func (q *gateFixture) byAnother() string {
	_, err := q.load("DataUpload", "new-", gate.HiddenMover)
	return q.became(err)
}

// untilHides waits until the policies have seen a Gate that holds, those that hand a load
// back too: they do with one that is cancelled.
func (q *gateFixture) untilHides() {
	q.t.Helper()
	q.until(refused, q.byAnother)
	q.until(isBack[""], func() string {
		u := q.hide("DataUpload", "cancelled-", "")
		require.NoError(q.t, q.patch(q.velero, "DataUpload", u, `{"spec":{"cancel":true}}`))
		return mover(q.get("DataUpload", u))
	})
	q.until(hides[""], func() string { return q.hidden("DataUpload", "new-", "") })
	u, err := q.load("DataUpload", "waits-", "")
	require.NoError(q.t, err)
	q.until(held, func() string { return q.accepts("DataUpload", u.GetName(), "n1") })
}

// as a load is while it is hidden, and when it was handed back.
var (
	hides  = map[string]string{"": `"plimsoll.dev/held" true was "" true`, "velero": `"plimsoll.dev/held" true was "velero" true`}
	isBack = map[string]string{"": `"" false was "" false`, "velero": `"velero" true was "" false`}
)

func TestGateHidesLoad(t *testing.T) {
	q := newMutatingFixture(t)
	for _, g := range []struct {
		name string
		gate gate.Spec
		want map[string]string
	}{
		{"a Gate that holds", fresh(nil), hides},
		{"one that limits nothing", fresh(func(s *gate.Spec) { s.Limited = false }), isBack},
		{"one that holds again", fresh(nil), hides},
		{"a stale one", fresh(stale), isBack},
		{"one that was renewed", fresh(nil), hides},
	} {
		t.Run(g.name, func(t *testing.T) {
			q := q.in(t)
			q.gate(gate.Main, g.gate)
			q.until(refused, q.byAnother)
			q.until(g.want[""], func() string { return q.hidden("DataUpload", "new-", "") })
			for _, kind := range []string{"DataUpload", "DataDownload"} {
				for was, want := range g.want {
					assert.Equal(t, want, q.hidden(kind, "new-", was))
				}
				u, err := q.load(kind, "new-", "velero")
				require.NoError(t, err)
				assert.Equal(t, isBack["velero"], mover(u), "a new one is nobody's to change")
				byVelero := q.became(q.hideBy(q.velero, kind, u.GetName(), "velero"))
				if assert.Equal(t, isBack["velero"], mover(q.get(kind, u.GetName()))); g.want[""] == hides[""] {
					assert.Equal(t, refused, byVelero)
				}
				_, err = q.load(kind, "new-", gate.HiddenMover)
				assert.Equal(t, refused, q.became(err))
			}
		})
	}
}

func TestGateHandsBackHiddenLoad(t *testing.T) {
	q := newMutatingFixture(t)
	q.gate(gate.Main, fresh(nil))
	q.untilHides()
	for _, kind := range []string{"DataUpload", "DataDownload"} {
		for was, back := range isBack {
			for _, name := range []string{"left", "cancelled", "let-go", "stale", "unlimited"} {
				require.Equal(t, hides[was], q.hidden(kind, name+was, was))
			}
			touch := `{"metadata":{"labels":{"touched":"yes"}}}`
			require.NoError(t, q.patch(q.velero, kind, "left"+was, touch))
			assert.Equal(t, hides[was], mover(q.get(kind, "left"+was)), "it is held")
			for _, half := range []string{
				`{"spec":{"datamover":"acme.io/m"},"metadata":{"annotations":{"plimsoll.dev/held-datamover":null}}}`,
				`{"spec":{"datamover":"velero"}}`, `{"metadata":{"annotations":{"plimsoll.dev/held-datamover":null}}}`,
			} {
				assert.Equal(t, refused, q.became(q.patch(q.velero, kind, "left"+was, half)), half)
			}
			require.NoError(t, q.patch(q.velero, kind, "cancelled"+was, `{"spec":{"cancel":true}}`))
			assert.Equal(t, back, mover(q.get(kind, "cancelled"+was)), "it was cancelled")

			assert.Equal(t, held, q.accepts(kind, "cancelled"+was, "n1"), "handed back, it needs a ticket like any other")
			let := map[string]any{"spec": map[string]any{"datamover": nil}, "metadata": map[string]any{"annotations": map[string]any{gate.OriginalDataMover: nil, gate.Admitted: "*@7"}}}
			if was != "" {
				let["spec"] = map[string]any{"datamover": was}
			}
			raw, err := json.Marshal(let)
			require.NoError(t, err)
			require.NoError(t, q.patch(q.controller, kind, "let-go"+was, string(raw)))
			assert.Equal(t, back, mover(q.get(kind, "let-go"+was)), "the controller let it go")
			assert.Equal(t, passes, q.accepts(kind, "let-go"+was, "n1"))

			for name, change := range map[string]func(*gate.Spec){"stale": stale, "unlimited": func(s *gate.Spec) { s.Limited = false }} {
				q.gate(gate.Main, fresh(change))
				n := 0
				q.until(back, func() string {
					n++
					require.NoError(t, q.patch(q.velero, kind, name+was, fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, n)))
					return mover(q.get(kind, name+was))
				})
				q.gate(gate.Main, fresh(nil))
				q.untilHides()
			}
		}
	}
}

func TestGateMissingUninstallHandsBack(t *testing.T) {
	q := newMutatingFixture(t)
	q.gate(gate.Main, fresh(nil))
	q.untilHides()
	require.Equal(t, hides["velero"], q.hidden("DataUpload", "left", "velero"))
	q.noGate(gate.Main)
	q.until(passes, q.byAnother)
	n := 0
	touch := func() string {
		n++
		require.NoError(t, q.patch(q.velero, "DataUpload", "left", fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, n)))
		return mover(q.get("DataUpload", "left"))
	}
	assert.Equal(t, hides["velero"], touch(), "no Gate, no policy")
	remove := new(unstructured.Unstructured)
	require.NoError(t, yaml.Unmarshal(GateRemove, &remove.Object))
	if q.v1beta1() {
		remove.SetAPIVersion(remove.GetAPIVersion() + "beta1")
	}
	resource, _ := meta.UnsafeGuessKindToResource(remove.GroupVersionKind())
	bindings := q.controller.Resource(resource)
	take := func() error { return bindings.Delete(cleanup(t), remove.GetName(), metav1.DeleteOptions{}) }
	t.Cleanup(func() { _ = take() })
	// By another than who applied the policies, as an administrator beside Helm, and not forced.
	_, err := bindings.Apply(t.Context(), remove.GetName(), remove, metav1.ApplyOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	q.until(isBack["velero"], touch)

	// Without it they hold as before; the API server takes up a change of bindings up to a
	// second later.
	require.NoError(t, take())
	q.gate(gate.Main, fresh(nil))
	q.untilHides()
}

// sortedNodes: the names of nodes come in any order.
func sortedNodes(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return a
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			slices.Sort(r.Values)
		}
	}
	return a
}

func TestGateMoverPodAffinity(t *testing.T) {
	q := newMutatingFixture(t)
	term := func(key string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}
	}
	fields := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n9"}}}}
	away := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1", "n2"}}
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	with := func(t corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
		t.MatchExpressions = append(append([]corev1.NodeSelectorRequirement(nil), t.MatchExpressions...), away)
		return t
	}
	spread := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
	prefers := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term("p")}}
	alone := required(with(corev1.NodeSelectorTerm{}))
	kept := alone.DeepCopy()
	kept.PodAntiAffinity, kept.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = spread, prefers
	mover := map[string]string{"velero.io/data-upload": "du", "velero.io/exposer-pod-group": "snapshot-exposer"}
	holds := gate.Spec{Epoch: 7, Steer: true, Holds: map[string]metav1.Time{
		"n2": metav1.NewTime(time.Now().Add(lease)), "n1": metav1.NewTime(time.Now().Add(lease)), "n3": metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	made := func(labels map[string]string, affinity *corev1.Affinity) *corev1.Affinity {
		pod, err := q.c.Client.CoreV1().Pods(q.ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: labels},
			Spec:       corev1.PodSpec{Affinity: affinity, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return sortedNodes(pod.Spec.Affinity)
	}
	steered := func() string { return fmt.Sprint(made(mover, nil) != nil) }
	q.gate(gate.Holds, holds)
	q.until("true", steered)
	for _, row := range []struct {
		name   string
		labels map[string]string
		is     *corev1.Affinity
		want   *corev1.Affinity
	}{
		{"no affinity", mover, nil, alone},
		{"of a download", map[string]string{"velero.io/data-download": "dd", "velero.io/exposer-pod-group": "generic-restore-exposer"}, nil, alone},
		{"other affinity alone", mover, &corev1.Affinity{PodAntiAffinity: spread, NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: prefers}}, kept},
		{"one term", mover, required(term("a")), required(with(term("a")))},
		{"several terms", mover, required(term("a"), fields, term("b")), required(with(term("a")), with(fields), with(term("b")))},
		{"of nobody's", map[string]string{"app": "cart"}, required(term("a")), required(term("a"))},
	} {
		assert.Empty(t, cmp.Diff(row.want, made(row.labels, row.is)), row.name)
	}
	holds.Steer = false
	q.gate(gate.Holds, holds)
	q.until("false", steered)
}

// Pods of maintenances are kept off the nodes that the Gate names, and stay where their
// administrator wants them.
func TestGateMaintenancePodAffinity(t *testing.T) {
	q := newMutatingFixture(t)
	until := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(d)) }
	holds := gate.Spec{Epoch: 7, Maintenance: map[string]metav1.Time{"n2": until(lease), "n1": until(lease), "n3": until(-time.Minute)}}
	maintains := map[string]string{"velero.io/repo-name": "shop-default-kopia"}
	made := func(namespace string, labels map[string]string, spec corev1.PodSpec) *corev1.Affinity {
		spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		pod, err := q.c.Client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: labels}, Spec: spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return sortedNodes(pod.Spec.Affinity)
	}
	steered := func() string { return fmt.Sprint(made(q.ns, maintains, corev1.PodSpec{}) != nil) }
	away := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1", "n2"}}},
	}}}}
	spread := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
	wants := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}}},
	}}}}
	q.gate(gate.Holds, holds)
	q.until("true", steered)
	for name, row := range map[string]struct {
		namespace string
		labels    map[string]string
		spec      corev1.PodSpec
		want      *corev1.Affinity
	}{
		"no affinity":           {q.ns, maintains, corev1.PodSpec{}, &corev1.Affinity{NodeAffinity: away}},
		"other affinity":        {q.ns, maintains, corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: spread}}, &corev1.Affinity{NodeAffinity: away, PodAntiAffinity: spread}},
		"nodes of its own":      {q.ns, maintains, corev1.PodSpec{Affinity: wants}, wants},
		"a selector of its own": {q.ns, maintains, corev1.PodSpec{NodeSelector: map[string]string{"pool": "p"}}, nil},
		"not of a maintenance":  {q.ns, map[string]string{"app": "cart"}, corev1.PodSpec{}, nil},
		"no Gate there":         {q.c.Namespace(t), maintains, corev1.PodSpec{}, nil},
	} {
		assert.Empty(t, cmp.Diff(row.want, made(row.namespace, row.labels, row.spec)), name)
	}
	q.gate(gate.Holds, gate.Spec{Epoch: 7, Maintenance: map[string]metav1.Time{"n3": until(-time.Minute)}})
	q.until("false", steered)
}
