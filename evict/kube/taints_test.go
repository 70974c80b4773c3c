package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	// the one the API server applies patches with
	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func taint(key string, effect corev1.TaintEffect, value ...string) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: effect}
	if len(value) > 0 {
		t.Value = value[0]
	}
	return t
}

const (
	no     = corev1.TaintEffectNoSchedule
	prefer = corev1.TaintEffectPreferNoSchedule
	out    = corev1.TaintEffectNoExecute
)

// record is the text of a record: key, effect and the second each.
func ownTaint(key string, effect corev1.TaintEffect, second int64) evict.OwnTaint {
	return evict.OwnTaint{Key: key, Effect: effect, Since: metav1.Unix(second, 0)}
}

// nodeWith has these taints, and a record of ours unless that is nil.
func nodeWith(taints []corev1.Taint, record []evict.OwnTaint) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	if record != nil {
		n.Annotations = map[string]string{evict.TaintsAnnotation: encodeRecord(record)}
	}
	return n
}

// patched is the node after the patch, as the API server would apply it.
func patched(t testing.TB, node *corev1.Node, want []corev1.Taint, now time.Time) (*corev1.Node, bool) {
	patch, changed := taintPatch(node, nodeTaints{}, want, now)
	if !changed {
		return node, false
	}
	after, err := applyTo(node, patch)
	require.NoError(t, err, "%s", patch)
	return after, true
}

func applyTo(node *corev1.Node, patch []byte) (*corev1.Node, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	text, err := p.Apply(before)
	if err != nil {
		return nil, err
	}
	after := &corev1.Node{}
	return after, json.Unmarshal(text, after)
}

func TestTaintPatch(t *testing.T) {
	type (
		taints = []corev1.Taint
		record = []evict.OwnTaint
	)
	added := metav1.Unix(77, 0)
	timed := corev1.Taint{Key: "other", Effect: out, TimeAdded: &added}
	mine := corev1.Taint{Key: "plimsoll.dev/mem", Effect: no, TimeAdded: &added}
	for _, c := range []struct {
		name string
		have taints
		own  record
		want taints
		then taints
		ours record
	}{
		{"the first of ours", nil, nil, taints{taint("plimsoll.dev/mem", no)}, taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 100)}},
		{"nothing wanted, nothing there", nil, nil, nil, nil, nil},
		{"it is there already", taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 5)}, taints{taint("plimsoll.dev/mem", no)}, taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 5)}},
		{"no longer wanted", taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 5)}, nil, nil, nil},
		{
			"others stay in their order",
			taints{timed, taint("plimsoll.dev/mem", no), taint("z", prefer)},
			record{ownTaint("plimsoll.dev/mem", no, 5)},
			taints{taint("plimsoll.dev/disk", prefer)},
			taints{timed, taint("z", prefer), taint("plimsoll.dev/disk", prefer)},
			record{ownTaint("plimsoll.dev/disk", prefer, 100)},
		},
		{"somebody else's with our key and effect serves", taints{taint("plimsoll.dev/mem", no, "theirs")}, nil, taints{taint("plimsoll.dev/mem", no)}, taints{taint("plimsoll.dev/mem", no, "theirs")}, nil},
		{"and is not removed", taints{taint("plimsoll.dev/mem", no)}, nil, nil, taints{taint("plimsoll.dev/mem", no)}, nil},
		{"ours was removed by hand", nil, record{ownTaint("plimsoll.dev/mem", no, 5)}, taints{taint("plimsoll.dev/mem", no)}, taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 5)}},
		{"the record of a taint that is gone", taints{timed}, record{ownTaint("plimsoll.dev/mem", no, 5)}, nil, taints{timed}, nil},
		{
			"two effects of one key are two taints",
			taints{taint("plimsoll.dev/mem", prefer)},
			record{ownTaint("plimsoll.dev/mem", prefer, 5)},
			taints{taint("plimsoll.dev/mem", prefer), taint("plimsoll.dev/mem", no)},
			taints{taint("plimsoll.dev/mem", prefer), taint("plimsoll.dev/mem", no)},
			record{ownTaint("plimsoll.dev/mem", prefer, 5), ownTaint("plimsoll.dev/mem", no, 100)},
		},
		{"another effect", taints{taint("plimsoll.dev/mem", prefer)}, record{ownTaint("plimsoll.dev/mem", prefer, 5)}, taints{taint("plimsoll.dev/mem", no)}, taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 100)}},
		{"another value", taints{taint("plimsoll.dev/mem", no, "a")}, record{ownTaint("plimsoll.dev/mem", no, 5)}, taints{taint("plimsoll.dev/mem", no, "b")}, taints{taint("plimsoll.dev/mem", no, "b")}, record{ownTaint("plimsoll.dev/mem", no, 5)}},
		{"the time somebody added is left alone", taints{mine}, record{ownTaint("plimsoll.dev/mem", no, 5)}, taints{taint("plimsoll.dev/mem", no)}, taints{mine}, record{ownTaint("plimsoll.dev/mem", no, 5)}},
		{"wanted twice is wanted once", nil, nil, taints{taint("plimsoll.dev/mem", no), taint("plimsoll.dev/mem", no, "b")}, taints{taint("plimsoll.dev/mem", no)}, record{ownTaint("plimsoll.dev/mem", no, 100)}},
		{"an empty record goes", taints{timed}, record{}, nil, taints{timed}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			after, changed := patched(t, nodeWith(c.have, c.own), c.want, time.Unix(100, 5))
			assert.Empty(t, cmp.Diff(c.then, noneAsNil(after.Spec.Taints)))
			assert.Empty(t, cmp.Diff(c.ours, evict.Owned(after)))
			_, recorded := after.Annotations[evict.TaintsAnnotation]
			assert.Equal(t, c.ours != nil, recorded)
			same := cmp.Equal(c.have, c.then) && cmp.Equal(c.own, c.ours)
			assert.Equal(t, !same, changed)
			_, again := patched(t, after, c.want, time.Unix(200, 0))
			assert.False(t, again, "a second patch would change something")
		})
	}
}

