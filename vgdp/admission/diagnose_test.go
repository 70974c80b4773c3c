package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestClipLines(t *testing.T) {
	assert.Equal(t, "one\ntwo", clip([]string{"one", "two"}, 8))
	assert.Equal(t, "…", clip([]string{"one", "two"}, 6))
	assert.Equal(t, "one\n…", clip([]string{"one", "two", "three"}, 10))
	assert.Empty(t, clip(nil, 8))
	for n := range 300 {
		lines := strings.Split(strings.Repeat(strings.Repeat("x", n)+"\n", 40), "\n")
		text := clip(lines, maxDiagnosis)
		assert.LessOrEqual(t, len(text), maxDiagnosis)
		assert.Equal(t, strings.HasSuffix(text, "…"), len(strings.Join(lines, "\n"))+1 > maxDiagnosis, "%d", n)
	}
}

// diagnosisFixture is a reconciler that knows one Velero, with a node and a node-agent.
func diagnosisFixture(movers ...*corev1.Pod) (*Reconciler, *vgdp.Input) {
	v := &velero{movers: store.New("movers", store.NewSignal(), trimMover, nil)}
	for _, p := range movers {
		_ = v.movers.Add(p)
	}
	r := &Reconciler{veleros: map[string]*velero{"velero": v}}
	return r, &vgdp.Input{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Topology: vgdp.NewTopology([]vgdp.Node{{
		Features: vgdp.Features{Name: "n1"}, Agents: map[string]vgdp.Agent{"velero": {Ready: true, Concurrency: 2}},
	}})}
}

func TestNeedsDiagnosis(t *testing.T) {
	r, in := diagnosisFixture(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "moves"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "elsewhere"}, Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."},
		}}},
	)
	accepted := in.Time.Add(-time.Minute)
	for name, row := range map[string]struct {
		load vgdp.Load
		want bool
	}{
		"new":                           {vgdp.Load{Phase: vgdp.New, Created: accepted}, false},
		"accepted long ago":             {vgdp.Load{Phase: vgdp.Accepted, AcceptedAt: accepted}, true},
		"accepted just now":             {vgdp.Load{Phase: vgdp.Accepted, AcceptedAt: accepted.Add(time.Second)}, false},
		"and its volume is elsewhere":   {vgdp.Load{Phase: vgdp.Accepted, AcceptedAt: in.Time, Name: "elsewhere"}, true},
		"prepared, whatever was before": {vgdp.Load{Phase: vgdp.Prepared, AcceptedAt: in.Time, Name: "elsewhere"}, false},
		"accepted nobody knows when":    {vgdp.Load{Phase: vgdp.Accepted}, false},
		"prepared":                      {vgdp.Load{Phase: vgdp.Prepared, AcceptedAt: accepted}, true},
		"runs":                          {vgdp.Load{Phase: vgdp.InProgress, AcceptedAt: accepted, Name: "moves"}, false},
		"runs without a data mover":     {vgdp.Load{Phase: vgdp.InProgress, AcceptedAt: accepted, Name: "lost"}, true},
		"runs in the node-agent itself": {vgdp.Load{Phase: vgdp.InProgress, AcceptedAt: accepted, Name: "lost", Direct: true}, false},
		"another data mover's":          {vgdp.Load{Phase: vgdp.InProgress, AcceptedAt: accepted, Name: "lost", Mover: "theirs"}, false},
	} {
		row.load.Namespace = "velero"
		assert.Equal(t, row.want, r.veleros["velero"].needsDiagnosis(&row.load, in.Time, time.Minute), name)
	}
}

func TestHasCapacityOneVelero(t *testing.T) {
	_, in := diagnosisFixture()
	l := &vgdp.Load{Namespace: "velero", Node: "n1", Phase: vgdp.Prepared}
	in.Loads = []vgdp.Load{*l, {Namespace: "velero", Node: "n1", Phase: vgdp.InProgress}, {Namespace: "velero", Node: "n2", Phase: vgdp.InProgress}, {Namespace: "velero", Node: "n1", Phase: vgdp.InProgress, Mover: "theirs"}}
	assert.True(t, hasCapacity(in, l))
	in.Loads = append(in.Loads, vgdp.Load{Namespace: "velero", Node: "n1", Phase: vgdp.Canceling})
	assert.False(t, hasCapacity(in, l))
	assert.False(t, hasCapacity(in, &vgdp.Load{Namespace: "velero"}), "it has no node")
}

func TestDiagnosisBeginsWithOwnReasons(t *testing.T) {
	_, in := diagnosisFixture()
	l := &vgdp.Load{Namespace: "velero", Name: "a", Kind: vgdp.DataUpload, Phase: vgdp.Accepted, Node: "gone"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "a"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	assert.Equal(t, "stuck: so\nunschedulable: its node does not exist any more\nPod velero/a, phase Pending, node name , message ",
		diagnosis(in, l, &vgdp.Facts{Kind: l.Kind, Pod: pod}, vgdp.Stuck{Why: "so"}))
	l.Node = "n1"
	assert.Equal(t, "Pod velero/a, phase Pending, node name , message ", diagnosis(in, l, &vgdp.Facts{Kind: l.Kind, Pod: pod}, vgdp.Stuck{}))
}

// The volume that Velero made for a load is where no node of its affinity is. The cache
// of a restore is looked at where one is configured.
func TestDiagnosisOfVolumes(t *testing.T) {
	claim := func(name, volume string) string {
		return strings.ReplaceAll(claimYAML(name, "c", volume, ""), "namespace: shop", "namespace: velero")
	}
	objects := documents(classYAML("c", immediate, ""), claimYAML("to", "c", "", ""), claim("down", "pv-2"), claim("down-cache", "pv-1"), claim("cached", "pv-1"), claim("cached-cache", "pv-2"), volumeYAML("pv-1", "", "'1'"), volumeYAML("pv-2", "", "'2'"))
	for config, want := range map[string]map[string]string{
		`{"loadConcurrency":{"prepareQueueLength":9},"loadAffinity":[{"nodeSelector":{"matchLabels":{"zone":"1"}}}]}`:                                 {"down": "unschedulable: 1 excluded by loadAffinity or operating system, 1 excluded by the volume's topology", "cached": ""},
		`{"loadConcurrency":{"prepareQueueLength":9},"loadAffinity":[{"nodeSelector":{"matchLabels":{"zone":"1"}}}],"cachePVC":{"storageClass":"c"}}`: {"down": "unschedulable: 2 excluded by the volume's topology", "cached": "unschedulable: 2 excluded by the volume's topology"},
	} {
		r, s := placed(t, config, nodesOf("a zone=1", "b zone=2"), agentsOn("", "a", "b"), objects)
		with(t, r, documents(strings.Replace(download("down", "to", ""), "spec:", "status: {phase: Accepted}, spec:", 1), strings.Replace(download("cached", "to", ""), "spec:", "status: {phase: Accepted}, spec:", 1)))
		in, loads, _ := look(t, r, noon())
		for name, first := range want {
			f := r.veleros["velero"].facts(t.Context(), &in, loads[name])
			line, _, _ := strings.Cut(diagnosis(&in, loads[name], f, vgdp.Stuck{}), "\n")
			if first == "" {
				assert.NotContains(t, line, "unschedulable")
				assert.Zero(t, s.asked["/api/v1/namespaces/velero/persistentvolumeclaims/cached-cache"], "Velero makes none")
				continue
			}
			assert.Equal(t, first, line, "%s: %s", name, config)
		}
	}
}
