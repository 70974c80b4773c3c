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

// How much one Resolve may ask the API server for, and for how long. A pod's owner
// chooses how many claims it names, and whether there are such.
const (
	resolveTime   = 2 * time.Second
	resolveClaims = 32
	// resolveAtOnce is how many claims are asked for at the same time.
	resolveAtOnce = 4
	// resolveAgain is when a claim that was not there, or not bound, is asked for
	// again.
	resolveAgain = time.Minute
)

// claim is where the volume of a claim is.
type claim struct {
	// known: the claim is bound and its volume was read.
	known bool
	// none: there is no such claim, or it is not bound and the pod had started, so
	// it binds the pod to no node. A pod cannot start without its claims, bound:
	// whoever deleted one that is in use took its finalizer off, and may have put
	// another in its place. It would else protect the pod for ever.
	none bool
	// started: the pod had started when it was asked for.
	started bool
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

// of a pod as it is now: that there was none before it started says nothing of
// what it has started with.
func (c claim) of(pod *corev1.Pod) claim {
	if !c.known && !c.started && started(pod) {
		return claim{}
	}
	return c
}

// rests says whether it is not asked for now.
func (c claim) rests(now time.Time) bool {
	answered := c.none || errors.Is(c.why, errNotBound)
	return c.known || answered && now.Sub(c.asked) < resolveAgain
}

// started says whether a container of the pod was ever made, for which its
// volumes must have been there. Only kubelets write that.
func started(pod *corev1.Pod) bool {
	return pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending || len(stripStarted(&pod.Status)) > 0
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

// Resolve looks up where the volumes of some of the node's pods are, which it is
// given by the UIDs of their cgroups, those that matter most first, for at most
// two seconds and some claims at a time: of each namespace one before another's
// second, and of these those first that were not asked for the longest time. What
// is known is not asked again; a claim that cannot be read leaves its pod protected
// as Unresolved. The error is one of those that the API server gave; a claim that
// is not bound yet is none.
func (w *Watcher) Resolve(ctx context.Context, uids []string) error {
	ctx, stop := context.WithTimeout(ctx, resolveTime)
	defer stop()
	open := w.openClaims(uids)
	open = open[:min(resolveClaims, len(open))]
	found := w.lookUpAll(ctx, open, resolveAtOnce)
	w.keepClaims(open, found)
	for _, claim := range found {
		if claim.why != nil && !errors.Is(claim.why, errNotBound) {
			return fmt.Errorf("look up the volumes of pods on node %s: %w", w.Node, claim.why)
		}
	}
	return nil
}

// openClaim is one that is to be asked for.
type openClaim struct {
	claimKey
	started bool
	// asked is when it was last, place that of its pod among those that were named,
	// and turn how many of its namespace come before it.
	asked       time.Time
	place, turn int
}

// openClaims are the claims of some pods that are not known, in the order in
// which they are asked for; it forgets those of pods that are gone.
func (w *Watcher) openClaims(uids []string) []openClaim {
	pods, now, places := w.stored(), time.Now(), map[string]int{}
	for i, uid := range slices.Backward(uids) { // who is named twice, by the first
		places[uid] = i
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := map[claimKey]claim{}
	var open []openClaim
	for _, pod := range pods {
		place, named := places[cgroupUID(pod)]
		for _, name := range claimNames(pod) {
			key := claimKey{pod.UID, pod.Namespace, name}
			c := w.claims[key].of(pod)
			known[key] = c
			if named && !c.rests(now) {
				open = append(open, openClaim{claimKey: key, started: started(pod), asked: c.asked, place: place})
			}
		}
	}
	w.claims = known
	return inTurn(open)
}

// inTurn orders claims: the first of each namespace, then the second of each.
func inTurn(open []openClaim) []openClaim {
	slices.SortStableFunc(open, func(a, b openClaim) int {
		return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.place, b.place))
	})
	turns := map[string]int{}
	for i := range open {
		open[i].turn = turns[open[i].namespace]
		turns[open[i].namespace]++
	}
	slices.SortStableFunc(open, func(a, b openClaim) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.place, b.place))
	})
	return open
}

// keepClaims keeps what was found; an older answer never replaces a known one.
func (w *Watcher) keepClaims(open []openClaim, found []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range open {
		if before, wanted := w.claims[o.claimKey]; wanted && !before.known {
			w.claims[o.claimKey] = found[i]
		}
	}
}

var errNotBound = errors.New("claim is not bound")

// lookUpAll asks for claims, so many at a time. What went wrong is in each.
func (w *Watcher) lookUpAll(ctx context.Context, open []openClaim, atOnce int) []claim {
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

// lookUp asks for a claim and then for its volume.
func (w *Watcher) lookUp(ctx context.Context, o openClaim) claim {
	if ctx.Err() != nil {
		return claim{started: o.started, why: fmt.Errorf("no time left to look it up: %w", ctx.Err()), asked: o.asked}
	}
	c := claim{started: o.started, asked: time.Now()}
	found, err := w.Claims.PersistentVolumeClaims(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.none = true
		return c
	}
	if err != nil {
		c.why = fmt.Errorf("get claim %s/%s: %w", o.namespace, o.name, err)
		return c
	}
	if found.Spec.VolumeName == "" || found.Status.Phase != corev1.ClaimBound {
		if c.none = o.started; !c.none {
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
