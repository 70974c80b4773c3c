// Package cluster runs a real Kubernetes control plane on loopback, for tests
// and for demonstrations: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, each a process of its own that can be killed, stopped, paused
// and slowed down.
//
// The programs are built once from the module e2e/tools/kube, which pins their
// versions, into the user's cache. Everything else lives in a temporary
// directory and ends with the process that started it, however that ends.
//
// There is no kubelet. A [StandIn] takes a node's place: it beats, and it starts
// the commands of the node's pods as processes of this host in real cgroups.
//
// # Usage
//
// A program calls [Start] and [Cluster.Close]. A test package hands its TestMain
// to [Main] and its tests call [Shared], or [New] for a control plane of their
// own, which they may break.
package cluster
