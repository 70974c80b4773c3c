package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// target is the object whose data a load moves, as far as it determines whether a
// node-agent can accept the load, and where: the pod of a PodVolumeRestore, the claim of
// a DataDownload, the pod that a PodVolumeBackup reads, the claim of a DataUpload and its
// volume.
type target struct {
	node     string // of a pod
	volume   volume // of a claim
	notReady string
	hooks    bool
	final    bool // it will not change while the load uses its tickets
	asked    time.Time
	// wait is how long after asked it is asked for again, where it was not ready.
	wait time.Duration
}

// volume is what a claim and its volume say of where a mover may run.
type volume struct {
	// class of the claim; empty: none, or unknown.
	class string
	// selected is the node that the scheduler chose for the claim; empty: none.
	selected string
	// block: a volume in block mode. fsType of the volume; empty: unknown.
	block  bool
	fsType string
	// topology of the volume, nil: everywhere, and that as text.
	topology *corev1.NodeSelector
	text     string
}

// The rate limit of lookups: the interval for one target, shorter for those that
// restores wait for, the longest for one that is not ready, the number of one round, and
// the time that they may take: the Gates must be renewed in time.
const (
	targetInterval   = 5 * time.Second
	restoreInterval  = time.Second
	notReadyInterval = 10 * time.Second
	targetsPerRound  = 50
	targetsTime      = 500 * time.Millisecond
)

// targets that were looked up, by the load's UID.
type targets struct {
	pods    corev1client.PodsGetter
	claims  corev1client.PersistentVolumeClaimsGetter
	volumes corev1client.PersistentVolumesGetter
	classes classes
	known   map[types.UID]target
	// unbounded: all are looked up in one round, for a preview.
	unbounded bool
	left      int       // lookups left in this round
	until     time.Time // when this round's lookups end; zero: they do not
	failed    bool      // one failed in this round
	log       *slog.Logger
	refused   map[string]bool // what may not be read, so that it is logged once
}

func newTargets(core corev1client.CoreV1Interface, of storagev1client.StorageClassesGetter, log *slog.Logger) targets {
	return targets{
		pods: core, claims: core, volumes: core, log: log, known: map[types.UID]target{}, refused: map[string]bool{},
		classes: classes{of: of, known: map[string]readClass{}},
	}
}

// begin a round.
func (t *targets) begin() {
	t.left, t.until, t.failed = targetsPerRound, time.Now().Add(targetsTime), false
	if t.unbounded {
		t.left, t.until = math.MaxInt, time.Time{}
	}
}

// fail ends the lookups of this round, which must renew the Gates in time. Velero will
// check what cannot be read.
func (t *targets) fail() { t.left, t.failed = 0, true }

// more tells whether targets are due that this round had no lookups left for.
func (t *targets) more() bool { return !t.failed && !t.enough() }

func (t *targets) enough() bool {
	return t.left > 0 && (t.until.IsZero() || time.Now().Before(t.until))
}

// due tells whether a target must be looked up (again): also one that does not change, after
// a ticket that was not used, for it may have been deleted.
func (t *targets) due(o *Object, now time.Time) bool {
	is, known := t.known[o.UID]
	interval := targetInterval
	switch {
	case is.notReady != "":
		interval = is.wait
	case o.Load.Kind.Facts().Restores:
		interval = restoreInterval
	}
	return !known || (is.asked.After(now) || now.Sub(is.asked) >= interval) && (!is.final || is.asked.Before(o.Load.Note.UnusedAt))
}

