// Package abilities tells what the Velero of a cluster can do, by what its
// CustomResourceDefinitions allow: the phases of Backups and of data mover loads.
//
// # Usage
//
//	r := &abilities.Reader{Definitions: dynamic.Resource(abilities.Resource())}
//	can := r.Now(ctx)
//	if !can.Accepts(names.PodVolumeBackup) { … }
//
// # Who writes it
//
// Only administrators write CustomResourceDefinitions, so no tenant can change what is
// read here. They are of the whole cluster: where several Veleros are installed they are
// those of the newest one, and an older one can do less than is read here. Nothing that
// could end a load may depend on them alone. An image's tag would be no better: it is what
// its author called it.
//
// # Concurrency
//
// Velero is a value. A Reader may be used by any goroutine.
package abilities

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/names"
)

// Velero is what the Velero of a cluster can do. What could not be read counts as in the
// newest Velero; so does the zero value.
type Velero struct {
	// Unread is why nothing is known; empty: it was read.
	Unread string
	// direct are the kinds that are started at once, without being accepted. noQueue:
	// Backups cannot be queued.
	direct  map[names.MoverKind]bool
	noQueue bool
}

// Accepts tells whether a kind has the phase Accepted, in which Velero prepares it. Other
// loads are started at once.
func (v Velero) Accepts(kind names.MoverKind) bool { return !v.direct[kind] }

// Queues tells whether Backups have the phase Queued.
func (v Velero) Queues() bool { return !v.noQueue }

// backups is the resource of Backups.
const backups = "backups"

// phaseQueued and phaseAccepted are the phases that tell the versions apart.
const (
	phaseQueued   = "Queued"
	phaseAccepted = "Accepted"
)

// Definitions are the names of the CustomResourceDefinitions that are read.
func Definitions() []string {
	list := []string{backups + "." + names.VeleroGroup}
	for _, f := range names.MoverKinds() {
		list = append(list, f.Resource+"."+names.VeleroGroup)
	}
	return list
}

// Of is what a Velero with these CustomResourceDefinitions can do. One that is missing,
// or lists no phases, says nothing.
func Of(definitions []*unstructured.Unstructured) Velero {
	v := Velero{direct: map[names.MoverKind]bool{}}
	for _, d := range definitions {
		resource, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
		list := phases(d)
		if len(list) == 0 {
			continue
		}
		if resource == backups {
			v.noQueue = !slices.Contains(list, phaseQueued)
		}
		for _, f := range names.MoverKinds() {
			if f.Resource == resource && !slices.Contains(list, phaseAccepted) {
				v.direct[f.Kind] = true
			}
		}
	}
	return v
}

// phases that the stored version of a kind allows; none: it does not say.
func phases(d *unstructured.Unstructured) []string {
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, one := range versions {
		version, is := one.(map[string]any)
		if stored, _, _ := unstructured.NestedBool(version, "storage"); !is || !stored {
			continue
		}
		list, _, _ := unstructured.NestedStringSlice(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "phase", "enum")
		return list
	}
	return nil
}

// Resource of CustomResourceDefinitions.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}