func noneAsNil(l []corev1.Taint) []corev1.Taint {
	if len(l) == 0 {
		return nil
	}
	return l
}

func TestTaintPatchFailsOnChange(t *testing.T) {
	bare := func() *corev1.Node { return nodeWith(nil, nil) }
	ours := func() *corev1.Node {
		return nodeWith([]corev1.Taint{taint("z", prefer), taint("plimsoll.dev/mem", no)}, []evict.OwnTaint{ownTaint("plimsoll.dev/mem", no, 5)})
	}
	annotated := func() *corev1.Node {
		n := nodeWith([]corev1.Taint{taint("z", prefer)}, nil)
		n.Annotations = map[string]string{"other": "x"}
		return n
	}
	other := []corev1.Taint{taint("q", no)}
	for _, c := range []struct {
		name   string
		node   func() *corev1.Node
		want   []corev1.Taint
		change func(*corev1.Node)
		fails  bool
	}{
		{"a taint came", bare, other, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("new", no)} }, true},
		{"an annotation came", bare, other, func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, true},
		{"a taint came beside another", ours, other, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint("new", no)) }, true},
		{"a taint went", ours, other, func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[1:] }, true},
		{"all taints went", ours, other, func(n *corev1.Node) { n.Spec.Taints = nil }, true},
		{"a value changed", ours, other, func(n *corev1.Node) { n.Spec.Taints[0].Value = "v" }, true},
		{"the record went", ours, other, func(n *corev1.Node) { n.Annotations = nil }, true},
		{"the record changed", ours, nil, func(n *corev1.Node) { n.Annotations[evict.TaintsAnnotation] = "[]" }, true},
		{"the record of others of ours changed", ours, other, func(n *corev1.Node) { n.Annotations[evict.TaintsAnnotation] = "[]" }, true},
		{"a record came", annotated, other, func(n *corev1.Node) { n.Annotations[evict.TaintsAnnotation] = "[]" }, true},
		{"another annotation changed", annotated, other, func(n *corev1.Node) { n.Annotations["other"] = "y" }, false},
		{"another annotation came", ours, other, func(n *corev1.Node) { n.Annotations["x"] = "y" }, false},
		{"a label came", ours, other, func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false},
		{"nothing", ours, nil, func(n *corev1.Node) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			patch, changed := taintPatch(c.node(), nodeTaints{}, c.want, time.Unix(100, 0))
			require.True(t, changed)
			then := c.node()
			c.change(then)
			_, err := applyTo(then, patch)
			assert.Equal(t, c.fails, err != nil, "%v", err)
		})
	}
}

