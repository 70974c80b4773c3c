package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// cnrPath is the path of Katalyst's CustomNodeResources, each named after its
// Node (pkg/apis/node/v1alpha1 of katalyst-api).
const cnrPath = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources"

// A CNRMarker writes our conditions and taints of one node's CustomNodeResource
// and leaves all others alone. It decides nothing. It belongs to one goroutine.
type CNRMarker struct {
	REST rest.Interface
	// Node is the name of the Node, and so of its CustomNodeResource.
	Node string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	Log *slog.Logger
}

// A CNR is the part of a CustomNodeResource that holds marks.
type CNR struct {
	node corev1.Node // its annotations, and its taints with effects "<QoS level>/<effect>"
	// As they were read, so that fields of others that we do not know are kept.
	taints, conditions rawList
}

// rawList is a JSON list with its elements undecoded.
type rawList struct {
	whole any // nil where there is none
	items []json.RawMessage
}

func (l *rawList) UnmarshalJSON(b []byte) error {
	l.whole = json.RawMessage(slices.Clone(b))
	return json.Unmarshal(b, &l.items)
}

// decodeList decodes the elements of a list; unknown fields are dropped.
func decodeList[T any](l rawList) ([]T, error) {
	known := make([]T, len(l.items))
	for i, raw := range l.items {
		if err := json.Unmarshal(raw, &known[i]); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// Owned returns the taints that are ours, as its annotation records them.
func (c *CNR) Owned() []evict.OwnTaint { return evict.Owned(&c.node) }

// cnrTaint is one of spec.taints.
type cnrTaint struct {
	corev1.Taint `json:",inline"`
	QoSLevel     string `json:"qosLevel,omitempty"`
}

// cnrCondition is one of status.conditions.
type cnrCondition struct {
	Type              string                 `json:"type"`
	Status            corev1.ConditionStatus `json:"status"`
	LastHeartbeatTime *metav1.Time           `json:"lastHeartbeatTime,omitempty"`
	Reason            string                 `json:"reason,omitempty"`
	Message           string                 `json:"message,omitempty"`
}

// Get reads the CustomNodeResource.
func (m *CNRMarker) Get(ctx context.Context) (*CNR, error) {
	return m.call(ctx, m.REST.Get().AbsPath(cnrPath, m.Node))
}

// Apply writes the wanted marks, removes all others of ours, and returns the
// result. c may be out of date (optimistic concurrency: a conflict reads it
// again), or nil.
func (m *CNRMarker) Apply(ctx context.Context, c *CNR, want evict.Marks) (*CNR, error) {
	var err error
	for range taintAttempts {
		if c == nil {
			if c, err = m.Get(ctx); err != nil {
				break
			}
		}
		if c, err = m.apply(ctx, c, want); err == nil || !IsConflict(err) {
			break
		}
		c = nil
	}
	if err != nil {
		return nil, fmt.Errorf("mark CustomNodeResource %s: %w", m.Node, err)
	}
	return c, nil
}

func (m *CNRMarker) apply(ctx context.Context, c *CNR, want evict.Marks) (_ *CNR, err error) {
	if patch, changed := taintPatch(&c.node, c, want.Taints, m.now()); changed {
		if c, err = m.patch(ctx, patch); err != nil {
			return nil, err
		}
		m.Log.Info("taints changed", "customNodeResource", m.Node, "now", taintWords(&c.node))
	}
	patch, changed, err := c.conditionPatch(want.Conditions, m.now())
	if err != nil || !changed {
		return c, err
	}
	return m.patch(ctx, patch, "status")
}

func (m *CNRMarker) patch(ctx context.Context, patch []byte, sub ...string) (*CNR, error) {
	return m.call(ctx, m.REST.Patch(types.JSONPatchType).AbsPath(append([]string{cnrPath, m.Node}, sub...)...).
		Param("fieldManager", fieldManager).Body(patch))
}

func (m *CNRMarker) call(ctx context.Context, r *rest.Request) (*CNR, error) {
	ctx, cancel := context.WithTimeout(ctx, taintCallTimeout)
	defer cancel()
	body, err := r.SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return parseCNR(body)
}

func parseCNR(body []byte) (*CNR, error) {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Taints rawList `json:"taints"`
		} `json:"spec"`
		Status struct {
			Conditions rawList `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("decode the API server's answer: %w", err)
	}
	c := &CNR{node: corev1.Node{ObjectMeta: o.Metadata}, taints: o.Spec.Taints, conditions: o.Status.Conditions}
	taints, err := decodeList[cnrTaint](c.taints)
	if err != nil {
		return nil, fmt.Errorf("decode spec.taints: %w", err)
	}
	for _, t := range taints {
		t.Effect = corev1.TaintEffect(t.QoSLevel) + "/" + t.Effect
		c.node.Spec.Taints = append(c.node.Spec.Taints, t.Taint)
	}
	return c, nil
}

func (m *CNRMarker) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

func (c *CNR) before(*corev1.Node) any { return c.taints.whole }

func (c *CNR) after(taints []corev1.Taint) any {
	all := make([]any, 0, len(taints))
	for _, t := range taints {
		if i := slices.IndexFunc(c.node.Spec.Taints, func(o corev1.Taint) bool { return equalTaints(o, t) }); i >= 0 {
			all = append(all, c.taints.items[i])
			continue
		}
		qos, effect, _ := strings.Cut(string(t.Effect), "/")
		t.Effect = corev1.TaintEffect(effect)
		all = append(all, cnrTaint{Taint: t, QoSLevel: qos})
	}
	return all
}

// cnrHeartbeat is how often an unchanged condition is written, as the kubelet does on
// the Node.
const cnrHeartbeat = 5 * time.Minute

// conditionPatch replaces the conditions with our prefix. changed is false when
// status, reason and set of conditions are the same and were written recently.
func (c *CNR) conditionPatch(want []evict.Condition, now time.Time) (patch []byte, changed bool, err error) {
	have, err := decodeList[cnrCondition](c.conditions)
	if err != nil {
		return nil, false, fmt.Errorf("decode status.conditions: %w", err)
	}
	all, ours := []any{}, map[string]cnrCondition{}
	for i, o := range have {
		if strings.HasPrefix(o.Type, names.Prefix) {
			ours[o.Type] = o
		} else {
			all = append(all, c.conditions.items[i])
		}
	}
	changed = len(ours) != len(want)
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	for _, w := range want {
		changed = changed || ours[w.Type].stale(w, now)
		all = append(all, cnrCondition{Type: w.Type, Status: w.Status, LastHeartbeatTime: &at, Reason: w.Reason, Message: w.Message})
	}
	patch, err = json.Marshal([]op{{"test", "/status/conditions", c.conditions.whole}, {"add", "/status/conditions", all}})
	return patch, changed, err
}

func (c cnrCondition) stale(w evict.Condition, now time.Time) bool {
	return c.Status != w.Status || c.Reason != w.Reason || c.LastHeartbeatTime == nil || now.Sub(c.LastHeartbeatTime.Time) >= cnrHeartbeat
}
