package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// taintCallTimeout bounds each call to the API server.
	taintCallTimeout = 2 * time.Second
	// taintAttempts bounds the retries with a fresh Node after a conflict
	// (optimistic concurrency).
	taintAttempts = 5
)

// A Tainter writes our taints of one Node and leaves all others alone. It decides
// nothing. Apply belongs to one goroutine.
type Tainter struct {
	Nodes corev1client.NodesGetter
	// Node is the name of the Node.
	Node string
	// Now is the clock of OwnTaint.Since; time.Now when nil.
	Now func() time.Time
	Log *slog.Logger
}

// Apply sets the wanted taints, removes all others of ours, and returns the
// resulting Node. The given node may be out of date, or nil: then it is read. A
// foreign taint with a wanted key and effect is enough, and stays foreign. The
// TimeAdded of an existing taint is kept.
func (t *Tainter) Apply(ctx context.Context, node *corev1.Node, want []corev1.Taint) (*corev1.Node, error) {
	var err error
	for range taintAttempts {
		if node == nil {
			if node, err = t.get(ctx); err != nil {
				return nil, fmt.Errorf("taint node %s: %w", t.Node, err)
			}
		}
		patch, changed := taintPatch(node, nodeTaints{}, want, t.now())
		if !changed {
			return node, nil
		}
		var after *corev1.Node
		if after, err = t.patch(ctx, patch); err == nil {
			t.logChange(node, after)
			return after, nil
		}
		if !IsConflict(err) {
			break
		}
		node = nil
	}
	return nil, fmt.Errorf("taint node %s: %w", t.Node, err)
}

func (t *Tainter) get(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, taintCallTimeout)
	defer cancel()
	return t.Nodes.Nodes().Get(ctx, t.Node, metav1.GetOptions{})
}

func (t *Tainter) patch(ctx context.Context, patch []byte) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, taintCallTimeout)
	defer cancel()
	return t.Nodes.Nodes().Patch(ctx, t.Node, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
}

// fieldManager is our name in the API server's managed fields.
const fieldManager = "plimsoll-agent"

// IsConflict reports whether a patch failed because the Node has changed since it was
// read. The API server answers a failed test of a JSON patch with a 422 without a
// reason (handlers/patch.go), and an invalid value with one whose reason is
// Invalid.
func IsConflict(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	s, _ := statusOf(err)
	return s.Code == http.StatusUnprocessableEntity && len(causes(s)) == 0
}

func (t *Tainter) logChange(before, after *corev1.Node) {
	t.Log.Info("taints changed", "node", t.Node, "before", taintWords(before), "after", taintWords(after))
}

func taintWords(node *corev1.Node) []string {
	words := []string{}
	for _, o := range evict.Owned(node) {
		words = append(words, o.Key+":"+string(o.Effect))
	}
	return words
}

func (t *Tainter) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// taintEncoding encodes the taints of a kind of object.
type taintEncoding interface {
	// before is the list as it was read, nil where there is none.
	before(node *corev1.Node) any
	// after is the list as it should be.
	after(taints []corev1.Taint) any
}

// nodeTaints encodes the taints of a Node.
type nodeTaints struct{}

func (nodeTaints) before(node *corev1.Node) any {
	if len(node.Spec.Taints) == 0 {
		return nil
	}
	return node.Spec.Taints
}

func (nodeTaints) after(taints []corev1.Taint) any { return taints }

// taintPatch is the JSON patch that sets the wanted taints; changed is false if
// there is nothing to change. It tests that taints and record are still as in node
// (optimistic concurrency), so no concurrent change is lost.
func taintPatch(node *corev1.Node, as taintEncoding, want []corev1.Taint, now time.Time) (patch []byte, changed bool) {
	ops, changed := taintOps(node, as, want, now)
	if !changed {
		return nil, false
	}
	return encodeOps(ops)
}

