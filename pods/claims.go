package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds on the requests of one Resolve. A pod's owner chooses how many claims it
// names, and whether they exist.
const (
	resolveTime   = 2 * time.Second
	resolveClaims = 32
	// resolveConcurrency is how many claims are looked up concurrently.
	resolveConcurrency = 4
	// resolveRetry is after what time a claim that did not exist, or was not bound,
	// is looked up again.
	resolveRetry = time.Minute
)

// claim is what is known of a PersistentVolumeClaim and its volume.
type claim struct {
	// known: the claim is bound and its volume was read.
	known bool
	// unbinding: the claim does not exist, or is not bound although the pod had started,
	// so it binds the pod to no node. A pod starts only with bound claims: a
	// missing one was deleted by removing its finalizer, and may have been
	// replaced. Otherwise it would protect the pod for ever.
	unbinding bool
	// started: the pod had started when the claim was looked up.
	started bool
	// onlyHere is why the volume binds the pod to this node; empty if it does not.
	onlyHere string
	// why it is not known; nil also if it was not looked up yet.
	why error
	// lookedUpAt is when it was last looked up.
	lookedUpAt time.Time
}

// reason is why a claim is not known.
func (c claim) reason() string {
	if c.why == nil {
		return "not looked up yet"
	}
	return truncate(c.why.Error())
}

// forPod is the claim for a pod as it is now: a claim that was missing before the pod
// started is looked up again.
func (c claim) forPod(pod *corev1.Pod) claim {
	if !c.known && !c.started && started(pod) {
		return claim{}
	}
	return c
}

// isFresh reports whether the claim need not be looked up now.
func (c claim) isFresh(now time.Time) bool {
	answered := c.unbinding || errors.Is(c.why, errNotBound)
	return c.known || answered && now.Sub(c.lookedUpAt) < resolveRetry
}

// started reports whether a container of the pod was ever created, for which its
// volumes must have been mounted. Only kubelets write that.
func started(pod *corev1.Pod) bool {
	return pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending || len(stripStarted(&pod.Status)) > 0
}

// claimsByName are a pod's claims by name.
type claimsByName map[string]claim

// claimKey is a claim as used by one pod. A bound claim never changes and is not
// deleted while a pod uses it; another pod may find another claim under that name.
type claimKey struct {
	pod             types.UID
	namespace, name string
}

// claimNames are the claims that a pod uses, including those of its generic
// ephemeral volumes.
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

// Resolve looks up the volumes of some of the node's pods, given by the UIDs of
// their cgroups, the most important first. It takes at most two seconds and
// resolveClaims claims, fairly: the first claim of each namespace before the second
// of any, least recently looked up first. Known claims are not looked up again; a
// claim that cannot be read leaves its pod protected as Unresolved. The error is one
// of those of the API server; an unbound claim is no error.
func (w *Watcher) Resolve(ctx context.Context, uids []string) error {
	ctx, stop := context.WithTimeout(ctx, resolveTime)
	defer stop()
	open := w.unknownClaims(uids)
	open = open[:min(resolveClaims, len(open))]
	found := w.lookUpAll(ctx, open, resolveConcurrency)
	w.storeClaims(open, found)
	for _, claim := range found {
		if claim.why != nil && !errors.Is(claim.why, errNotBound) {
			return fmt.Errorf("look up the volumes of pods on node %s: %w", w.Node, claim.why)
		}
	}
	return nil
}

// unknownClaim is a claim to be looked up.
type unknownClaim struct {
	claimKey
	started bool
	// asked is when it was last looked up, place the position of its pod in uids,
	// and turn the number of claims of its namespace before it.
	asked      time.Time
	rank, turn int
}

// unknownClaims returns the unknown claims of some pods in lookup order, and drops the
// claims of pods that no longer exist.
func (w *Watcher) unknownClaims(uids []string) []unknownClaim {
	pods, now, places := w.stored(), time.Now(), map[string]int{}
	for i, uid := range slices.Backward(uids) { // the first position of a duplicate counts
		places[uid] = i
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[claimKey]claim{}
	var open []unknownClaim
	for _, pod := range pods {
		place, named := places[cgroupUID(pod)]
		for _, name := range claimNames(pod) {
			key := claimKey{pod.UID, pod.Namespace, name}
			c := w.claims[key].forPod(pod)
			known[key] = c
			if named && !c.isFresh(now) {
				open = append(open, unknownClaim{claimKey: key, started: started(pod), asked: c.lookedUpAt, rank: place})
			}
		}
	}
	w.claims = known
	return roundRobin(open)
}

// roundRobin orders claims round-robin over namespaces.
func roundRobin(open []unknownClaim) []unknownClaim {
	slices.SortStableFunc(open, func(a, b unknownClaim) int {
		return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.rank, b.rank))
	})
	turns := map[string]int{}
	for i := range open {
		open[i].turn = turns[open[i].namespace]
		turns[open[i].namespace]++
	}
	slices.SortStableFunc(open, func(a, b unknownClaim) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.rank, b.rank))
	})
	return open
}

// storeClaims stores lookups; a known claim is never replaced.
func (w *Watcher) storeClaims(open []unknownClaim, found []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range open {
		if before, wanted := w.claims[o.claimKey]; wanted && !before.known {
			w.claims[o.claimKey] = found[i]
		}
	}
}

var errNotBound = errors.New("claim is not bound")

// lookUpAll looks up claims concurrently. Errors are in each claim.
func (w *Watcher) lookUpAll(ctx context.Context, open []unknownClaim, atOnce int) []claim {
	found := make([]claim, len(open))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, o := range open {
		group.Go(func() error {
			found[i] = w.lookUp(ctx, o)
			return nil
		})
	}
	_ = group.Wait()
	return found
}

// lookUp gets a claim and then its volume.
func (w *Watcher) lookUp(ctx context.Context, o unknownClaim) claim {
	if ctx.Err() != nil {
		return claim{started: o.started, why: fmt.Errorf("no time left to look it up: %w", ctx.Err()), lookedUpAt: o.asked}
	}
	c := claim{started: o.started, lookedUpAt: time.Now()}
	found, err := w.Claims.PersistentVolumeClaims(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.unbinding = true
		return c
	}
	if err != nil {
		c.why = fmt.Errorf("get claim %s/%s: %w", o.namespace, o.name, err)
		return c
	}
	if found.Spec.VolumeName == "" || found.Status.Phase != corev1.ClaimBound {
		if c.unbinding = o.started; !c.unbinding {
			c.why = fmt.Errorf("%w (phase %q)", errNotBound, found.Status.Phase)
		}
		return c
	}
	volume, err := w.Volumes.PersistentVolumes().Get(ctx, found.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		c.why = fmt.Errorf("get volume %s: %w", found.Spec.VolumeName, err)
		return c
	}
	c.known, c.onlyHere = true, volumeOnlyHere(volume)
	return c
}
