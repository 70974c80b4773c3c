// Package release returns a cluster to the state without Plimsoll: it releases
// what is held and removes every mark.
//
// # Usage
//
//	r := &release.Release{Dynamic: d, Core: core, Leases: leases, Election: election, Out: stdout, Log: log}
//	err := r.All(ctx)        // a line in Out for each change, a line in the error for each thing left
//	err = r.Node(ctx, "n1")  // of one node alone
//	err = r.Stale(ctx)       // only hidden loads that no controller holds any more
//
// Each package knows how its own marks are removed; this one does it, repeatedly
// until nothing is left. It works whichever manifests are still installed: the
// Gates are deleted first, and without a Gate no policy is in force.
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

	appsv1 "k8s.io/api/apps/v1"
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

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// Release is used once, by one goroutine.
type Release struct {
	Dynamic dynamic.Interface // must use JSON
	Core    corev1client.CoreV1Interface
	Leases  coordinationv1client.LeasesGetter
	// Election is the Lease of the controller's leader election.
	Election types.NamespacedName
	// Now by the API server's clock; needed by Stale.
	Now func() time.Time
	// Out receives a line for each change.
	Out io.Writer
	Log *slog.Logger

	// done counts the changes; cleaned counts those to loads that were not hidden, withdrawn
	// the EvictionRequests.
	done, cleaned, withdrawn int
	// unrecorded are taints with Plimsoll's prefix and without a record, by node.
	unrecorded map[string]error
}

const (
	// fieldManager of the writes.
	fieldManager = "plimsoll-release"
	// callTimeout bounds each call to the API server.
	callTimeout = 10 * time.Second
	// passes bounds the retries and pause is the time between them: failures are
	// retried for 20 s. Policies that have not seen the deletion of the Gates yet
	// refuse some writes.
	passes = 100
	pause  = 200 * time.Millisecond
)

// All releases everything in the cluster, unless a controller runs.
func (r *Release) All(ctx context.Context) error {
	r.unrecorded = map[string]error{}
	controller := r.leaseOf(r.Election)
	if alive := r.alive(ctx, controller); alive != nil {
		return alive
	}
	alive, err := r.checkHolders(ctx, r.heartbeats, func() error { return r.sweep(ctx, r.removeMarks) })
	return r.summarize(err, alive, r.queues(ctx), r.removeUnless(ctx, alive, r.heartbeats), r.remove(ctx, controller))
}

// Node removes the marks of one node's agent, unless that runs. The agent's own rights
// suffice, except for its Lease, which is deleted with its Node.
func (r *Release) Node(ctx context.Context, name string) error {
	look := r.leaseOf(types.NamespacedName{Namespace: lease.Namespace, Name: name})
	r.unrecorded = map[string]error{}
	if alive := r.alive(ctx, look); alive != nil {
		return alive
	}
	err := r.sweep(ctx, func(ctx context.Context) error { return r.node(ctx, name) })
	kept := r.remove(ctx, look)
	if apierrors.IsForbidden(kept) {
		r.print("Lease %s/%s: not deleted (no right to); it is deleted with its Node", lease.Namespace, name)
		kept = nil
	}
	return r.summarize(err, kept)
}

// summarize reports what is left.
func (r *Release) summarize(errs ...error) error {
	if r.cleaned > 0 {
		r.print("%d data mover loads: tickets and reasons removed", r.cleaned)
	}
	if r.withdrawn > 0 {
		r.print("%d EvictionRequests: withdrawn", r.withdrawn)
	}
	for _, node := range slices.Sorted(maps.Keys(r.unrecorded)) {
		errs = append(errs, r.unrecorded[node])
	}
	err := errors.Join(errs...)
	if err == nil && r.done == 0 {
		r.print("nothing of Plimsoll found")
	}
	return err
}

// errComesBack: removed objects exist again.
var errComesBack = errors.New("what is removed comes back: stop all agents and controllers, then run release again")

// sweep repeats pass until it changes nothing. The error tells what is left.
func (r *Release) sweep(ctx context.Context, pass func(context.Context) error) error {
	for n := 1; ; n++ {
		before := r.done
		err := pass(ctx)
		switch {
		case err == nil && r.done == before:
			return nil
		case n == passes && r.done > before:
			return errors.Join(err, errComesBack)
		case n == passes, ctx.Err() != nil:
			return err
		}
		wait(ctx, pause)
	}
}

// removeMarks but Leases: while those exist, the agents do not count as gone. What changes
// something for pods and data mover loads comes first: Helm waits for the Job for 5 min, and a
// cluster may have thousands of loads that have ended.
func (r *Release) removeMarks(ctx context.Context) error {
	const ended = true
	return errors.Join(r.gates(ctx), r.nodes(ctx), r.customNodes(ctx), r.evictionRequests(ctx),
		r.loads(ctx, !ended), r.repositories(ctx), r.backups(ctx), r.loads(ctx, ended))
}

// evictionRequests withdraws, by deleting them, those that agents made.
func (r *Release) evictionRequests(ctx context.Context) error {
	of := kube.RequestResource()
	return r.each(ctx, of, func(u *unstructured.Unstructured) error {
		if !kube.MadeByAgent(u) || u.GetDeletionTimestamp() != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := r.Dynamic.Resource(of).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(u.GetUID())}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			r.done, r.withdrawn = r.done+1, r.withdrawn+1
		}
		return err
	})
}

