package pods

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// choices makes a pod out of bytes: each byte takes one of several ways.
type choices struct{ left []byte }

func (c *choices) of(n int) int {
	if len(c.left) == 0 {
		return 0
	}
	next := int(c.left[0])
	c.left = c.left[1:]
	return next % n
}

func pickOne[T any](c *choices, all ...T) T { return all[c.of(len(all))] }

func (c *choices) requirement() requirement {
	r := requirement{
		Key:      pickOne(c, corev1.LabelHostname, "metadata.name", "pool"),
		Operator: pickOne(c, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists),
	}
	for range c.of(4) {
		r.Values = append(r.Values, pickOne(c, "n1", "n2", "n3"))
	}
	return r
}

func (c *choices) terms() []corev1.NodeSelectorTerm {
	terms := make([]corev1.NodeSelectorTerm, c.of(4))
	for i := range terms {
		for range c.of(4) {
			terms[i].MatchExpressions = append(terms[i].MatchExpressions, c.requirement())
		}
		for range c.of(2) {
			terms[i].MatchFields = append(terms[i].MatchFields, c.requirement())
		}
	}
	return terms
}

func (c *choices) pod() *corev1.Pod {
	pod := made(in(pickOne(c, "shop", "velero", "kube-system", "velero-2")))
	for _, key := range append(annotationsThatDecide(), "note") {
		if c.of(3) == 1 {
			annotated(key, pickOne(c, "true", "api", "file", "", "false"))(pod)
		}
	}
	for _, key := range append(labelsThatDecide(), "note") {
		if c.of(4) == 1 {
			labelled(key, pickOne(c, "", "true", "x"))(pod)
		}
	}
	pod.Spec.Priority = pickOne(c, nil, new(int32(0)), new(int32(1_999_999_999)), new(int32(2_000_000_000)), new(int32(-5)))
	pod.OwnerReferences = nil
	for range c.of(3) {
		o := owner(pickOne(c, "apps/v1", "v1", "example.org/v1", "velero.io/v1"), pickOne(c, "ReplicaSet", "DaemonSet", "Node"), pickOne(c, new(true), nil, new(false)))
		o.Name = pickOne(c, "n1", "n2")
		pod.OwnerReferences = append(pod.OwnerReferences, o)
	}
	pod.ManagedFields = nil
	for range c.of(3) {
		pod.ManagedFields = append(pod.ManagedFields, record(
			pickOne(c, recordOfPlaced, recordOfNamed, recordOfLabel, recordOfStatus, "{", "null"), pickOne(c, "", "", "status")))
	}
	pod.Spec.NodeName = pickOne(c, "n1", "")
	pod.Spec.NodeSelector = pickOne(c, nil, map[string]string{"pool": "p"}, map[string]string{corev1.LabelHostname: "n1"})
	if c.of(2) == 1 {
		requiring(c.terms()...)(pod)
	}
	for range c.of(3) {
		pickOne(c, claiming("a"), claiming("b"), scratch("a"))(pod)
	}
	return pod
}

func (c *choices) claims() claimsByName {
	all := claimsByName{}
	for _, name := range []string{"a", "b", "web-1-a"} {
		switch c.of(4) {
		case 1:
			all[name] = claim{known: true}
		case 2:
			all[name] = claim{known: true, onlyHere: "here"}
		case 3:
			all[name] = claim{unbinding: true, started: true}
		}
	}
	return all
}

// obviously is what protects a pod, said the long way.
func obviously(pod *corev1.Pod, claims claimsByName) map[string]bool {
	is := map[string]bool{}
	controller := obviousController(pod)
	is[Static] = obviouslyStatic(pod)
	for key := range pod.Labels {
		moves := slices.Contains([]string{"velero.io/data-upload", "velero.io/data-download", "velero.io/pod-volume-backup", "velero.io/pod-volume-restore"}, key)
		is[Mover] = is[Mover] || moves && (controller == "" || strings.HasPrefix(controller, "velero.io/"))
	}
	is[Critical] = pod.Spec.Priority != nil && *pod.Spec.Priority >= 2_000_000_000
	is[Namespace] = pod.Namespace == "kube-system" || pod.Namespace == "velero" || pod.Namespace == "plimsoll-system"
	is[NoController] = controller == ""
	is[DaemonSet] = controller == "apps/v1 DaemonSet"
	_, is[OnlyHere] = pod.Spec.NodeSelector["kubernetes.io/hostname"]
	is[OnlyHere] = is[OnlyHere] || pod.Spec.NodeName != "" && obviouslyNamed(pod) || obviouslyOneNode(pod)
	for _, v := range pod.Spec.Volumes {
		claim := claims[obviousClaim(pod, v)]
		is[OnlyHere] = is[OnlyHere] || claim.onlyHere != ""
		is[Unresolved] = is[Unresolved] || !claim.known && !claim.unbinding
	}
	return is
}

