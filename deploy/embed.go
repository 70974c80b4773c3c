// Package deploy holds the manifests that install Plimsoll, for whoever
// applies them by hand and for the programs that do it themselves.
package deploy

import _ "embed"

// RBAC is rbac.yaml: the namespace of Plimsoll, the agent's ServiceAccount, and
// the rights it has, as a stream of YAML documents.
//
//go:embed rbac.yaml
var RBAC []byte
