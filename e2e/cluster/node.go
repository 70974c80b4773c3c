package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// NodeLabel is the Node's name on every Node of a cluster: who asks for it comes
// to that Node alone, and is not bound to it as one is who names its host.
const NodeLabel = "plimsoll.test/node"

// AddNode makes a Node as a kubelet registers one: Ready, with room for 110
// pods, 4 CPUs and 16 GiB, in zone "zone-a" unless labels say otherwise. It does
// not stay Ready by itself: [Cluster.StandIn].
func (c *Cluster) AddNode(ctx context.Context, name string, labels map[string]string) (*corev1.Node, error) {
	all := map[string]string{
		corev1.LabelHostname: name, NodeLabel: name, corev1.LabelTopologyZone: "zone-a",
		corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(all, labels)
	room := corev1.ResourceList{
		corev1.ResourcePods:   resource.MustParse("110"),
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: c.host}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
		},
	}
	made, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add node %s: %w", name, err)
	}
	return made, nil
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: "set by a stand-in for the kubelet",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// StandIn starts one for a Node that exists. Its cgroups are made below root,
// such as "/plimsoll-e2e-4711", in every hierarchy that counts something, and no
// other StandIn may have the same. What StandIns of killed processes have left
// there, or below another root that is not nested, is ended and removed first. It
// needs root's rights. A pod for which one of leaves is true is left alone: the test
// or another kubelet runs it.
func (c *Cluster) StandIn(ctx context.Context, node, root string, leaves ...func(*corev1.Pod) bool) (*StandIn, error) {
	kubelet, err := c.User("system:node:"+node, "system:nodes")
	if err != nil {
		return nil, fmt.Errorf("StandIn for node %s: %w", node, err)
	}
	s, err := newStandIn(kubelet, node, root, c.file("standin-"+node))
	if err != nil {
		return nil, fmt.Errorf("StandIn for node %s: %w", node, err)
	}
	s.leaves = leaves
	ctx, cancel := deadline.Context(ctx, startTime)
	defer cancel()
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("StandIn for node %s: %w", node, err), s.Close())
	}
	return s, nil
}