// report reports one change.
func (r *Release) report(format string, args ...any) {
	r.done++
	r.print(format, args...)
}

func (r *Release) print(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// each calls do for each object of a kind in all namespaces, page by page; for
// none if the kind is not served.
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

// nameOf an object, for people.
func nameOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + " " + u.GetName()
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// patch an object; one that no longer exists needs no patch.
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

// gates deletes the Gates: without a Gate nothing is held.
func (r *Release) gates(ctx context.Context) error {
	return r.each(ctx, gate.Resource(), func(u *unstructured.Unstructured) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := r.Dynamic.Resource(gate.Resource()).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			r.report("%s: deleted", nameOf(u))
		}
		return err
	})
}

// loads releases hidden data mover loads, and removes tickets and reasons: from those that have
// ended, or from the others.
func (r *Release) loads(ctx context.Context, ended bool) error {
	var errs []error
	for _, kind := range admission.Kinds() {
		of := admission.Resource(kind)
		errs = append(errs, r.each(ctx, of, func(u *unstructured.Unstructured) error {
			if admission.Ended(u) != ended {
				return nil
			}
			body, hidden, err := admission.ReleasePatch(u)
			if err != nil || body == nil {
				return err
			}
			if err := r.patch(ctx, of, u, types.MergePatchType, body); err != nil {
				return err
			}
			if hidden {
				r.report("%s: released", nameOf(u))
				return nil
			}
			r.done, r.cleaned = r.done+1, r.cleaned+1
			return nil
		}))
	}
	return errors.Join(errs...)
}

// repositories hands back the maintenance frequencies of backup repositories.
func (r *Release) repositories(ctx context.Context) error {
	of := admission.RepositoryResource()
	return r.each(ctx, of, func(u *unstructured.Unstructured) error {
		body, err := admission.ReleaseRepositoryPatch(u)
		if err != nil || body == nil {
			return err
		}
		if err := r.patch(ctx, of, u, types.MergePatchType, body); err != nil {
			return err
		}
		r.report("%s: maintenance frequency handed back", nameOf(u))
		return nil
	})
}

// backups removes reasons; the Backups keep their order for Velero's own queue.
func (r *Release) backups(ctx context.Context) error {
	return r.each(ctx, backup.Resource(), func(u *unstructured.Unstructured) error {
		body, returned, err := backup.ReleasePatch(backup.Read(u), time.Now())
		if err != nil || body == nil {
			return err
		}
		if err := r.patch(ctx, backup.Resource(), u, types.MergePatchType, body); err != nil {
			return err
		}
		if returned {
			r.report("%s: queued again, Velero had not started it", nameOf(u))
			return nil
		}
		r.report("%s: reason removed", nameOf(u))
		return nil
	})
}

// queues reports each Velero whose server still leaves its queue to a controller: no
// Backup starts there. Only its user can change the server.
func (r *Release) queues(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	servers, err := r.Dynamic.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).List(ctx, metav1.ListOptions{LabelSelector: backup.Servers})
	if err != nil {
		return fmt.Errorf("list Velero's servers: %w", err)
	}
	var errs []error
	for i := range servers.Items {
		server := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(servers.Items[i].Object, server); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, c := range server.Spec.Template.Spec.Containers {
			if backup.HandedOver(slices.Concat(c.Command, c.Args)) {
				errs = append(errs, fmt.Errorf("%s runs with --disable-controllers=backup-queue, and no controller starts its Backups: they wait until you remove that flag", nameOf(&servers.Items[i])))
			}
		}
	}
	return errors.Join(errs...)
}

// Stale releases the hidden data mover loads that no Gate holds any more, because no
// controller renews it. It touches nothing else, also while controllers run.
func (r *Release) Stale(ctx context.Context) error {
	held := 0
	err := r.sweep(ctx, func(ctx context.Context) (err error) {
		held, err = r.staleLoads(ctx)
		return err
	})
	if err == nil {
		r.print("%d data mover loads released, %d hidden ones are held by a controller", r.done, held)
	}
	return err
}

// staleLoads is one pass. Without the Gates nothing is known of any load.
func (r *Release) staleLoads(ctx context.Context) (held int, err error) {
	gates, err := r.mainGates(ctx)
	if err != nil {
		return 0, fmt.Errorf("gates: %w", err)
	}
	var errs []error
	for _, kind := range []vgdp.Kind{vgdp.DataUpload, vgdp.DataDownload} {
		of := admission.Resource(kind)
		errs = append(errs, r.each(ctx, of, func(u *unstructured.Unstructured) error {
			body, hidden, err := admission.StalePatch(u, gates[u.GetNamespace()], r.Now())
			if hidden && body == nil {
				held++
			}
			if err != nil || body == nil {
				return err
			}
			if err := r.patch(ctx, of, u, types.MergePatchType, body); err != nil {
				return err
			}
			r.report("%s: released, no controller holds it any more", nameOf(u))
			return nil
		}))
	}
	return held, errors.Join(errs...)
}

// mainGates are the Gates that hold the data mover loads, by namespace.
func (r *Release) mainGates(ctx context.Context) (map[string]*gate.Gate, error) {
	gates := map[string]*gate.Gate{}
	err := r.each(ctx, gate.Resource(), func(u *unstructured.Unstructured) error {
		if u.GetName() != gate.Main {
			return nil
		}
		g := &gate.Gate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, g); err != nil {
			return err
		}
		gates[u.GetNamespace()] = g
		return nil
	})
	return gates, err
}
