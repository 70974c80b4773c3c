package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/throttle"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

func nodeResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("nodes")
}

// customResource is Katalyst's CustomNodeResource.
func customResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Resource: "customnoderesources"}
}

func (r *Release) nodes(ctx context.Context) error {
	return r.each(ctx, nodeResource(), func(u *unstructured.Unstructured) error { return r.unmark(ctx, u) })
}

func (r *Release) customNodes(ctx context.Context) error {
	return r.each(ctx, customResource(), func(u *unstructured.Unstructured) error { return r.customNode(ctx, u.GetName()) })
}

// node removes the marks of one Node. An agent's own rights suffice for it.
func (r *Release) node(ctx context.Context, name string) error {
	asked, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u, err := r.Dynamic.Resource(nodeResource()).Get(asked, name, metav1.GetOptions{})
	switch {
	case err == nil:
		err = r.unmark(ctx, u)
	case apierrors.IsNotFound(err):
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("node %s: %w", name, err)
	}
	custom := r.customNode(ctx, name)
	if apierrors.IsForbidden(custom) { // an agent without that right has marked none
		custom = nil
	}
	return errors.Join(err, custom)
}

// unmark removes taints and conditions from a Node, and restores CPU limits of its pods. The
// taints come first: their patch needs the Node as it was read.
func (r *Release) unmark(ctx context.Context, u *unstructured.Unstructured) error {
	node := &corev1.Node{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, node); err != nil {
		return err
	}
	var untainted error
	if taints, some := kube.RemovalPatch(node); some {
		if untainted = r.patch(ctx, nodeResource(), u, types.JSONPatchType, taints); untainted == nil {
			r.report("%s: taints removed: %s", nameOf(u), taintsText(evict.Owned(node)))
		}
	}
	conditions, some, err := lease.RemovalPatch(node)
	if err == nil && some {
		if err = r.patch(ctx, nodeResource(), u, types.JSONPatchType, conditions, "status"); err == nil {
			r.report("%s: conditions removed", nameOf(u))
		}
	}
	r.noteUnrecorded(node)
	return errors.Join(untainted, err, r.resized(ctx, node))
}

// resized restores the CPU limits of the pods of a Node that its agent has resized.
func (r *Release) resized(ctx context.Context, node *corev1.Node) error {
	limits, err := resize.Recorded(node)
	if err != nil || len(limits) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pass := (&resize.API{Core: r.Core, Node: node.Name}).Pass(ctx)
	journal := throttle.Journal{Files: pass, Save: pass.Record, Limits: slices.Clone(limits)}
	err = journal.Set(nil)
	for _, l := range limits {
		switch {
		case slices.ContainsFunc(journal.Limits, func(o throttle.Limit) bool { return o.Knob == l.Knob }): // tried again
		case slices.Contains(journal.Left, l.Knob):
			r.report("%s: left: another program changed it", l.Knob)
		default:
			r.report("%s: as before", l.Knob)
		}
	}
	return err
}

func taintsText(taints []evict.OwnTaint) string {
	list := make([]string, 0, len(taints))
	for _, t := range taints {
		list = append(list, t.Key+":"+string(t.Effect))
	}
	return strings.Join(list, " ")
}

// noteUnrecorded records taints with Plimsoll's prefix that no agent has recorded: they
// were set by others, or the record was removed.
func (r *Release) noteUnrecorded(node *corev1.Node) {
	owned := evict.Owned(node)
	var errs []error
	for _, t := range node.Spec.Taints {
		ours := slices.ContainsFunc(owned, func(o evict.OwnTaint) bool { return o.Key == t.Key && o.Effect == t.Effect })
		if strings.HasPrefix(t.Key, names.Prefix) && !ours {
			errs = append(errs, fmt.Errorf("node %s: taint %s:%s is on no agent's record and stays; to remove it: kubectl taint node %[1]s %[2]s:%[3]s-", node.Name, t.Key, t.Effect))
		}
	}
	r.unrecorded[node.Name] = errors.Join(errs...)
}

// customNode removes the marks from a CustomNodeResource, if there is one.
func (r *Release) customNode(ctx context.Context, name string) error {
	m := &kube.CNRMarker{REST: r.Core.RESTClient(), Node: name, Log: r.Log}
	was, err := m.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("CustomNodeResource %s: %w", name, err)
	}
	is, err := m.Apply(ctx, was, evict.Marks{})
	if err == nil && is != was {
		r.report("CustomNodeResource %s: marks removed", name)
	}
	return err
}
