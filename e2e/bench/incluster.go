package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// clusterNode is the Node that the agent belongs to.
const clusterNode = "bench"

// historyFilled is how long the agent's history grows, and a little more: its
// memory is judged after that.
const historyFilled = 130 * time.Second

// clusterConfig is added to the agent's: a dry run would ask the API server,
// and nobody is to be evicted for what this host does meanwhile.
const clusterConfig = `kubernetes: {kubeconfig: %q, node: %q}
eviction: {dryRun: true}
`

// inCluster measures the agent as a member of a real control plane, with as
// many pods bound to its Node as the peers are measured at.
func inCluster(ctx context.Context, o *options) (rows []Row, err error) {
	o.say("a control plane with %d pods", clusterPods(o.sizes))
	c, err := cluster.Start(ctx, cluster.Options{Without: []string{cluster.Scheduler, cluster.ControllerManager}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Apply(ctx, deploy.RBAC); err != nil {
		return nil, err
	}
	if _, err := c.AddNode(ctx, clusterNode, nil); err != nil {
		return nil, err
	}
	root := fmt.Sprintf("/%s%d-cluster", ownPrefix, os.Getpid())
	kubelet, err := c.StandIn(ctx, clusterNode, root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kubelet.Close()) }()
	if err := clusterPodsRun(ctx, o, c); err != nil {
		return nil, err
	}
	w, err := newWorld(o.load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := (cluster.Group{Path: root, Hierarchies: w.own.Hierarchies}).Signal(syscall.SIGUSR1); err != nil {
		return nil, err
	}
	return member(ctx, o, w, c, root)
}

func clusterPods(sizes []int) int { return min(peersAt, sizes[len(sizes)-1]) }

// clusterPodsRun makes the pods and waits until all run.
func clusterPodsRun(ctx context.Context, o *options, c *cluster.Cluster) error {
	pods := c.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for i := range clusterPods(o.sizes) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod-" + strconv.Itoa(i), Labels: map[string]string{"app": "bench"}},
			Spec: corev1.PodSpec{
				NodeName:   clusterNode,
				Containers: []corev1.Container{{Name: "load", Image: "none", Command: []string{o.load}, Env: []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "1"}}}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return until(ctx, "the pods run", func() error {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		running := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running < clusterPods(o.sizes) {
			return fmt.Errorf("%d of %d do", running, clusterPods(o.sizes))
		}
		return nil
	})
}

// member measures the agent until its history is full.
func member(ctx context.Context, o *options, w *world, c *cluster.Cluster, root string) (rows []Row, err error) {
	kubeconfig, err := c.ServiceAccount(ctx, "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: clusterNode})
	if err != nil {
		return nil, err
	}
	a, err := startAgent(ctx, o, w, root, fmt.Sprintf(clusterConfig, kubeconfig, clusterNode))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.end()) }()
	fill := min(historyFilled, 4*o.window)
	if _, err := a.watch(ctx, a.url, fill, scrapePeriod, unseen); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the agent, cluster connected, %d pods, busy, after %s", clusterPods(o.sizes), (fill + o.window*5/3).Round(time.Second))
	rows, used, err := a.measure(ctx, what, o.window, time.Second)
	if err != nil {
		return nil, err
	}
	if limit := memoryLimit(clusterPods(o.sizes)); limit > 0 {
		rows[len(rows)-1].Goal = AtMost(float64(limit), float64(used.memory), mebibytes(limit))
	}
	return rows, nil
}
