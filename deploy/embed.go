// Package deploy has the manifests that install Plimsoll, for kubectl and for
// programs that apply them.
package deploy

import _ "embed"

// RBAC is rbac.yaml: the namespace of Plimsoll, the agent's ServiceAccount, and
// the rights it has, as a stream of YAML documents.
//
//go:embed rbac.yaml
var RBAC []byte

// RBACEvictDirect is rbac-evict-direct.yaml: the agent's additional
// rights where it evicts itself and not through the controller.
//
//go:embed rbac-evict-direct.yaml
var RBACEvictDirect []byte

// RBACEvictRequest is rbac-evict-request.yaml: the agent's additional rights where
// it makes EvictionRequests, and to withdraw them.
//
//go:embed rbac-evict-request.yaml
var RBACEvictRequest []byte

// RBACResize is rbac-resize.yaml: the agent's additional rights where it throttles
// the CPU of pods by in-place resize.
//
//go:embed rbac-resize.yaml
var RBACResize []byte

// RBACKatalyst is rbac-katalyst.yaml: the agent's additional rights where
// Katalyst's CustomNodeResources tell what is reclaimed.
//
//go:embed rbac-katalyst.yaml
var RBACKatalyst []byte

// RBACMetrics is rbac-metrics.yaml: the rights of agents and controllers to
// review tokens, and the role of scrapers.
//
//go:embed rbac-metrics.yaml
var RBACMetrics []byte

// RBACViewer is rbac-viewer.yaml: the role of people who ask agents and controller
// through the API server.
//
//go:embed rbac-viewer.yaml
var RBACViewer []byte

// ControllerRBAC is rbac-controller.yaml: the controller's ServiceAccount and
// the rights it has. The namespace is RBAC's.
//
//go:embed rbac-controller.yaml
var ControllerRBAC []byte

// ReleaseRBAC is rbac-release.yaml: the rights of plimsoll release, in addition
// to RBAC and ControllerRBAC.
//
//go:embed rbac-release.yaml
var ReleaseRBAC []byte

// ReleaseRBACResize is rbac-release-resize.yaml: the additional rights of plimsoll
// release where agents have RBACResize.
//
//go:embed rbac-release-resize.yaml
var ReleaseRBACResize []byte

// Heartbeats is heartbeats.yaml: a priority level of the API server for the
// agents' Leases.
//
//go:embed heartbeats.yaml
var Heartbeats []byte

// Identity is identity.yaml: the admission policies that bind an agent to its
// node.
//
//go:embed identity.yaml
var Identity []byte

// RBACLeaseNode is rbac-lease-node.yaml: the agent's additional rights where
// it renews the Node's own Lease.
//
//go:embed rbac-lease-node.yaml
var RBACLeaseNode []byte

// GateCRD is gate-crd.yaml: the kind Gate.
//
//go:embed gate-crd.yaml
var GateCRD []byte

// Gate is gate.yaml: the admission policies that hold data mover loads.
//
//go:embed gate.yaml
var Gate []byte

// GateMutating is gate-mutating.yaml: the admission policies that release
// hidden loads and steer movers' pods.
//
//go:embed gate-mutating.yaml
var GateMutating []byte

// GateMutatingV1beta1 is gate-mutating-v1beta1.yaml: the same for an older API.
//
//go:embed gate-mutating-v1beta1.yaml
var GateMutatingV1beta1 []byte

// ReleaseHiddenRBAC is rbac-release-hidden.yaml: the rights of the CronJob that
// releases hidden loads where the cluster has no policy for it.
//
//go:embed rbac-release-hidden.yaml
var ReleaseHiddenRBAC []byte

// GateRemove is gate-remove.yaml: with it every write to a hidden load
// releases it.
//
//go:embed gate-remove.yaml
var GateRemove []byte
