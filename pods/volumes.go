package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Volumes tells where the volumes of a single pod are, as the API server says: for
// one who judges a pod now and then, and watches none. It is used by one goroutine
// at a time.
type Volumes struct {
	Claims  corev1client.PersistentVolumeClaimsGetter
	Volumes corev1client.PersistentVolumesGetter

	// found of the pods that were judged, so that whoever has many claims is known
	// after some times of asking, also where the API server is slow.
	found map[claimKey]claim
}

const (
	// maxClaims of a pod are looked up: a pod may name thousands, each of which is
	// two calls.
	maxClaims = 32
	// volumesTime bounds all of them together. It is less than what one look at all
	// requests may take, so that another is judged after it.
	volumesTime = 400 * time.Millisecond
	// volumesAtOnce is how many claims are asked for at the same time.
	volumesAtOnce = 8
	// maxFound bounds the claims that are remembered; then all are forgotten.
	maxFound = 4096
)

// Protect returns all reasons why a pod must never be evicted: those that Protected
// knows, and those that lie in its volumes. A claim that could not be read in time
// is one of them, Unresolved. Nothing is asked of a pod without claims, nor what is
// known: as in Resolve, a bound claim for good and all else for a minute.
func (v *Volumes) Protect(ctx context.Context, pod *corev1.Pod, rules Rules) []Protection {
	ctx, cancel := context.WithTimeout(ctx, volumesTime)
	defer cancel()
	claims, now := claimsOf{}, time.Now()
	var open []openClaim
	for i, name := range claimNames(pod) {
		key := claimKey{pod.UID, pod.Namespace, name}
		if i >= maxClaims { // the agent that asks has looked at all of them
			claims[name] = claim{none: true}
		} else if c := v.found[key].of(pod); c.rests(now) {
			claims[name] = c
		} else {
			open = append(open, openClaim{claimKey: key, started: started(pod)})
		}
	}
	w := Watcher{Claims: v.Claims, Volumes: v.Volumes}
	for i, c := range w.lookUpAll(ctx, open, volumesAtOnce) {
		claims[open[i].name] = c
		if c.rests(now) {
			v.keep(open[i].claimKey, c)
		}
	}
	return protections(pod, claims, rules)
}

func (v *Volumes) keep(key claimKey, c claim) {
	if v.found == nil || len(v.found) >= maxFound {
		v.found = map[claimKey]claim{}
	}
	v.found[key] = c
}