func obviouslyStatic(pod *corev1.Pod) (static bool) {
	_, mirror := pod.Annotations["kubernetes.io/config.mirror"]
	for _, o := range pod.OwnerReferences {
		static = static || mirror && o.APIVersion == "v1" && o.Kind == "Node" && o.Name == pod.Spec.NodeName && o.Controller != nil && *o.Controller
	}
	return static
}

func obviousClaim(pod *corev1.Pod, v corev1.Volume) string {
	if v.PersistentVolumeClaim != nil {
		return v.PersistentVolumeClaim.ClaimName
	}
	return pod.Name + "-" + v.Name
}

func obviousController(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		what := o.APIVersion + " " + o.Kind
		if o.Controller != nil && *o.Controller && what != "v1 Node" {
			return what
		}
	}
	return ""
}

func obviouslyNamed(pod *corev1.Pod) (named bool) {
	for _, m := range pod.ManagedFields {
		named = named || m.Subresource == "" && strings.Contains(m.FieldsV1.GetRawString(), `"f:nodeName":`)
	}
	return named
}

// obviouslyOneNode tries the requirement on nodes: those that it names and one
// that it does not. Each hostname and each name is one of a node that has no
// other: nodes h:<value> and n:<value>.
func obviouslyOneNode(pod *corev1.Pod) bool {
	if pod.Spec.Affinity == nil {
		return false
	}
	matched := map[string]bool{} // by what
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue
		}
		hosts := obviouslyLeft(term.MatchExpressions, corev1.LabelHostname)
		names := obviouslyLeft(term.MatchFields, "metadata.name")
		switch {
		case len(names) <= 1: // and whatever hosts
			for _, n := range names {
				matched["n:"+n] = true
			}
		case len(hosts) <= 1:
			for _, h := range hosts {
				matched["h:"+h] = true
			}
		default:
			return false
		}
	}
	// One by its name and one by its hostname may be the same.
	count := map[string]int{}
	for m := range matched {
		count[m[:1]]++
	}
	return count["n"] <= 1 && count["h"] <= 1
}

func obviouslyLeft(all []requirement, key string) []string {
	asked := slices.ContainsFunc(all, func(r requirement) bool { return r.Key == key && r.Operator == corev1.NodeSelectorOpIn })
	if !asked {
		return []string{"any", "other"}
	}
	return slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(value string) bool {
		return slices.ContainsFunc(all, func(r requirement) bool {
			named := slices.Contains(r.Values, value)
			return r.Key == key && (r.Operator == corev1.NodeSelectorOpIn && !named || r.Operator == corev1.NodeSelectorOpNotIn && named)
		})
	})
}

// compare holds the protections of one pod against the slow version.
func compare(t *testing.T, bytes []byte) {
	c := &choices{left: bytes}
	pod, claims := c.pod(), c.claims()
	found := protections(strip(pod), claims, DefaultRules())
	is := obviously(pod, claims)
	for _, code := range []string{Static, Critical, DaemonSet, NoController, OnlyHere, Namespace, Mover, Unresolved} {
		if got := slices.Contains(codes(found), code); got != is[code] {
			text, err := json.MarshalIndent(pod, "", " ")
			require.NoError(t, err)
			t.Fatalf("%s is %t, and obviously %t, of\n%s", code, got, is[code], text)
		}
	}
	for _, p := range found {
		assert.NotEmpty(t, p.Why)
	}
}

func TestProtectionsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	bytes := make([]byte, 120)
	for range 20_000 {
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		compare(t, bytes)
	}
}

func FuzzProtections(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a pod that is made of these letters, which are many enough to reach its volumes and its claims"))
	f.Fuzz(compare)
}

// What the API server sends is not ours: whatever it is, the agent goes on,
// and what was stripped away decided nothing.
func FuzzAnyPod(f *testing.F) {
	for _, seed := range []*corev1.Pod{
		made(), made(claiming("c"), scratch("e"), requiring(expr(host("In", "h1"))), recorded(record(recordOfNamed, ""))),
		made(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Spec.Resources, p.Spec.Overhead = &metav1.Time{}, &corev1.ResourceRequirements{}, asking("1Ki")
		}),
		{},
	} {
		text, err := json.Marshal(seed)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var pod corev1.Pod
		if json.Unmarshal(text, &pod) != nil {
			return
		}
		once := strip(&pod)
		if diff := cmp.Diff(once, strip(once)); diff != "" {
			t.Errorf("stripped twice:\n%s", diff)
		}
		whole, stripped := protections(&pod, nil, DefaultRules()), protections(once, nil, DefaultRules())
		assert.Equal(t, codes(whole), codes(stripped))
		toPod(once, nil, DefaultRules())
	})
}
