package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
)

const sigkill = syscall.SIGKILL

// gone is nil when the pod with that UID is not there any more.
func (w *world) gone(pod corev1.Pod) error {
	p, err := w.c.Client.CoreV1().Pods(pod.Namespace).Get(w.t.Context(), pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case p.UID != pod.UID:
		return nil
	}
	return fmt.Errorf("%s is there, deleted at %v", p.Name, p.DeletionTimestamp)
}

// pending is nil when an app has a pod that runs nowhere.
func (w *world) pending(app string) error {
	for _, p := range w.pods(app) {
		if p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "" {
			return nil
		}
	}
	return fmt.Errorf("%d pods, none is pending", len(w.pods(app)))
}

func (w *world) tainted(effect corev1.TaintEffect) error {
	if got := w.ourTaint(); got != effect {
		return fmt.Errorf("taint %q", got)
	}
	return nil
}

func (w *world) conditioned(want string) error {
	if got := w.ourCondition(); got != want {
		return fmt.Errorf("condition %q", got)
	}
	return nil
}

// unmarked is nil when neither taint nor met condition of ours is there.
func (w *world) unmarked() error {
	if taint, condition := w.ourTaint(), w.ourCondition(); taint != "" || condition != "False Clear" {
		return fmt.Errorf("taint %q, condition %q", taint, condition)
	}
	return nil
}

// noEvictionFor watches that the list of victims does not grow.
func (w *world) noEvictionFor(d time.Duration) {
	w.t.Helper()
	before := w.evicted()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-look.C {
		require.Equal(w.t, before, w.evicted(), "%v", w.words())
	}
}

// budget is a PodDisruptionBudget that allows nothing.
func (w *world) budget(app string) {
	w.t.Helper()
	none := intstr.FromInt32(0)
	budgets := w.c.Client.PolicyV1().PodDisruptionBudgets(w.namespace)
	_, err := budgets.Create(w.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	eventually(w.t, "the budget is counted", func() error {
		b, err := budgets.Get(w.t.Context(), app, metav1.GetOptions{})
		if err == nil && b.Status.ObservedGeneration < b.Generation {
			err = fmt.Errorf("not yet")
		}
		return err
	})
}

// follow watches the Node and a pod, and tells in which order the API server
// wrote what: by resource version, which one etcd counts for both.
func (w *world) follow(pod corev1.Pod) (order func() []string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	core := w.c.Client.CoreV1()
	nodes, err := core.Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + w.node})
	require.NoError(w.t, err)
	pods, err := core.Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name})
	require.NoError(w.t, err)
	written := map[int64]string{}
	var mu sync.Mutex // guards written
	var all sync.WaitGroup
	for _, from := range []watch.Interface{nodes, pods} {
		all.Go(func() {
			for e := range from.ResultChan() {
				if what, version := writing(e.Object); what != "" {
					mu.Lock()
					written[version] = what
					mu.Unlock()
				}
			}
		})
	}
	return func() []string {
		cancel()
		all.Wait()
		var names []string
		for _, version := range slices.Sorted(maps.Keys(written)) {
			if name := written[version]; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
}

// writing is what an object says was done to it, and the version it has since.
func writing(object runtime.Object) (what string, version int64) {
	switch o := object.(type) {
	case *corev1.Node:
		for _, t := range o.Spec.Taints {
			if t.Key == "plimsoll.dev/MemoryContention" {
				what = "taint " + string(t.Effect)
			}
		}
		version, _ = strconv.ParseInt(o.ResourceVersion, 10, 64) // the API server's own number
	case *corev1.Pod:
		if o.DeletionTimestamp != nil {
			what = "deleted"
		}
		version, _ = strconv.ParseInt(o.ResourceVersion, 10, 64)
	}
	return what, version
}

// toldInEvents looks for the Events on the pod and on the Node.
func (w *world) toldInEvents(pod corev1.Pod) {
	w.t.Helper()
	w.eventOn(pod.Namespace, pod.Name, "PressureEviction")
	w.eventOn("default", w.node, "PressureEviction")
}

// eventOn looks for an Event on an object.
func (w *world) eventOn(namespace, about, reason string) {
	w.t.Helper()
	eventually(w.t, "an Event about "+about, func() error {
		list, err := w.c.Client.CoreV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + about})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason {
				w.t.Logf("Event on %s: %s", about, e.Message)
				return nil
			}
		}
		return fmt.Errorf("none of %d Events", len(list.Items))
	})
}

// contextWithoutCancel is for what is undone when the test is over.
func contextWithoutCancel(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// ending is nil when the pod with that UID was deleted.
func (w *world) ending(pod corev1.Pod) error {
	p, err := w.c.Client.CoreV1().Pods(pod.Namespace).Get(w.t.Context(), pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case p.UID == pod.UID && p.DeletionTimestamp == nil:
		return fmt.Errorf("%s was not deleted", p.Name)
	}
	return nil
}

// unharmed is nil while the pod with that UID runs and was not deleted.
func (w *world) unharmed(pod corev1.Pod) error {
	if err := w.ending(pod); err == nil {
		return fmt.Errorf("%s was deleted", pod.Name)
	}
	return nil
}
