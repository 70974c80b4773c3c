package vgdp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func zone(values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

func TestUnschedulableReason(t *testing.T) {
	fleet := nodes(6, 1)
	for i := range fleet {
		fleet[i].Labels["zone"] = "a"
	}
	fleet[0].Labels["zone"] = "b"
	fleet[1].Labels["kubernetes.io/os"] = "windows"
	fleet[2].Unschedulable = true
	fleet[3].Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	fleet[4].Agents["velero"] = Agent{}
	delete(fleet[5].Agents, "velero")
	linux := PodAffinity(&OnOS(nil, false).NodeSelector, nil)
	pv := []*corev1.NodeSelector{{NodeSelectorTerms: []corev1.NodeSelectorTerm{zone("a")}}}
	at := func(p Place) Load { return load("x", DataUpload, func(l *Load) { l.Place = p }) }

	d := Decide(world(0, fleet, at(NewPlace(PlaceSpec{Affinity: linux, Volumes: pv}))))
	assert.Empty(t, d.Waiting, "nothing is touched")
	d = Decide(world(1, fleet, load("slot", DataUpload, in(Accepted)), at(NewPlace(PlaceSpec{Affinity: linux, Volumes: pv}))))
	assert.Equal(t, map[string]Code{"x": CodeUnschedulable}, why(d), "also when no slot is free")
	assert.Equal(t, "unschedulable: 1 excluded by loadAffinity or operating system, 2 without a ready node-agent, 1 cordoned, 1 tainted, 1 excluded by the volume's topology",
		d.Waiting[0].Wait.Sentence())

	tolerant := []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	f := NewTopology(fleet)
	x := at(NewPlace(PlaceSpec{Affinity: linux, Volumes: pv, Tolerations: tolerant}))
	assert.Equal(t, []string{"n4"}, f.ReachOf(&x).Nodes)
	x = at(NewPlace(PlaceSpec{Affinity: PodAffinity(&OnOS(nil, true).NodeSelector, nil)}))
	assert.Equal(t, []string{"n2"}, f.ReachOf(&x).Nodes)
	x = at(Place{}.With(AllowedTopologies([]corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"b", "c"}}}}})))
	assert.Equal(t, []string{"n1"}, f.ReachOf(&x).Nodes)
	assert.Nil(t, AllowedTopologies(nil))
	x = load("bound", PodVolumeBackup, on("n3"))
	assert.Equal(t, []string{"n3"}, f.ReachOf(&x).Nodes, "the scheduler has no say")
	x.Node = "n5"
	assert.Equal(t, "1 without a ready node-agent", f.ReachOf(&x).String())
	x.Node = "n7"
	assert.Equal(t, "its node does not exist any more", f.ReachOf(&x).String())
	x.Node = ""
	assert.Equal(t, "the cluster has no node", NewTopology(nil).ReachOf(&x).String())
	d = Decide(world(1, fleet, x))
	assert.Equal(t, map[string]Code{"bound": CodeNotReady}, why(d))
}

func TestSelectorAsScheduler(t *testing.T) {
	n := &Features{Name: "n1", Labels: map[string]string{"zone": "a", "size": "7"}}
	of := func(key string, o corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: o, Values: values}
	}
	all := func(list ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: list}
	}
	for name, c := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		"no term":                       {nil, false},
		"an empty one":                  {[]corev1.NodeSelectorTerm{{}}, false},
		"one of two":                    {[]corev1.NodeSelectorTerm{zone("b"), zone("a")}, true},
		"all of one":                    {[]corev1.NodeSelectorTerm{all(of("zone", "In", "a"), of("size", "Gt", "8"))}, false},
		"greater":                       {[]corev1.NodeSelectorTerm{all(of("size", "Gt", "6"))}, true},
		"less":                          {[]corev1.NodeSelectorTerm{all(of("size", "Lt", "8"))}, true},
		"not in, and it is not there":   {[]corev1.NodeSelectorTerm{all(of("os", "NotIn", "windows"))}, true},
		"there":                         {[]corev1.NodeSelectorTerm{all(of("zone", "Exists"))}, true},
		"not there":                     {[]corev1.NodeSelectorTerm{all(of("zone", "DoesNotExist"))}, false},
		"an operator that is none":      {[]corev1.NodeSelectorTerm{all(of("zone", "Is", "a"))}, false},
		"values that must not be":       {[]corev1.NodeSelectorTerm{all(of("gone", "DoesNotExist", "a"))}, false},
		"none that is, and one that is": {[]corev1.NodeSelectorTerm{all(of("zone", "Is", "a")), zone("a")}, true},
		"its name":                      {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{of("metadata.name", "In", "n1")}}}, true},
		"another name":                  {[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{of("metadata.name", "In", "n2")}}}, false},
	} {
		assert.Equal(t, c.want, newSelector(&corev1.NodeSelector{NodeSelectorTerms: c.terms}).selects(n), name)
	}
	assert.True(t, newSelector(nil).selects(n))
}

