// Package kube carries out what package evict has decided: it asks the API
// server for evictions, and writes taints, the marks on a CustomNodeResource
// and Events. It decides nothing.
package kube