// first sorts targets that are due by when they were asked for, those that never were
// first, so that each has its turn, and loads that were asked for at the same time by their
// age.
func (t *targets) first(a, b *vgdp.Load) int {
	return cmp.Or(t.known[types.UID(a.UID)].asked.Compare(t.known[types.UID(b.UID)].asked), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

// take one of the lookups of this round; false: none is left.
func (t *targets) take() bool {
	if !t.enough() {
		return false
	}
	t.left--
	return true
}

// notLookedUp is why a load waits whose target is not known yet.
const notLookedUp = "its target is not looked up yet"

// of is the target of a waiting load; one that is not looked up yet counts as missing.
func (t *targets) of(ctx context.Context, o *Object, now time.Time) target {
	is, known := t.known[o.UID]
	if !t.due(o, now) {
		return is
	}
	if !t.take() {
		if !known {
			is.notReady = notLookedUp
		}
		return is
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	was := is
	var err error
	switch o.Load.Kind {
	case vgdp.DataUpload:
		is, err = t.source(ctx, o.Target)
	case vgdp.DataDownload:
		is, err = t.claim(ctx, o.Target, now)
	default:
		is, err = t.pod(ctx, o.Target, o.Load.Kind)
	}
	if err != nil && !t.mayNot(err) {
		t.fail()
		was.asked, was.final = now, false // the others have their turn first
		later := was
		if !known {
			later.notReady = notLookedUp
		}
		t.known[o.UID] = later
		was.notReady = ""
		return was
	}
	is.asked = now
	if is.notReady != "" {
		is.wait = min(max(2*was.wait, restoreInterval), notReadyInterval)
	}
	t.known[o.UID] = is
	return is
}

// mayNot tells whether something may not be read, and logs it once. What is not known
// then excludes no node.
func (t *targets) mayNot(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	what := "an object"
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Details != nil {
		what = answer.Status().Details.Kind
	}
	if !t.refused[what] {
		t.refused[what] = true
		t.log.Warn("may not read where data mover loads can run; nodes are not excluded by it (apply deploy/rbac-controller.yaml)", "resource", what, "error", err)
	}
	return true
}

// claim is that of a DataDownload, which a restore fills. Where its class wants that, the
// scheduler chooses its node later.
func (t *targets) claim(ctx context.Context, name types.NamespacedName, now time.Time) (target, error) {
	c, err := t.claims.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return target{notReady: "target claim " + name.String() + " does not exist"}, nil
	case err != nil:
		return target{}, err
	}
	v := volumeOf(c)
	class, _ := t.class(ctx, v.class, now)
	return target{volume: v, final: v.selected != "" || class.known && !class.delayed}, nil
}

// source is the claim that a DataUpload backs up, with its volume. Velero fails a load
// without them.
func (t *targets) source(ctx context.Context, name types.NamespacedName) (target, error) {
	c, err := t.claims.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return target{}, nil
	case err != nil:
		return target{}, err
	}
	is := target{volume: volumeOf(c)}
	if c.Spec.VolumeName == "" {
		return is, nil
	}
	pv, err := t.volumes.PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return is, nil
	case err != nil:
		return is, err
	}
	is.final = true
	return is, is.volume.add(pv)
}

func volumeOf(c *corev1.PersistentVolumeClaim) volume {
	v := volume{selected: c.Annotations[selectedNode], block: c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock}
	if c.Spec.StorageClassName != nil {
		v.class = *c.Spec.StorageClassName
	}
	return v
}

// selectedNode is the annotation of a claim with the node that the scheduler chose.
const selectedNode = "volume.kubernetes.io/selected-node"

// add what the volume itself says.
func (v *volume) add(pv *corev1.PersistentVolume) error {
	if pv.Spec.CSI != nil {
		v.fsType = pv.Spec.CSI.FSType
	}
	if v.topology = topologyOf(pv); v.topology == nil {
		return nil
	}
	text, err := json.Marshal(v.topology)
	v.text = string(text)
	return err
}

// topologyOf a volume; nil: it is everywhere. One without terms counts as none.
func topologyOf(pv *corev1.PersistentVolume) *corev1.NodeSelector {
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms) == 0 {
		return nil
	}
	return pv.Spec.NodeAffinity.Required
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

func (t *targets) pod(ctx context.Context, name types.NamespacedName, kind vgdp.Kind) (target, error) {
	p, err := t.pods.Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	restore := kind == vgdp.PodVolumeRestore
	switch {
	case apierrors.IsNotFound(err) && restore:
		return target{notReady: "pod " + name.String() + " does not exist"}, nil
	case apierrors.IsNotFound(err):
		return target{final: true}, nil // it was deleted: no application is frozen
	case err != nil:
		return target{}, err
	case !restore:
		return target{hooks: p.Annotations[preHook] != "" || p.Annotations[legacyHook] != "", final: true}, nil
	case p.Spec.NodeName == "" || !waits(p):
		return target{node: p.Spec.NodeName, notReady: "pod " + name.String() + " is not waiting for its volumes yet"}, nil
	}
	return target{node: p.Spec.NodeName, final: true}, nil
}

// waits tells whether a restored pod is waiting for its volumes.
func waits(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == restoreWait && s.State.Running != nil
	})
}
