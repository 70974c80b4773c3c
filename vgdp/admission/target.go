package admission

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// target is the object whose data a load moves, as far as it determines whether a
// node-agent can accept the load: the pod of a PodVolumeRestore, the claim of a
// DataDownload, the pod that a PodVolumeBackup reads.
type target struct {
	node, class string
	notReady    string
	hooks       bool
	final       bool // it will not change
	asked       time.Time
}

// The rate limit of lookups: the interval for one target, and the number of one round.
const (
	targetInterval  = 5 * time.Second
	targetsPerRound = 20
)

// targets that were looked up, by the load's UID.
type targets struct {
	pods   corev1client.PodsGetter
	claims corev1client.PersistentVolumeClaimsGetter
	known  map[types.UID]target
	left   int // lookups left in this round
}

// of is the target of a waiting load; one that is not looked up yet counts as missing.
func (t *targets) of(ctx context.Context, o *Object, now time.Time) target {
	is, known := t.known[o.UID]
	if known && (is.final || now.Sub(is.asked) < targetInterval) {
		return is
	}
	if t.left == 0 {
		if !known {
			is.notReady = "its target is not looked up yet"
		}
		return is
	}
	t.left--
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	if o.Load.Kind == vgdp.DataDownload {
		is = t.claim(ctx, o.Target)
	} else {
		is = t.pod(ctx, o.Target, o.Load.Kind)
	}
	is.asked = now
	t.known[o.UID] = is
	return is
}

// failed treats an unreadable target as existing, Velero will check it. No further
// lookups are made in this round, which must renew the Gates in time.
func (t *targets) failed() target {
	t.left = 0
	return target{}
}

func (t *targets) claim(ctx context.Context, name types.NamespacedName) target {
	c, err := t.claims.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return target{notReady: "target claim " + name.String() + " does not exist"}
	case err != nil:
		return t.failed()
	}
	is := target{final: true}
	if c.Spec.StorageClassName != nil {
		is.class = *c.Spec.StorageClassName
	}
	return is
}

// restoreWait is the init container in which a restored pod waits for its volumes.
const restoreWait = "restore-wait"

// The annotations of a pod's own hook that runs before its backup, the second being the
// old name. It may freeze the application until its volumes are done; a hook that runs
// afterwards does not.
const (
	preHook    = "pre.hook.backup.velero.io/command"
	legacyHook = "hook.backup.velero.io/command"
)

func (t *targets) pod(ctx context.Context, name types.NamespacedName, kind vgdp.Kind) target {
	p, err := t.pods.Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	restore := kind == vgdp.PodVolumeRestore
	switch {
	case apierrors.IsNotFound(err) && restore:
		return target{notReady: "pod " + name.String() + " does not exist"}
	case apierrors.IsNotFound(err):
		return target{final: true} // it was deleted: no application is frozen
	case err != nil:
		return t.failed()
	case !restore:
		return target{hooks: p.Annotations[preHook] != "" || p.Annotations[legacyHook] != "", final: true}
	case p.Spec.NodeName == "" || !waits(p):
		return target{node: p.Spec.NodeName, notReady: "pod " + name.String() + " is not waiting for its volumes yet"}
	}
	return target{node: p.Spec.NodeName, final: true}
}

// waits tells whether a restored pod is waiting for its volumes.
func waits(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == restoreWait && s.State.Running != nil
	})
}
