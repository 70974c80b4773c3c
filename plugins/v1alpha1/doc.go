// Package v1alpha1 is the wire between the agent and outer plugins: messages,
// client and server of the gRPC service evictionplugin.v1alpha1.EvictionPlugin.
//
// # Usage
//
// evictionplugin.proto is the contract; the Go files beside it are made from it
// by `make generate`. A plugin in another language needs the .proto alone.
//
// Fields that hold pods are bytes: what the Marshal method of corev1.Pod makes.
package v1alpha1

//go:generate go -C ../../e2e/tools/proto run . ../../../plugins/v1alpha1 evictionplugin.proto