func TestTaintPatchKeepsAnnotations(t *testing.T) {
	n := nodeWith(nil, nil)
	n.Annotations = map[string]string{"other": "x"}
	after, _ := patched(t, n, []corev1.Taint{taint("plimsoll.dev/mem", no)}, time.Unix(100, 0))
	assert.Equal(t, "x", after.Annotations["other"])
	assert.Len(t, after.Annotations, 2)
	after, _ = patched(t, after, nil, time.Unix(100, 0))
	assert.Equal(t, map[string]string{"other": "x"}, after.Annotations)
}

func TestTaintRecordUnreadableOwnsNothing(t *testing.T) {
	for _, text := range []string{"", "null", "{}", "[", `[{"key":5}]`, `[{"key":"plimsoll.dev/a"}]`, `[{"effect":"NoSchedule"}]`, `[1]`} {
		n := nodeWith([]corev1.Taint{taint("plimsoll.dev/mem", no)}, nil)
		n.Annotations = map[string]string{evict.TaintsAnnotation: text}
		assert.Empty(t, evict.Owned(n), text)
		after, _ := patched(t, n, nil, time.Unix(100, 0))
		assert.Equal(t, n.Spec.Taints, after.Spec.Taints, "a taint that may be somebody else's went: %s", text)
	}
	// Whoever has the node's token writes the record, and may name any taint in it.
	n := nodeWith([]corev1.Taint{taint("quarantine", no)}, nil)
	n.Annotations = map[string]string{evict.TaintsAnnotation: `[{"key":"quarantine","effect":"NoSchedule"}]`}
	assert.Empty(t, evict.Owned(n))
	after, _ := patched(t, n, nil, time.Unix(100, 0))
	assert.Equal(t, n.Spec.Taints, after.Spec.Taints)
	patch, _ := RemovalPatch(n)
	assert.Contains(t, string(patch), `{"op":"add","path":"/spec/taints","value":[{"key":"quarantine","effect":"NoSchedule"}]}`)
	n = nodeWith(nil, nil)
	n.Annotations = map[string]string{evict.TaintsAnnotation: `[{"key":"plimsoll.dev/a","effect":"NoSchedule","since":"2026-01-02T03:04:05Z"},{"key":"plimsoll.dev/a","effect":"NoSchedule"}]`}
	require.Len(t, evict.Owned(n), 1, "a taint is recorded once")
	assert.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), evict.Owned(n)[0].Since.UTC())
}

// slowTaints says one taint at a time what should be there: the obvious way.
func slowTaints(have []corev1.Taint, own []evict.OwnTaint, want []corev1.Taint) (taints map[string]string, ours map[string]bool) {
	id := func(key string, effect corev1.TaintEffect) string { return key + ":" + string(effect) }
	taints, ours = map[string]string{}, map[string]bool{}
	for _, t := range have {
		taints[id(t.Key, t.Effect)] = t.Value
	}
	recorded, wanted := map[string]bool{}, map[string]string{}
	for _, o := range own {
		recorded[id(o.Key, o.Effect)] = true
	}
	for _, w := range want {
		if _, twice := wanted[id(w.Key, w.Effect)]; !twice {
			wanted[id(w.Key, w.Effect)] = w.Value
		}
	}
	for name := range recorded {
		if _, stays := wanted[name]; !stays {
			delete(taints, name)
		}
	}
	for name, value := range wanted {
		if _, there := taints[name]; there && !recorded[name] {
			continue
		}
		taints[name], ours[name] = value, true
	}
	return taints, ours
}

