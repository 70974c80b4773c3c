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

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// target is what a load is about, as far as it says whether a node-agent can
// accept it: a pod that is restored, the claim of a DataDownload, a pod that a
// PodVolumeBackup reads.
type target struct {
	node, class string
	notYet      string
	hooks       bool
	final       bool // it will not be another
	asked       time.Time
}

// The pace of questions about targets: each again after a while, and not too
// many at once, for each is a request.
const (
	targetAgain   = 5 * time.Second
	targetsAtOnce = 20
)

// targets that were asked for, by the UID of the load.
type targets struct {
	pods   corev1client.PodsGetter
	claims corev1client.PersistentVolumeClaimsGetter
	known  map[types.UID]target
	left   int // questions of this look
}

// of a load that waits; what is not known yet counts as not there.
func (t *targets) of(ctx context.Context, o *Object, now time.Time) target {
	is, known := t.known[o.UID]
	if known && (is.final || now.Sub(is.asked) < targetAgain) {
		return is
	}
	if t.left == 0 {
		if !known {
			is.notYet = "its target is not looked up yet"
		}
		return is
	}
	t.left--
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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

// failed: Velero finds out. An API server that does not answer is asked no more
// in this look, which must renew the Gates in time.
func (t *targets) failed() target {
	t.left = 0
	return target{}
}

func (t *targets) claim(ctx context.Context, name types.NamespacedName) target {
	c, err := t.claims.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return target{notYet: "target claim " + name.String() + " does not exist"}
	case err != nil:
		return t.failed()
	}
	is := target{final: true}
	if c.Spec.StorageClassName != nil {
		is.class = *c.Spec.StorageClassName
	}
	return is
}

// restoreWait is the init container in which a restored pod waits for its
// volumes.
const restoreWait = "restore-wait"

// The annotations by which a pod has a hook of its own that runs before it is
// backed up, the second as it was called first. It may make the application
// stand still until its volumes are done; a hook that runs afterwards does not.
const (
	preHook    = "pre.hook.backup.velero.io/command"
	legacyHook = "hook.backup.velero.io/command"
)

func (t *targets) pod(ctx context.Context, name types.NamespacedName, kind vgdp.Kind) target {
	p, err := t.pods.Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	restore := kind == vgdp.PodVolumeRestore
	switch {
	case apierrors.IsNotFound(err) && restore:
		return target{notYet: "pod " + name.String() + " does not exist"}
	case apierrors.IsNotFound(err):
		return target{final: true} // it stands still no more
	case err != nil:
		return t.failed()
	case !restore:
		return target{hooks: p.Annotations[preHook] != "" || p.Annotations[legacyHook] != "", final: true}
	case p.Spec.NodeName == "" || !waits(p):
		return target{node: p.Spec.NodeName, notYet: "pod " + name.String() + " is not waiting for its volumes yet"}
	}
	return target{node: p.Spec.NodeName, final: true}
}

// waits tells whether a restored pod waits for its volumes.
func waits(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == restoreWait && s.State.Running != nil
	})
}
