package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resolveTime is how long one Resolve may ask the API server.
const resolveTime = 2 * time.Second

// resolveAtOnce is how many claims are asked for at the same time.
const resolveAtOnce = 4

// claim is where the volume of a claim is.
type claim struct {
	// known: the claim is bound and its volume was read.
	known bool
	// gone: there is no such claim, so it binds the pod to no node. A pod cannot
	// start without its claims: whoever deleted one that is in use took its
	// finalizer off, and would else protect the pod for ever.
	gone bool
	// onlyHere is why the volume binds a pod to this node; empty if it does not.
	onlyHere string
	// why it is not known; nil also where it was not asked yet.
	why error
	// asked is when it was looked up last.
	asked time.Time
}

// reason is why a claim is not known.
func (c claim) reason() string {
	if c.why == nil {
		return "not looked up yet"
	}
	return short(c.why.Error())
}

// claimsOf are a pod's claims by name.
type claimsOf map[string]claim

// claimKey is a claim as one pod uses it. A claim cannot go while a pod uses
// it, and a bound one never changes; under the same name the next pod may find
// another one.
type claimKey struct {
	pod             types.UID
	namespace, name string
}

// claimNames are the claims that a pod uses, those of its generic ephemeral
// volumes too.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Resolve looks up where the volumes of the node's pods are, for at most two
// seconds: those not asked for the longest time first. What is known is not
// asked again; a claim that is not bound or cannot be read leaves its pod
// protected as Unresolved and is asked again by the next Resolve. The error is
// one of those that the API server gave; a claim that is not bound yet is none.
func (w *Watcher) Resolve(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, resolveTime)
	defer stop()
	open := w.openClaims()
	found := make([]claim, len(open))
	var group errgroup.Group
	group.SetLimit(resolveAtOnce)
	for i, key := range open {
		group.Go(func() error {
			found[i] = w.lookUp(ctx, key)
			return nil
		})
	}
	_ = group.Wait() // what went wrong is in found
	w.keepClaims(open, found)
	for _, claim := range found {
		if claim.why != nil && !errors.Is(claim.why, errNotBound) {
			return fmt.Errorf("find the volumes of node %s's pods: %w", w.Node, claim.why)
		}
	}
	return nil
}

// openClaims are the claims that are not known, and forgets those of pods that
// are gone.
func (w *Watcher) openClaims() []claimKey {
	pods := w.stored()
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[claimKey]claim{}
	for _, pod := range pods {
		for _, name := range claimNames(pod) {
			key := claimKey{pod.UID, pod.Namespace, name}
			known[key] = w.claims[key]
		}
	}
	w.claims = known
	open := slices.DeleteFunc(slices.Collect(maps.Keys(known)), func(k claimKey) bool { return known[k].known })
	slices.SortFunc(open, func(a, b claimKey) int {
		return cmp.Or(known[a].asked.Compare(known[b].asked), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.pod, b.pod))
	})
	return open
}

// keepClaims keeps what was found; an older answer never replaces a known one.
func (w *Watcher) keepClaims(keys []claimKey, found []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range keys {
		if before, wanted := w.claims[key]; wanted && !before.known {
			w.claims[key] = found[i]
		}
	}
}

var errNotBound = errors.New("it is not bound")

// lookUp asks for a claim and then for its volume.
func (w *Watcher) lookUp(ctx context.Context, key claimKey) claim {
	if ctx.Err() != nil {
		return claim{why: fmt.Errorf("no time was left to ask: %w", ctx.Err())}
	}
	asked := time.Now()
	found, err := w.Claims.PersistentVolumeClaims(key.namespace).Get(ctx, key.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return claim{gone: true, asked: asked}
	}
	if err != nil {
		return claim{why: fmt.Errorf("get claim %s/%s: %w", key.namespace, key.name, err), asked: asked}
	}
	if found.Spec.VolumeName == "" || found.Status.Phase != corev1.ClaimBound {
		return claim{why: fmt.Errorf("%w, its phase is %q", errNotBound, found.Status.Phase), asked: asked}
	}
	volume, err := w.Volumes.PersistentVolumes().Get(ctx, found.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return claim{why: fmt.Errorf("get volume %s: %w", found.Spec.VolumeName, err), asked: asked}
	}
	return claim{known: true, onlyHere: volumeOnlyHere(volume), asked: asked}
}
