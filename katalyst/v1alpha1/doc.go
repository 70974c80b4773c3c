// Package v1alpha1 is the wire between the agent and outer plugins: messages,
// client and server of the gRPC service evictionplugin.v1alpha1.EvictionPlugin.
//
// # Usage
//
// evictionplugin.proto is the contract; `make generate` generates the Go files
// beside it. A plugin in another language needs only the .proto.
//
// Fields that hold pods are bytes: the result of corev1.Pod's Marshal method.
package v1alpha1

//go:generate go -C ../../e2e/tools/proto run . ../../../katalyst/v1alpha1 evictionplugin.proto

// PluginType and Version are what a plugin gives at its registration: the
// kubelet's plugin registration knows many types.
const (
	PluginType = "EvictionPlugin"
	Version    = "v1alpha1"
)
