package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

const (
	// beatPeriod is shorter than a kubelet's 10 s, so that short grace periods can be tested.
	beatPeriod = 2 * time.Second
	// callTime is how long one request of a StandIn may take.
	callTime = 10 * time.Second
	// retryPeriod is how soon a StandIn tries again what went wrong.
	retryPeriod = time.Second
	// mark is a cgroup without processes: the one above it is the root of a StandIn.
	mark = "plimsoll-standin"
)

// StandIn takes the place of a kubelet for one Node, as the same user and with
// the same rights as a kubelet. It keeps the Node Ready by the Node's Lease and,
// when it is not, by its condition. It gives every pod of the node the cgroup a
// kubelet with the cgroupfs driver would, below a cgroup of its own, and runs
// the command of the pod's first container in it, as a process of this host: no
// image, no namespaces, no volumes, no restart; the environment's plain values
// only. A pod without a command gets its cgroup alone; further containers are
// only said to run. When a pod is deleted, its process gets SIGTERM, and SIGKILL
// after the grace.
type StandIn struct {
	node   string
	root   string // path of its cgroup, in every hierarchy
	trees  Group
	client kubernetes.Interface
	leaves []func(*corev1.Pod) bool
	log    *slog.Logger
	file   string      // where log goes; beside it, what the pods' processes say
	open   []io.Closer // the log, and the claim on mark once root is ours

	stop context.CancelFunc
	work sync.WaitGroup // the loops
	ends sync.WaitGroup // those who wait for the end of a pod's process
	look chan struct{}  // holds one when something has changed
	pods cache.Store
	runs map[types.UID]*run // only care's goroutine uses it
}

// newStandIn as this user; file is the beginning of its log's name.
func newStandIn(as *rest.Config, node, root, file string) (*StandIn, error) {
	all, err := RootGroup("/proc/self/mounts", counters()...)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	return &StandIn{
		node: node, root: root, trees: all, client: client, file: file,
		stop: func() {}, look: make(chan struct{}, 1), runs: map[types.UID]*run{},
	}, nil
}

func (s *StandIn) start(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := until(ctx, "first heartbeat", s.beat); err != nil {
		return err
	}
	var living context.Context
	living, s.stop = context.WithCancel(context.Background())
	known := s.watchPods(living)
	s.work.Go(func() { s.beats(living) })
	s.work.Go(func() { s.care(living) })
	if !cache.WaitForCacheSync(ctx.Done(), known) {
		return fmt.Errorf("pods of the node: %w", ctx.Err())
	}
	return nil
}

// prepare the log and a root without pods.
func (s *StandIn) prepare(ctx context.Context) error {
	log, err := os.OpenFile(s.file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s.open = append(s.open, log)
	s.log = slog.New(slog.NewTextHandler(log, nil)).With("StandIn", s.node)
	for _, dir := range abandoned(filepath.Join(s.trees.Dirs()[0], "*", mark)) {
		if err := s.trees.Child(filepath.Base(filepath.Dir(dir))).Remove(ctx); err != nil {
			return err
		}
	}
	marked := s.trees.first().Child(filepath.Join(s.root, mark))
	if err := marked.Make(); err != nil {
		return err
	}
	claimed, err := claim(marked.Dirs()[0])
	if err != nil {
		return err
	}
	s.open = append(s.open, claimed)
	return s.trees.Child(filepath.Join(s.root, "kubepods")).Remove(ctx)
}

// Close ends the StandIn as a kubelet's host that is switched off: the processes
// of its pods are killed and all its cgroups are removed; the objects stay.
func (s *StandIn) Close() error {
	s.stop()
	s.work.Wait()
	var all error
	if len(s.open) == 2 { // the root is ours
		ctx, cancel := deadline.Context(context.Background(), callTime)
		defer cancel()
		all = s.trees.Child(s.root).Remove(ctx)
		s.ends.Wait()
	}
	for _, f := range s.open {
		all = errors.Join(all, f.Close())
	}
	s.open = nil
	if all != nil {
		return fmt.Errorf("StandIn for node %s: %w", s.node, all)
	}
	return nil
}

// beats keeps the node Ready.
func (s *StandIn) beats(ctx context.Context) {
	every := time.NewTicker(beatPeriod)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if err := s.beat(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("heartbeat", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *StandIn) beat(ctx context.Context) error {
	ctx, cancel := deadline.Context(ctx, callTime)
	defer cancel()
	if err := s.renew(ctx); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	// A renewed Lease does not make a node Ready that was taken for dead.
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, have := range node.Status.Conditions {
		if have.Type == corev1.NodeReady && have.Status == corev1.ConditionTrue {
			return nil
		}
	}
	ready := condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")
	patch, err := statusPatch(node.UID, corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().PatchStatus(ctx, s.node, patch)
	return err
}

func (s *StandIn) renew(ctx context.Context) error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, s.node, metav1.GetOptions{})
	now := metav1.NowMicro()
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: s.node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &s.node, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &s.node, &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// watchPods keeps s.pods up to date until ctx is done; known says when it is
// for the first time.
func (s *StandIn) watchPods(ctx context.Context) (known func() bool) {
	ours := cache.NewListWatchFromClient(
		s.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", s.node),
	)
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: ours, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.wake() },
			UpdateFunc: func(any, any) { s.wake() },
			DeleteFunc: func(any) { s.wake() },
		},
	})
	s.pods = store
	s.work.Go(func() { informer.RunWithContext(ctx) })
	return informer.HasSynced
}

// wake lets care look at the pods at once.
func (s *StandIn) wake() {
	select {
	case s.look <- struct{}{}:
	default: // it will look anyway
	}
}
