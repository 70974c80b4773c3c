package admission

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// OtherMover is a data mover that is none of Velero's own, as far as this program knows:
// its loads are neither held nor counted.
type OtherMover struct {
	Name string `json:"dataMover"`
	// Loads of it that have not ended. Served are those of them that Velero's own
	// node-agents accepted: a newer Velero has a data mover that this program does not know.
	Loads  int `json:"loads"`
	Served int `json:"servedByVelero,omitempty"`
}

// Users who may create a Backup choose the name of its data mover, so its length and how
// many are told apart are bounded.
const (
	maxOtherMovers = 8
	maxMoverName   = 63
	maxTold        = 64 // in one term
)

// otherMovers of the loads of a Velero that have not ended, by name, and a load of each
// that Velero's own node-agents accepted. All that are too many have no name.
//
// Whether Velero's node-agents serve a load is told by its finalizer and by the node-agent
// that accepted it. Who may write either may as well write loads of their own: a lie costs
// a warning.
func otherMovers(objects []*Object, accepted func(*Object) bool) (list []OtherMover, example map[string]*Object) {
	all := map[string]*OtherMover{}
	example = map[string]*Object{}
	for _, o := range objects {
		if o.Load.ByVelero() || ended(&o.Load) {
			continue
		}
		name := o.Load.Mover[:min(len(o.Load.Mover), maxMoverName)]
		if all[name] == nil && len(all) >= maxOtherMovers {
			name = ""
		}
		if all[name] == nil {
			all[name] = &OtherMover{Name: name}
		}
		all[name].Loads++
		if accepted(o) {
			all[name].Served++
			example[name] = o
		}
	}
	for _, m := range all {
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b OtherMover) int { return cmp.Compare(a.Name, b.Name) })
	return list, example
}

// acceptedByNodeAgent tells whether a node-agent of a load's Velero accepted it.
func acceptedByNodeAgent(topology *vgdp.Topology) func(*Object) bool {
	return func(o *Object) bool {
		return o.Marked && o.AcceptedBy != "" && topology.HasAgent(o.AcceptedBy, o.Namespace)
	}
}
