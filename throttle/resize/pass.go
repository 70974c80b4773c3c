package resize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/throttle"
)

// fieldManager of the writes.
const fieldManager = "plimsoll-agent"

// API is the API server, for the pods of one node.
type API struct {
	Core corev1client.CoreV1Interface
	Node string
	// Timeout of each call; 0: it takes as long as its Pass may.
	Timeout time.Duration
}

// Pass are the CPU limits of containers in millicores, as throttle.Files. It reads each pod
// once.
type Pass struct {
	node    string
	get     func(throttle.Container) (*corev1.Pod, error)
	patch   func(throttle.Container, []byte) (*corev1.Pod, error)
	quotas  func(namespace string) (*corev1.ResourceQuotaList, error)
	served  func() error
	record  func(body []byte) error
	pods    map[string]*corev1.Pod // by UID, as read or written
	unread  map[string]error       // by UID: why it could not be read
	refused map[throttle.Knob]throttle.Resizing
}

// recordTimeout bounds a write of the record: CPU limits are restored also where the Node
// cannot be written.
const recordTimeout = time.Second

// Pass begins one, which ends with ctx.
func (a *API) Pass(ctx context.Context) *Pass {
	options := metav1.PatchOptions{FieldManager: fieldManager}
	return &Pass{
		node: a.Node, pods: map[string]*corev1.Pod{}, unread: map[string]error{}, refused: map[throttle.Knob]throttle.Resizing{},
		get: func(c throttle.Container) (*corev1.Pod, error) {
			ctx, cancel := withTimeout(ctx, a.Timeout)
			defer cancel()
			return a.Core.Pods(c.Namespace).Get(ctx, c.Pod, metav1.GetOptions{})
		},
		patch: func(c throttle.Container, body []byte) (*corev1.Pod, error) {
			ctx, cancel := withTimeout(ctx, a.Timeout)
			defer cancel()
			return a.Core.Pods(c.Namespace).Patch(ctx, c.Pod, types.StrategicMergePatchType, body, options, "resize")
		},
		quotas: func(namespace string) (*corev1.ResourceQuotaList, error) {
			ctx, cancel := withTimeout(ctx, a.Timeout)
			defer cancel()
			return a.Core.ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
		},
		served: sync.OnceValue(func() error {
			ctx, cancel := withTimeout(ctx, a.Timeout)
			defer cancel()
			return Served(ctx, a.Core.RESTClient())
		}),
		record: func(body []byte) error {
			ctx, cancel := withTimeout(ctx, recordTimeout)
			defer cancel()
			_, err := a.Core.Nodes().Patch(ctx, a.Node, types.MergePatchType, body, options)
			return err
		},
	}
}

// withTimeout is a context that ends after a timeout; 0: with ctx alone.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// ErrNotServed says that the API server has no pods/resize.
var ErrNotServed = errors.New("the API server does not serve pods/resize (Kubernetes 1.33)")

// Served returns nil where the API server serves pods/resize.
func Served(ctx context.Context, core rest.Interface) error {
	var list metav1.APIResourceList
	if err := core.Get().AbsPath("/api/v1").MaxRetries(0).Do(ctx).Into(&list); err != nil {
		return fmt.Errorf("ask for the API server's resources: %w", err)
	}
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" }) {
		return ErrNotServed
	}
	return nil
}

// Exempt is why the CPU limits of a pod are not resized; empty: they may be.
func (p *Pass) Exempt(of throttle.Container) string {
	if err := p.served(); err != nil {
		return bounded(err.Error())
	}
	pod, err := p.pod(of)
	if err != nil {
		return "its pod cannot be read: " + bounded(err.Error())
	}
	if why := exempt(pod); why != "" {
		return why
	}
	return p.quota(of.Namespace)
}

// quota is why a quota of its namespace forbids a resize: what is taken back from a quota
// another pod may take, and then the API server refuses to restore it.
func (p *Pass) quota(namespace string) string {
	list, err := p.quotas(namespace)
	if err != nil {
		return "the quotas of its namespace cannot be read: " + bounded(err.Error())
	}
	for i := range list.Items {
		if _, counts := list.Items[i].Spec.Hard[corev1.ResourceLimitsCPU]; counts {
			return "ResourceQuota " + list.Items[i].Name + " counts CPU limits"
		}
	}
	return ""
}

// Knobs are the CPU limits of a pod.
func (p *Pass) Knobs(cgroup string, of throttle.Container) (list []throttle.Knob, err error) {
	pod, err := p.pod(of)
	if err != nil {
		return nil, err
	}
	for _, m := range members(pod) {
		of.Name = m.Name
		list = append(list, throttle.Knob{Cgroup: cgroup, Name: throttle.Resize, Container: of})
	}
	return list, nil
}

// maxReads is how many pods are read at once.
const maxReads = 10

