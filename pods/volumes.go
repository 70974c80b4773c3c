package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// VolumeResolver looks up where the volumes of single pods can be used, for the
// controller, which checks a pod now and then and watches none. It is used by one
// goroutine at a time.
type VolumeResolver struct {
	Claims  corev1client.PersistentVolumeClaimsGetter
	Volumes corev1client.PersistentVolumesGetter

	// found has earlier lookups, so that a pod with many claims is known after some
	// attempts, also if the API server is slow.
	found map[claimKey]claim
}

const (
	// maxClaims of a pod are looked up: it may name thousands, of two calls each.
	maxClaims = 32
	// volumesTime bounds all lookups for a pod. It is less than one pass over all
	// eviction requests may take, so that others are judged after it.
	volumesTime = 400 * time.Millisecond
	// volumesConcurrency is how many claims are looked up concurrently.
	volumesConcurrency = 8
	// maxFound bounds the stored claims; beyond it all are dropped.
	maxFound = 4096
)

// Protections returns all reasons why a pod is protected: those of Protected, and those
// of its volumes. A claim that could not be read in time gives Unresolved. Known
// claims are not looked up again: as in Resolve, a bound claim is known for good,
// and others for a minute.
func (v *VolumeResolver) Protections(ctx context.Context, pod *corev1.Pod, rules Rules) []Protection {
	ctx, cancel := context.WithTimeout(ctx, volumesTime)
	defer cancel()
	claims, now := claimsByName{}, time.Now()
	var open []unknownClaim
	for i, name := range claimNames(pod) {
		key := claimKey{pod.UID, pod.Namespace, name}
		if i >= maxClaims { // the agent that requests the eviction has checked all of them
			claims[name] = claim{unbinding: true}
		} else if c := v.found[key].forPod(pod); c.isFresh(now) {
			claims[name] = c
		} else {
			open = append(open, unknownClaim{claimKey: key, started: started(pod)})
		}
	}
	w := Watcher{Claims: v.Claims, Volumes: v.Volumes}
	for i, c := range w.lookUpAll(ctx, open, volumesConcurrency) {
		claims[open[i].name] = c
		if c.isFresh(now) {
			v.keep(open[i].claimKey, c)
		}
	}
	return protections(pod, claims, rules)
}

func (v *VolumeResolver) keep(key claimKey, c claim) {
	if v.found == nil || len(v.found) >= maxFound {
		v.found = map[claimKey]claim{}
	}
	v.found[key] = c
}
