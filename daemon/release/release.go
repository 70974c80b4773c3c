// Package release gives a cluster back as it is without Plimsoll: what is held
// goes on, and every mark of ours is taken away.
//
// # Usage
//
//	r := &release.Release{Dynamic: d, Core: core, Leases: leases, Election: election, Out: stdout, Log: log}
//	err := r.All(ctx)        // a line of Out for each thing done, one of the error for each that is still there
//	err = r.Node(ctx, "n1")  // of one node alone
//
// Each package of ours says how its marks are lifted; here that is done, again
// and again until nothing is left. It works whatever of the manifests is still
// there: the Gates go first, and without one no policy is in force.
package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// Release is done once; its methods belong to one goroutine.
type Release struct {
	Dynamic dynamic.Interface // that speaks JSON
	Core    corev1client.CoreV1Interface
	Leases  coordinationv1client.LeasesGetter
	// Election is the Lease by which controllers elect one.
	Election types.NamespacedName
	// Out gets a line for each thing that is done.
	Out io.Writer
	Log *slog.Logger

	// done counts what was done, and cleaned the loads among it that were not
	// hidden.
	done, cleaned int
	// strange are taints that bear our name and are not on our record, by node.
	strange map[string]error
}

const (
	// fieldManager of what is written.
	fieldManager = "plimsoll-release"
	// callTimeout bounds each call to the API server.
	callTimeout = 10 * time.Second
	// passes there are at most, and the pause after each: what fails is tried for
	// 20 s. Policies that have not heard yet that the Gates are gone refuse some.
	passes = 100
	pause  = 200 * time.Millisecond
)

// All that is ours in the cluster; nothing as long as a controller runs.
func (r *Release) All(ctx context.Context) error {
	r.strange = map[string]error{}
	controller := r.leaseOf(r.Election)
	if err := r.between(ctx, controller, func() error { return nil }); err != nil {
		return err
	}
	err := r.between(ctx, r.heartbeats, func() error { return r.sweep(ctx, r.everything) })
	return r.end(err, r.remove(ctx, r.heartbeats), r.remove(ctx, controller))
}

// Node takes away the marks of one node's agent. Its own rights suffice, but for
// its Lease: that goes with its Node.
func (r *Release) Node(ctx context.Context, name string) error {
	look := r.leaseOf(types.NamespacedName{Namespace: lease.Namespace, Name: name})
	r.strange = map[string]error{}
	err := r.between(ctx, look, func() error {
		return r.sweep(ctx, func(ctx context.Context) error { return r.node(ctx, name) })
	})
	kept := r.remove(ctx, look)
	if apierrors.IsForbidden(kept) {
		r.say("Lease %s/%s: not deleted (no right to); it is deleted with its Node", lease.Namespace, name)
		kept = nil
	}
	return r.end(err, kept)
}

// end says what is left.
func (r *Release) end(errs ...error) error {
	if r.cleaned > 0 {
		r.say("%d data mover loads: tickets and reasons removed", r.cleaned)
	}
	for _, node := range slices.Sorted(maps.Keys(r.strange)) {
		errs = append(errs, r.strange[node])
	}
	err := errors.Join(errs...)
	if err == nil && r.done == 0 {
		r.say("nothing of Plimsoll found")
	}
	return err
}

// errBack: what is taken away is there again.
var errBack = errors.New("what is removed comes back: stop all agents and controllers, then run release again")

// sweep until nothing of ours is found. The error says what is left.
func (r *Release) sweep(ctx context.Context, pass func(context.Context) error) error {
	for n := 1; ; n++ {
		before := r.done
		err := pass(ctx)
		switch {
		case err == nil && r.done == before:
			return nil
		case n == passes && r.done > before:
			return errors.Join(err, errBack)
		case n == passes, ctx.Err() != nil:
			return err
		}
		wait(ctx, pause)
	}
}

// everything but Leases: as long as those are there nobody takes the agents for
// gone.
func (r *Release) everything(ctx context.Context) error {
	return errors.Join(r.gates(ctx), r.loads(ctx), r.backups(ctx), r.nodes(ctx), r.customNodes(ctx))
}

// did one thing, which is worth a line.
func (r *Release) did(format string, args ...any) {
	r.done++
	r.say(format, args...)
}

func (r *Release) say(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// each object of a kind in all namespaces, page by page; none where the kind is
// not served.
func (r *Release) each(ctx context.Context, of schema.GroupVersionResource, do func(*unstructured.Unstructured) error) error {
	var errs []error
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return r.Dynamic.Resource(of).List(ctx, o)
	})
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		u, is := o.(*unstructured.Unstructured)
		if !is {
			return fmt.Errorf("unexpected type %T", o)
		}
		if err := do(u); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", nameOf(u), err))
		}
		return ctx.Err()
	})
	if err != nil && !apierrors.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("list %s: %w", of.GroupResource(), err))
	}
	return errors.Join(errs...)
}

// nameOf an object for people.
func nameOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + " " + u.GetName()
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// patch an object; one that is gone took with it what it carried.
func (r *Release) patch(ctx context.Context, of schema.GroupVersionResource, u *unstructured.Unstructured, how types.PatchType, body []byte, sub ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.Dynamic.Resource(of).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), how, body, metav1.PatchOptions{FieldManager: fieldManager}, sub...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
