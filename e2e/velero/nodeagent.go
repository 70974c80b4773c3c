package velero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/plimsoll-dev/plimsoll/names"
)

// LoadResources of the four kinds.
func LoadResources() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		"DataUpload":       {Group: "velero.io", Version: "v2alpha1", Resource: "datauploads"},
		"DataDownload":     {Group: "velero.io", Version: "v2alpha1", Resource: "datadownloads"},
		"PodVolumeBackup":  {Group: "velero.io", Version: "v1", Resource: "podvolumebackups"},
		"PodVolumeRestore": {Group: "velero.io", Version: "v1", Resource: "podvolumerestores"},
	}
}

// StandInAgent stands in for the node-agent of one node, and does what that does
// with a load's phase (pkg/controller of Velero 1.18.3): any agent accepts a
// DataUpload or DataDownload, that of the pod's node a PodVolumeBackup or
// PodVolumeRestore; each is tried again at every write to it, after a refusal
// with growing delay, and every 5 s where a limit of its own is reached. There
// are no pods of data movers: whoever accepts a load is where it runs. Nothing
// is moved.
//
// As one of Velero 1.16 it starts PodVolumeBackups and PodVolumeRestores at once, and
// fails a load when the API server refuses to let it be accepted, or started at once.
type StandInAgent struct {
	Client          dynamic.Interface
	Core            kubernetes.Interface
	Namespace, Node string
	// Concurrency of loads that run here. PrepareLimit of the cluster, as this
	// agent counts it; 0: none.
	Concurrency, PrepareLimit int
	// Old: it is one of Velero 1.16.
	Old bool
	// Prepares and Moves are how long it takes to prepare a load, and to move it.
	Prepares, Moves time.Duration
	// Informers that several agents share, started and ended by whoever made them; nil: it
	// has its own.
	Informers dynamicinformer.DynamicSharedInformerFactory

	informers map[string]cache.SharedIndexInformer
	mu        sync.Mutex // guards running
	running   int
	work      sync.WaitGroup
}

// again is when a load is looked at again that a limit keeps.
const again = 5 * time.Second

// errLimit: a limit of this agent's own keeps a load.
var errLimit = errors.New("as many as may")

// Run until ctx is done; loads that it had taken up then stay as they are.
func (a *StandInAgent) Run(ctx context.Context) error {
	factory := a.Informers
	if factory == nil {
		factory = dynamicinformer.NewFilteredDynamicSharedInformerFactory(a.Client, 0, a.Namespace, nil)
		defer factory.Shutdown()
	}
	a.informers = map[string]cache.SharedIndexInformer{}
	defer a.work.Wait()
	var workers sync.WaitGroup
	defer workers.Wait()
	for kind, resource := range LoadResources() { // all of them before the first worker reads one
		a.informers[kind] = factory.ForResource(resource).Informer()
	}
	for kind, informer := range a.informers {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { queue.Add(nameOf(o)) },
			UpdateFunc: func(_, o any) { queue.Add(nameOf(o)) },
		}); err != nil {
			return err
		}
		workers.Go(func() { <-ctx.Done(); queue.ShutDown() })
		workers.Go(func() { a.serve(ctx, kind, queue) })
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

func nameOf(o any) string {
	u, _ := o.(*unstructured.Unstructured)
	return u.GetName()
}

