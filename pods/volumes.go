package pods

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Volumes tells where the volumes of a single pod are, as the API server says now:
// for one who judges a pod now and then, and watches none.
type Volumes struct {
	Claims  corev1client.PersistentVolumeClaimsGetter
	Volumes corev1client.PersistentVolumesGetter
}

const (
	// maxClaims of a pod are looked up: a pod may name thousands, each of which is
	// two calls.
	maxClaims = 32
	// volumesTime bounds all of them together.
	volumesTime = time.Second
)

// Protect returns all reasons why a pod must never be evicted: those that Protected
// knows, and those that lie in its volumes. Nothing is asked of a pod without
// claims. The error is one that the API server gave; then it is not known.
func (v Volumes) Protect(ctx context.Context, pod *corev1.Pod, rules Rules) ([]Protection, error) {
	ctx, cancel := context.WithTimeout(ctx, volumesTime)
	defer cancel()
	w := Watcher{Claims: v.Claims, Volumes: v.Volumes}
	found := claimsOf{}
	for i, name := range claimNames(pod) {
		if i >= maxClaims { // the agent that asks has looked at all of them
			found[name] = claim{none: true}
			continue
		}
		c := w.lookUp(ctx, openClaim{claimKey: claimKey{pod.UID, pod.Namespace, name}, started: started(pod)})
		if c.why != nil && !errors.Is(c.why, errNotBound) {
			return nil, c.why
		}
		found[name] = c
	}
	return protections(pod, found, rules), nil
}