func taintOps(node *corev1.Node, as taintEncoding, want []corev1.Taint, now time.Time) (list []op, changed bool) {
	taints, record := mergeTaints(node.Spec.Taints, evict.Owned(node), want, now)
	was, recorded := node.Annotations[evict.TaintsAnnotation]
	is := encodeRecord(record)
	if slices.EqualFunc(taints, node.Spec.Taints, equalTaints) && was == is && recorded == (is != "") {
		return nil, false
	}
	return append(recordOps(node, is),
		op{"test", "/spec/taints", as.before(node)},
		op{"add", "/spec/taints", as.after(taints)}), true
}

func encodeOps(list []op) (patch []byte, some bool) {
	patch, err := json.Marshal(list)
	if err != nil { // strings and times: it cannot be
		return nil, false
	}
	return patch, true
}

// mergeTaints returns the wanted list of taints and the record of ours. Taints
// that stay keep their order; new ones follow in the order of want.
func mergeTaints(have []corev1.Taint, own []evict.OwnTaint, want []corev1.Taint, now time.Time) ([]corev1.Taint, []evict.OwnTaint) {
	taints, record := []corev1.Taint{}, []evict.OwnTaint{}
	for _, t := range have {
		o := slices.IndexFunc(own, func(o evict.OwnTaint) bool { return o.Is(t) })
		w := slices.IndexFunc(want, func(w corev1.Taint) bool { return w.MatchTaint(&t) })
		switch {
		case o < 0: // not ours
		case w < 0:
			continue
		default:
			t.Value = want[w].Value
			record = append(record, own[o])
		}
		taints = append(taints, t)
	}
	for _, w := range want {
		if slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&w) }) {
			continue
		}
		taints = append(taints, w)
		record = append(record, recordOf(own, w, now))
	}
	return taints, record
}

// recordOf is the record of a taint that is set; one that is set again keeps its
// time.
func recordOf(own []evict.OwnTaint, t corev1.Taint, now time.Time) evict.OwnTaint {
	if i := slices.IndexFunc(own, func(o evict.OwnTaint) bool { return o.Is(t) }); i >= 0 {
		return own[i]
	}
	return evict.OwnTaint{Key: t.Key, Effect: t.Effect, Since: metav1.NewTime(now.UTC().Truncate(time.Second))}
}

// encodeRecord is the value of TaintsAnnotation, empty where nothing is ours.
func encodeRecord(record []evict.OwnTaint) string {
	if len(record) == 0 {
		return ""
	}
	text, err := json.Marshal(record)
	if err != nil { // strings and times: it cannot be
		return ""
	}
	return string(text)
}

// op is one operation of a JSON patch (RFC 6902). A Value of nil is null, which
// a test finds equal to a member that is not there.
type op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// recordPath is TaintsAnnotation's place as a JSON pointer (RFC 6901).
const recordPath = "/metadata/annotations/" + names.Group + "~1" + evict.TaintsName

// recordOps test the old record and write the new one.
func recordOps(node *corev1.Node, record string) []op {
	was, recorded := node.Annotations[evict.TaintsAnnotation]
	switch {
	case len(node.Annotations) == 0 && record == "":
		return []op{{"test", "/metadata/annotations", nil}}
	case len(node.Annotations) == 0:
		return []op{
			{"test", "/metadata/annotations", nil},
			{"add", "/metadata/annotations", map[string]string{evict.TaintsAnnotation: record}},
		}
	case !recorded && record == "":
		return []op{{"test", recordPath, nil}}
	case !recorded:
		return []op{{"test", recordPath, nil}, {"add", recordPath, record}}
	case record == "":
		return []op{{"test", recordPath, was}, {"remove", recordPath, nil}}
	}
	return []op{{"test", recordPath, was}, {"add", recordPath, record}}
}

func equalTaints(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}

// RemovalPatch is the JSON patch that removes our taints from a Node, for the
// controller and the uninstaller; some is false if there are none. It fails if the
// Node has changed since it was read.
func RemovalPatch(node *corev1.Node) (patch []byte, some bool) {
	ops, some := taintOps(node, nodeTaints{}, nil, time.Time{})
	if !some {
		return nil, false
	}
	return encodeOps(append([]op{{"test", "/metadata/resourceVersion", node.ResourceVersion}}, ops...))
}