func FuzzTaintPatchModel(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, int(seed)%6, int(seed/2)%6, int(seed/3)%6)
	}
	f.Fuzz(func(t *testing.T, seed uint64, have, own, want int) {
		r := rand.New(rand.NewPCG(seed, 1))
		some := func(n int) (list []corev1.Taint) {
			seen := map[string]bool{}
			for range min(max(n, 0), 12) {
				c := taint(fmt.Sprintf("plimsoll.dev/k%d", r.IntN(3)), []corev1.TaintEffect{no, prefer, out}[r.IntN(3)], []string{"", "v", "w"}[r.IntN(3)])
				if name := c.Key + string(c.Effect); !seen[name] { // the API server takes none twice
					seen[name] = true
					list = append(list, c)
				}
			}
			return list
		}
		var record []evict.OwnTaint
		for _, o := range some(own) {
			record = append(record, ownTaint(o.Key, o.Effect, int64(r.IntN(50))))
		}
		node, wanted := nodeWith(some(have), record), some(want)
		wantTaints, wantOurs := slowTaints(node.Spec.Taints, record, wanted)
		after, _ := patched(t, node, wanted, time.Unix(100, 0))
		taints, ours := map[string]string{}, map[string]bool{}
		for _, c := range after.Spec.Taints {
			taints[c.Key+":"+string(c.Effect)] = c.Value
		}
		for _, o := range evict.Owned(after) {
			ours[o.Key+":"+string(o.Effect)] = true
		}
		assert.Equal(t, wantTaints, taints)
		assert.Equal(t, wantOurs, ours)
		_, again := taintPatch(after, nodeTaints{}, wanted, time.Unix(200, 0))
		assert.False(t, again)
	})
}

func FuzzTaintRecord(f *testing.F) {
	f.Add(`[{"key":"plimsoll.dev/a","effect":"NoSchedule","since":"2026-01-02T03:04:05Z"}]`)
	f.Add(`[{"key":"plimsoll.dev/a","effect":"NoSchedule","since":null}]`)
	f.Add(`[{}]`)
	f.Fuzz(func(t *testing.T, text string) {
		n := nodeWith([]corev1.Taint{taint("plimsoll.dev/mem", no)}, nil)
		n.Annotations = map[string]string{evict.TaintsAnnotation: text}
		own := evict.Owned(n)
		n.Annotations[evict.TaintsAnnotation] = encodeRecord(own)
		if diff := cmp.Diff(own, evict.Owned(n)); diff != "" {
			t.Errorf("written and read again: %s", diff)
		}
	})
}

// What others wrote into the record, or an agent whose token was stolen.
func TestTaintRecordOwnKeysOnly(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{evict.TaintsAnnotation: `[
		{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"},
		{"key":"example.org/plimsoll.dev/MemoryContention","effect":"NoSchedule"},
		{"key":"plimsoll.dev","effect":"NoSchedule"},
		{"key":"plimsoll.dev/MemoryContention","effect":""},
		{"key":"plimsoll.dev/MemoryContention","effect":"NoSchedule"},
		{"key":"plimsoll.dev/MemoryContention","effect":"NoSchedule"}]`}}}
	own := evict.Owned(node)
	require.Len(t, own, 1)
	assert.Equal(t, "plimsoll.dev/MemoryContention", own[0].Key)
	assert.Equal(t, corev1.TaintEffectNoSchedule, own[0].Effect)
	m := evict.State{}.Adopt(at(0), append(own, evict.OwnTaint{Key: "example.org/x", Effect: "NoSchedule"}, evict.OwnTaint{Key: names.Prefix, Effect: "NoSchedule"}))
	require.Len(t, m.Marks, 1, "nor is another's adopted")
	assert.Contains(t, m.Marks, "MemoryContention")
}