// Read reads the pods of these limits. It reads several at once: one after the other would take all
// the time of a pass where the API server is slow.
func (p *Pass) Read(limits []throttle.Limit) {
	list := map[string]throttle.Container{}
	for i := range limits {
		list[limits[i].Container.UID] = limits[i].Container
	}
	var (
		mu    sync.Mutex // guards the maps of the Pass
		all   sync.WaitGroup
		slots = make(chan struct{}, maxReads)
	)
	for _, c := range list {
		slots <- struct{}{}
		all.Go(func() {
			pod, err := p.read(c)
			mu.Lock()
			defer mu.Unlock()
			p.keep(c.UID, pod, err)
			<-slots
		})
	}
	all.Wait()
}

// Unread tells whether the pod of a container could not be read.
func (p *Pass) Unread(of throttle.Container) bool { return p.unread[of.UID] != nil }

func (p *Pass) keep(uid string, pod *corev1.Pod, err error) {
	if err != nil {
		p.unread[uid] = err
		return
	}
	p.pods[uid] = pod
}

// pod returns a pod, which is read once, whether or not that succeeds.
func (p *Pass) pod(of throttle.Container) (*corev1.Pod, error) {
	if p.pods[of.UID] == nil && p.unread[of.UID] == nil {
		pod, err := p.read(of)
		p.keep(of.UID, pod, err)
	}
	return p.pods[of.UID], p.unread[of.UID]
}

// read a pod. One with another UID, of another node, or that has ended is gone.
func (p *Pass) read(of throttle.Container) (*corev1.Pod, error) {
	pod, err := p.get(of)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", throttle.ErrGone, err)
	case err != nil:
		return nil, err
	case string(pod.UID) != of.UID, pod.Spec.NodeName != p.node, pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return nil, throttle.ErrGone
	}
	return pod, nil
}

func (p *Pass) container(k throttle.Knob) (*corev1.Pod, member, error) {
	pod, err := p.pod(k.Container)
	if err != nil {
		return nil, member{}, err
	}
	m, there := find(pod, k.Container.Name)
	if !there {
		return nil, member{}, throttle.ErrGone
	}
	return pod, m, nil
}

// Get implements throttle.Files.
func (p *Pass) Get(k throttle.Knob) (uint64, error) {
	_, m, err := p.container(k)
	if err != nil {
		return 0, err
	}
	return uint64(max(0, m.Resources.Limits.Cpu().MilliValue())), nil
}

// Effective implements throttle.Files.
func (p *Pass) Effective(k throttle.Knob, cores float64) (uint64, error) {
	_, m, err := p.container(k)
	if err != nil {
		return 0, err
	}
	return m.atLeast(cores * 1000), nil
}

// errNoLimit: a limit that is not there any more cannot be ours.
var errNoLimit = errors.New("a CPU limit cannot be removed")

// Set implements throttle.Files. It fails where the pod has changed since it was read.
func (p *Pass) Set(k throttle.Knob, millicores uint64) error {
	pod, m, err := p.container(k)
	if err != nil {
		return err
	}
	if millicores == 0 {
		return errNoLimit
	}
	body, err := resizePatch(pod, m, millicores)
	if err != nil {
		return err
	}
	changed, err := p.patch(k.Container, body)
	if err != nil {
		delete(p.pods, k.Container.UID)
		p.refused[k] = throttle.Resizing{Why: "the API server refuses the resize: " + bounded(err.Error()), Refused: isRefusal(err)}
		return err
	}
	p.pods[k.Container.UID] = changed
	return nil
}

// resizePatch is the strategic merge patch of one CPU limit.
func resizePatch(pod *corev1.Pod, m member, millicores uint64) ([]byte, error) {
	list := "containers"
	if m.sidecar {
		list = "initContainers"
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec": map[string]any{list: []any{map[string]any{
			"name": m.Name, "resources": map[string]any{"limits": map[string]any{"cpu": resource.NewMilliQuantity(int64(millicores), resource.DecimalSI)}},
		}}},
	})
}

// isRefusal tells whether the same request will fail again.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// Record saves the limits, as throttle.Journal.Save.
func (p *Pass) Record(limits []throttle.Limit) error {
	body, err := recordPatch(limits)
	if err != nil {
		return err
	}
	return p.record(body)
}

// Resizing are those of the limits that were written before this pass and are not in effect.
func (p *Pass) Resizing(limits []throttle.Limit) map[throttle.Target]throttle.Resizing {
	list := map[throttle.Target]throttle.Resizing{}
	for i := range limits {
		l, t := &limits[i], throttle.Target{Cgroup: limits[i].Cgroup}
		pod, m, err := p.container(l.Knob)
		if err != nil || l.Foreign || !l.Written {
			continue
		}
		if r := m.resizing(pod, l); r.Why != "" && !list[t].Refused {
			list[t] = r
		}
	}
	return list
}

// Refused are the writes of this pass that failed.
func (p *Pass) Refused() map[throttle.Target]throttle.Resizing {
	list := map[throttle.Target]throttle.Resizing{}
	for k, r := range p.refused {
		if t := (throttle.Target{Cgroup: k.Cgroup}); !list[t].Refused {
			list[t] = r
		}
	}
	return list
}