func TestOnOSLeavesInput(t *testing.T) {
	a := &LoadAffinity{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	got := terms(PodAffinity(&OnOS(a, true).NodeSelector, nil))[0].MatchExpressions
	assert.Equal(t, []corev1.NodeSelectorRequirement{
		{Key: "a", Operator: "In", Values: []string{"b"}}, {Key: "kubernetes.io/os", Operator: "In", Values: []string{"windows"}},
	}, got)
	assert.Empty(t, a.NodeSelector.MatchExpressions)
}

func TestUnschedulableOneAdmitted(t *testing.T) {
	gone := load("gone", PodVolumeBackup, on("n9"), made(at(-time.Hour)))
	loads := []Load{gone, load("x1", DataUpload, nowhere), load("x2", DataUpload, nowhere), load("y", DataUpload)}
	d := Decide(world(4, nodes(1, 9), loads...))
	assert.Equal(t, []string{"y", "x1"}, admitted(d), "it comes last, and nobody could accept what is bound to a node that is gone")
	assert.Equal(t, map[string]Code{"gone": CodeUnschedulable, "x2": CodeUnschedulable}, why(d))
	assert.Equal(t, []string{"y"}, admitted(Decide(world(1, nodes(1, 9), loads...))), "when a slot is left over")

	for _, l := range []Load{load("runs", DataUpload, in(InProgress), on("n9")), load("prepared", DataUpload, in(Prepared), on("n9")), load("unseen", DataUpload, in(InProgress), nowhere)} {
		assert.Equal(t, []string{"y", "x1"}, admitted(Decide(world(5, nodes(1, 9), append(loads, l)...))), "%s: its pod is not pending, which an autoscaler needs", l.Name)
	}

	loads[1].Ticket = &Ticket{Epoch: 7, At: noon}
	d = Decide(world(4, nodes(1, 9), loads...))
	assert.Equal(t, []string{"y"}, admitted(d))
	assert.Empty(t, d.Revoke)
	loads[1].Phase = Accepted
	assert.Equal(t, []string{"y"}, admitted(Decide(world(4, nodes(1, 9), loads...))))
	assert.Len(t, Decide(pressed(world(0, nodes(1, 9), loads...), "n1", tight(1))).Admit, 2, "where slots are not scarce all may: x2 and y")
}

func TestMoverTolerations(t *testing.T) {
	spot := corev1.Toleration{Key: "kubernetes.azure.com/scalesetpriority", Operator: corev1.TolerationOpEqual, Value: "spot", Effect: corev1.TaintEffectNoSchedule}
	critical := corev1.Toleration{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}
	agent := []corev1.Toleration{
		{Operator: corev1.TolerationOpExists},
		{Key: "dedicated", Operator: corev1.TolerationOpExists},
		critical,
		{Key: "CriticalAddonsOnly", Value: "a second one"},
		spot,
	}
	assert.Equal(t, []corev1.Toleration{spot, critical}, MoverTolerations(agent, false), "in Velero's order, the first of each")
	assert.Empty(t, MoverTolerations(agent[:2], false), "those for all keys are the node-agents' own")
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: effect}}
	}
	for name, c := range map[string]struct {
		windows bool
		taints  []corev1.Taint
		want    bool
	}{
		"none":                         {false, nil, true},
		"spot":                         {false, taint("kubernetes.azure.com/scalesetpriority", "spot", corev1.TaintEffectNoSchedule), true},
		"another value of it":          {false, taint("kubernetes.azure.com/scalesetpriority", "none", corev1.TaintEffectNoSchedule), false},
		"critical":                     {false, taint("CriticalAddonsOnly", "true", corev1.TaintEffectNoExecute), true},
		"dedicated":                    {false, taint("dedicated", "", corev1.TaintEffectNoSchedule), false},
		"Windows, for Linux":           {false, taint("os", "windows", corev1.TaintEffectNoSchedule), false},
		"Windows":                      {true, taint("os", "windows", corev1.TaintEffectNoSchedule), true},
		"Windows, and nothing runs on": {true, taint("os", "windows", corev1.TaintEffectNoExecute), true},
		"an os of another name":        {true, taint("os", "other", corev1.TaintEffectNoSchedule), false},
	} {
		p := NewPlace(PlaceSpec{Tolerations: MoverTolerations(agent, c.windows)})
		assert.Equal(t, c.want, p.obstacle(&Features{Name: "n", Taints: c.taints}) == "", name)
	}
}