func (a *StandInAgent) serve(ctx context.Context, kind string, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		name, down := queue.Get()
		if down {
			return
		}
		switch err := a.reconcile(ctx, kind, name); {
		case errors.Is(err, errLimit):
			queue.AddAfter(name, again)
		case err != nil:
			queue.AddRateLimited(name)
		default:
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

func (a *StandInAgent) reconcile(ctx context.Context, kind, name string) error {
	o, there, err := a.informers[kind].GetStore().GetByKey(a.Namespace + "/" + name)
	u, is := o.(*unstructured.Unstructured)
	if err != nil || !there || !is {
		return err
	}
	u = u.DeepCopy()
	mover, _, _ := unstructured.NestedString(u.Object, "spec", "datamover")
	if mover != "" && mover != "velero" && (a.Old || !names.IsVelerosMover(mover)) {
		return nil
	}
	phase := text(u, "status", "phase")
	if finalizer := a.finalizer(kind); finalizer != "" && len(u.GetFinalizers()) == 0 && phase != "Completed" && phase != "Failed" {
		u.SetFinalizers([]string{finalizer})
		return a.update(ctx, kind, u)
	}
	return a.carryOn(ctx, kind, name, u, phase)
}

// carryOn does what an agent does with a load of this phase.
func (a *StandInAgent) carryOn(ctx context.Context, kind, name string, u *unstructured.Unstructured, phase string) error {
	switch phase {
	case "", "New":
		if !a.Old || !names.MoverKind(kind).Facts().NodeFixed {
			return a.accept(ctx, kind, u)
		}
		if a.mine(ctx, kind, u) {
			return a.start(ctx, kind, u)
		}
	case "Accepted":
		if a.mine(ctx, kind, u) {
			a.later(ctx, kind, name, a.Prepares, "Accepted", "Prepared")
		}
	case "Prepared":
		if text(u, "status", "node") == a.Node || text(u, "spec", "node") == a.Node {
			return a.start(ctx, kind, u)
		}
	case "Completed", "Failed":
		if len(u.GetFinalizers()) > 0 {
			u.SetFinalizers(nil)
			return a.update(ctx, kind, u)
		}
	}
	return nil
}

// accept a load that is new, if it is for this agent.
func (a *StandInAgent) accept(ctx context.Context, kind string, u *unstructured.Unstructured) error {
	if !a.mine(ctx, kind, u) {
		return nil
	}
	if a.PrepareLimit > 0 && a.exposing() >= a.PrepareLimit {
		return errLimit
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if !a.Old {
		labels[names.ExposeLabel] = "true"
		u.SetLabels(labels)
	}
	status := map[string]any{"phase": "Accepted", "acceptedTimestamp": metav1.Now().UTC().Format(time.RFC3339)}
	switch kind {
	case "DataUpload", "DataDownload":
		status["acceptedByNode"] = a.Node
	case "PodVolumeRestore":
		status["node"] = a.Node
	}
	if err := unstructured.SetNestedMap(u.Object, status, "status"); err != nil {
		return err
	}
	err := a.update(ctx, kind, u)
	switch {
	case apierrors.IsConflict(err): // another one was first
		return nil
	case err != nil && a.Old:
		return a.fail(ctx, kind, u, err)
	}
	return err
}

// fail a load, as Velero 1.16 does whatever the error is.
func (a *StandInAgent) fail(ctx context.Context, kind string, u *unstructured.Unstructured, why error) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Failed", "message": why.Error()}})
	if err == nil {
		_, err = a.Client.Resource(LoadResources()[kind]).Namespace(a.Namespace).Patch(ctx, u.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "node-agent-server"})
	}
	return errors.Join(why, err)
}

// finalizer that it adds before it accepts a load; empty: none.
func (a *StandInAgent) finalizer(kind string) string {
	switch {
	case names.MoverKind(kind).Facts().HasMover:
		return names.MoverFinalizer
	case a.Old:
		return ""
	}
	return "velero.io/pod-volume-finalizer"
}

// mine: this agent takes it up, or has.
func (a *StandInAgent) mine(ctx context.Context, kind string, u *unstructured.Unstructured) bool {
	switch kind {
	case "PodVolumeBackup":
		return text(u, "spec", "node") == a.Node
	case "PodVolumeRestore":
		p, err := a.Core.CoreV1().Pods(text(u, "spec", "pod", "namespace")).Get(ctx, text(u, "spec", "pod", "name"), metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == a.Node && slices.ContainsFunc(p.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == "restore-wait" && s.State.Running != nil
		})
	}
	by := text(u, "status", "acceptedByNode")
	return by == "" || by == a.Node
}

// exposing are those that count for the limit.
func (a *StandInAgent) exposing() (n int) {
	for _, informer := range a.informers {
		for _, o := range informer.GetStore().List() {
			if u, is := o.(*unstructured.Unstructured); is && u.GetLabels()[names.ExposeLabel] == "true" {
				n++
			}
		}
	}
	return n
}

// start a load that is prepared, and move it.
func (a *StandInAgent) start(ctx context.Context, kind string, u *unstructured.Unstructured) error {
	if !a.take() {
		return errLimit
	}
	labels := u.GetLabels()
	delete(labels, names.ExposeLabel)
	u.SetLabels(labels)
	if err := unstructured.SetNestedField(u.Object, "InProgress", "status", "phase"); err != nil {
		return err
	}
	if err := a.update(ctx, kind, u); err != nil {
		a.give()
		if a.Old && names.MoverKind(kind).Facts().NodeFixed && !apierrors.IsConflict(err) { // it writes whatever the version is
			return a.fail(ctx, kind, u, err)
		}
		return errLimit // Velero tries again in 5 s, whatever it was
	}
	a.work.Go(func() {
		defer a.give()
		a.wait(ctx, a.Moves)
		a.become(ctx, kind, u.GetName(), "InProgress", "Completed")
	})
	return nil
}

func (a *StandInAgent) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running >= a.Concurrency {
		return false
	}
	a.running++
	return true
}

func (a *StandInAgent) give() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
}

// later a load becomes another phase, as its pod does what it does.
func (a *StandInAgent) later(ctx context.Context, kind, name string, after time.Duration, from, to string) {
	a.work.Go(func() {
		a.wait(ctx, after)
		a.become(ctx, kind, name, from, to)
	})
}

func (a *StandInAgent) wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// become another phase; Velero tries this until it is done.
func (a *StandInAgent) become(ctx context.Context, kind, name, from, to string) {
	for ctx.Err() == nil && a.phase(ctx, kind, name, from, to) != nil {
		a.wait(ctx, 100*time.Millisecond)
	}
}

func (a *StandInAgent) phase(ctx context.Context, kind, name, from, to string) error {
	u, err := a.Client.Resource(LoadResources()[kind]).Namespace(a.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case text(u, "status", "phase") != from:
		return nil
	}
	err = unstructured.SetNestedField(u.Object, to, "status", "phase")
	if kind != "PodVolumeBackup" { // it has its node in its spec
		err = errors.Join(err, unstructured.SetNestedField(u.Object, a.Node, "status", "node"))
	}
	return errors.Join(err, a.update(ctx, kind, u))
}

func (a *StandInAgent) update(ctx context.Context, kind string, u *unstructured.Unstructured) error {
	_, err := a.Client.Resource(LoadResources()[kind]).Namespace(a.Namespace).Update(ctx, u, metav1.UpdateOptions{FieldManager: "node-agent-server"})
	if err != nil {
		return fmt.Errorf("%s %s on %s: %w", strings.ToLower(kind), u.GetName(), a.Node, err)
	}
	return nil
}

func text(u *unstructured.Unstructured, path ...string) string {
	value, _, err := unstructured.NestedString(u.Object, path...)
	if err != nil {
		return ""
	}
	return value
}
