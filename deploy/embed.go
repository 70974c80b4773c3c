// Package deploy holds the manifests that install Plimsoll, for whoever
// applies them by hand and for the programs that do it themselves.
package deploy

import _ "embed"

// RBAC is rbac.yaml: the namespace of Plimsoll, the agent's ServiceAccount, and
// the rights it has, as a stream of YAML documents.
//
//go:embed rbac.yaml
var RBAC []byte

// RBACEvictDirect is rbac-evict-direct.yaml: what the agent needs beside RBAC
// where it evicts itself and not through the controller.
//
//go:embed rbac-evict-direct.yaml
var RBACEvictDirect []byte

// RBACKatalyst is rbac-katalyst.yaml: what the agent needs beside RBAC where
// Katalyst's CustomNodeResources say what is lent to pods of low QoS.
//
//go:embed rbac-katalyst.yaml
var RBACKatalyst []byte

// RBACMetrics is rbac-metrics.yaml: what agents and controllers need to ask the
// API server about tokens, and the role of those who scrape them.
//
//go:embed rbac-metrics.yaml
var RBACMetrics []byte

// ControllerRBAC is rbac-controller.yaml: the controller's ServiceAccount and
// the rights it has. The namespace is RBAC's.
//
//go:embed rbac-controller.yaml
var ControllerRBAC []byte

// ReleaseRBAC is rbac-release.yaml: what plimsoll release needs, beside RBAC and
// ControllerRBAC.
//
//go:embed rbac-release.yaml
var ReleaseRBAC []byte

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

// RBACLeaseNode is rbac-lease-node.yaml: what the agent needs beside RBAC where
// it renews the Node's own Lease.
//
//go:embed rbac-lease-node.yaml
var RBACLeaseNode []byte

// GateCRD is gate-crd.yaml: the kind of object that says which of Velero's loads
// are held.
//
//go:embed gate-crd.yaml
var GateCRD []byte

// Gate is gate.yaml: the admission policies that hold loads.
//
//go:embed gate.yaml
var Gate []byte

// GateMutating is gate-mutating.yaml: the admission policies that hide loads
// while they are held, hand them back, and steer their pods.
//
//go:embed gate-mutating.yaml
var GateMutating []byte

// GateRemove is gate-remove.yaml: after it every write to a hidden load hands it
// back.
//
//go:embed gate-remove.yaml
var GateRemove []byte