// Four loads of a class that only spot nodes serve: before, the one admitted was the one
// that is tried without a possible node.
func TestAllToleratingAdmitted(t *testing.T) {
	fleet := nodes(2, 9)
	for i := range fleet {
		fleet[i].Taints = []corev1.Taint{{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	agent := []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}}
	for tolerations, want := range map[*[]corev1.Toleration]int{{}: 1, &agent: 4} {
		place := func(l *Load) { l.Place = NewPlace(PlaceSpec{Tolerations: MoverTolerations(*tolerations, false)}) }
		d := Decide(world(9, fleet, load("a", DataUpload, place), load("b", DataUpload, place), load("c", DataDownload, place), load("d", DataDownload, place)))
		assert.Len(t, d.Admit, want)
	}
}

// The nodes that a volume names are found by their labels. Every node, one after the
// other, gives the same.
func TestReachSameAsEachNode(t *testing.T) {
	for seed := range uint64(400) {
		require.NoError(t, sameReach(seed), "seed %d", seed)
	}
}

func FuzzReach(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { require.NoError(t, sameReach(seed)) })
}

func sameReach(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 9))
	fleet := labelledNodes(r)
	spec := PlaceSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: someSelector(r)}}}
	if r.IntN(3) == 0 {
		spec.Affinity = nil
	}
	for range r.IntN(3) {
		spec.Volumes = append(spec.Volumes, someSelector(r))
	}
	l := load("x", DataUpload, func(l *Load) { l.Place = NewPlace(spec) })
	want := &Reach{Excluded: map[Obstacle]int{}}
	for i := range fleet {
		switch o := l.Place.obstacle(&fleet[i].Features); {
		case o != "":
			want.Excluded[o]++
		case !fleet[i].Agents["velero"].Ready:
			want.Excluded[ObstacleAgent]++
		default:
			want.Nodes = append(want.Nodes, fleet[i].Name)
		}
	}
	if got := NewTopology(fleet).ReachOf(&l); !slices.Equal(want.Nodes, got.Nodes) || !maps.Equal(want.Excluded, got.Excluded) {
		return errorf("nodes %v, excluded %v; one after the other %v, %v", got.Nodes, got.Excluded, want.Nodes, want.Excluded)
	}
	return nil
}

// labelledNodes are some, most of them in a zone and with a disk.
func labelledNodes(r *rand.Rand) []Node {
	fleet := nodes(1+r.IntN(6), 1)
	for i := range fleet {
		for _, label := range []string{"zone", "disk"} {
			if r.IntN(4) > 0 {
				fleet[i].Labels[label] = string(rune('a' + r.IntN(3)))
			}
		}
		fleet[i].Unschedulable = r.IntN(6) == 0
		fleet[i].Agents["velero"] = Agent{Ready: r.IntN(5) > 0}
	}
	return fleet
}

// someSelector has up to two terms, of up to two requirements each, some of them invalid.
func someSelector(r *rand.Rand) *corev1.NodeSelector {
	s := &corev1.NodeSelector{}
	for range r.IntN(3) {
		var term corev1.NodeSelectorTerm
		for range r.IntN(3) {
			e := corev1.NodeSelectorRequirement{Key: []string{"zone", "disk"}[r.IntN(2)], Operator: []corev1.NodeSelectorOperator{"In", "In", "NotIn", "Exists", "Is"}[r.IntN(5)]}
			if e.Operator != corev1.NodeSelectorOpExists {
				e.Values = []string{"a", "b", "c"}[r.IntN(2) : 2+r.IntN(2)]
			}
			term.MatchExpressions = append(term.MatchExpressions, e)
		}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, term)
	}
	return s
}

