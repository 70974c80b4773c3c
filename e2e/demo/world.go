package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
)

const (
	nodeName = "demo"
	// leftMiB of memory stay available, so that this host goes on working; the
	// demonstration's rule is set so that this is already too little.
	leftMiB = 2048
	// neededMiB must be available before: the presser's part of it has to be
	// worth an eviction.
	neededMiB = 3 * leftMiB
)

func enoughMemory() error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	m, err := fs.Meminfo()
	if err != nil {
		return err
	}
	if m.MemAvailableBytes == nil || *m.MemAvailableBytes < neededMiB<<20 {
		return fmt.Errorf("this host needs %d MiB of available memory, of which %d stay available", neededMiB, leftMiB)
	}
	return nil
}

func (s *show) startCluster(ctx context.Context) (undo func() error, err error) {
	if s.cluster, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return nil, err
	}
	s.say("a Kubernetes control plane runs on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
	return s.cluster.Close, s.cluster.Apply(ctx, deploy.RBAC, deploy.RBACEvictDirect, deploy.Heartbeats, deploy.Identity)
}

func (s *show) startNode(ctx context.Context) (undo func() error, err error) {
	if _, err := s.cluster.AddNode(ctx, nodeName, nil); err != nil {
		return nil, err
	}
	if s.kubelet, err = s.cluster.StandIn(ctx, nodeName, fmt.Sprintf("/plimsoll-demo-%d", os.Getpid()), velero.IsMover); err != nil {
		return nil, err
	}
	s.say("Node %s is Ready; a STAND-IN for the kubelet runs its pods as processes of this host, in real cgroups", nodeName)
	return s.kubelet.Close, nil
}

// startPods starts the pod that presses on nothing.
func (s *show) startPods(ctx context.Context) (undo func() error, err error) {
	if err := s.deploy(ctx, "steady", "sleep", "3600"); err != nil {
		return nil, err
	}
	pod, err := s.running(ctx, "steady")
	if err != nil {
		return nil, err
	}
	s.say("pod %s runs and presses on nothing", pod.Name)
	return nil, nil
}

// press starts the pod that takes the memory. It reads a file of holes, which
// fills the page cache and makes the kernel reclaim without any disk.
func (s *show) press(ctx context.Context) (undo func() error, err error) {
	holes := filepath.Join(s.dir, "holes")
	if err := os.WriteFile(holes, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(holes, 2*leftMiB<<20); err != nil {
		return nil, err
	}
	if err := s.deploy(ctx, "presser", s.hog, "-file", holes, "-available", fmt.Sprint(leftMiB), "-window", fmt.Sprint(2*leftMiB), "-readers", "1"); err != nil {
		return nil, err
	}
	pod, err := s.running(ctx, "presser")
	if err != nil {
		return nil, err
	}
	s.say("pod %s runs and takes memory until %d MiB are left", pod.Name, leftMiB)
	return nil, nil
}

func (s *show) deploy(ctx context.Context, name string, command ...string) error {
	labels := map[string]string{"app": name}
	one := int32(1)
	_, err := s.cluster.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "none", Command: command}}, Volumes: []corev1.Volume{{Name: "data"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// running waits until the Deployment's pod runs.
func (s *show) running(ctx context.Context, app string) (pod corev1.Pod, err error) {
	return pod, s.until(ctx, "pod "+app+" runs", func() error {
		pods, err := s.pods(ctx, app)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("%d pods, none runs", len(pods))
	})
}

func (s *show) pods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := s.cluster.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// patience is how long any step may take.
const patience = 2 * time.Minute

// until waits for a condition.
func (s *show) until(ctx context.Context, what string, check func() error) error {
	ctx, cancel := deadline.Context(ctx, patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not so after %s: %s", patience, what), err)
		case <-poll.C:
		}
	}
}