// nowhere is a node that an autoscaler would have to add.
func nowhere(l *Load) {
	l.Place = Place{}.With(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{zone("made on demand")}})
}

const prepares = 10 * time.Minute

// turnOver decides for six hours. Each backup is prepared in the same time, and another one
// follows it. It returns how long the load without a possible node waits; 0: to the end.
func turnOver(in Input) (waits time.Duration) {
	for ; in.Time.Before(at(6 * time.Hour)); in.Time = in.Time.Add(time.Minute) {
		for _, g := range Decide(in).Admit {
			if g.Phase, g.AcceptedAt = Accepted, in.Time; g.Name == "nowhere" {
				return in.Time.Sub(noon)
			}
		}
		for i := range in.Loads {
			if l := &in.Loads[i]; l.Phase == Accepted && !in.Time.Before(l.AcceptedAt.Add(prepares)) {
				l.Phase, l.Created = New, in.Time
			}
		}
	}
	return 0
}

func TestUnschedulableHasTurn(t *testing.T) {
	for name, row := range map[string]struct {
		kind        Kind
		limit       int
		least, most time.Duration
	}{
		"a restore": {DataDownload, 4, Aging, Aging + 2*prepares},
		"a backup":  {DataUpload, 4, Aging, Aging + 2*prepares},
		"backups have a single slot, which it might keep for half an hour": {DataDownload, 2, 0, 0},
	} {
		in := world(row.limit, nodes(9, 9), load("nowhere", row.kind, nowhere, made(at(-time.Second))))
		for i := range 50 {
			in.Loads = append(in.Loads, load(fmt.Sprint("b", i), DataUpload, made(noon)))
		}
		waits := turnOver(in)
		assert.GreaterOrEqual(t, waits, row.least, name)
		assert.LessOrEqual(t, waits, row.most, name)
	}
	d := Decide(world(4, nodes(9, 9), load("nowhere", DataDownload, in(Accepted), nowhere), load("b1", DataUpload), load("b2", DataUpload), load("b3", DataUpload)))
	assert.Equal(t, []string{"b1", "b2"}, admitted(d), "it leaves the kept slot to restores that can run")
}

// A load without a possible node may keep its slot for half an hour.
func TestUnschedulableLeavesSlotToOthers(t *testing.T) {
	runs, waits := load("runs", PodVolumeBackup, in(InProgress), on("n1")), load("waits", PodVolumeBackup, on("n1"))
	gone, second := load("gone", DataUpload, nowhere), load("second", DataUpload, nowhere)
	for name, row := range map[string]struct {
		limit int
		loads []Load
		want  []string
	}{
		"one slot, and one waits for its node":    {1, []Load{runs, waits, gone}, nil},
		"two slots, and one waits for its node":   {2, []Load{runs, waits, gone}, nil},
		"three slots, and one waits for its node": {3, []Load{runs, waits, gone}, []string{"gone"}},
		"one of three slots is taken":             {3, []Load{runs, waits, gone, load("accepted", PodVolumeBackup, in(Accepted), on("n2"))}, nil},
		"two slots, and the node takes it":        {2, []Load{waits, gone}, []string{"waits"}},
		"two slots, and no other waits":           {2, []Load{runs, gone}, []string{"gone"}},
		"two slots, and the other has no node":    {2, []Load{runs, gone, second}, []string{"gone"}},
		"two slots, and the other is not ready":   {2, []Load{runs, gone, load("late", PodVolumeBackup, on("n1"), func(l *Load) { l.NotReady = "no" })}, []string{"gone"}},
		"another Velero's waits":                  {2, []Load{runs, gone, load("theirs", PodVolumeBackup, on("n1"), func(l *Load) { l.Namespace = "other" })}, []string{"gone"}},
	} {
		w := world(row.limit, nodes(2, 1), row.loads...)
		w.Veleros["other"] = Velero{Epoch: 3, PrepareLimit: 1}
		assert.Equal(t, row.want, admitted(Decide(w)), name)
	}
}
