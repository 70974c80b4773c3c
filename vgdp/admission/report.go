package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// Report describes the data mover loads of one Velero.
type Report struct {
	// Namespace of the Velero.
	Namespace string `json:"namespace"`
	// Limited: loads need a ticket. Hidden counts those that node-agents do not see.
	// Epoch of the tickets; absent: none is claimed.
	Limited bool  `json:"limited"`
	Hidden  int   `json:"hidden"`
	Epoch   int64 `json:"epoch,omitempty"`
	// PrepareLimit of loads that are Accepted, Prepared or have a ticket; absent:
	// none. Slots is how many are taken.
	PrepareLimit int `json:"prepareQueueLength,omitempty"`
	Slots        int `json:"slots"`
	// Phases counts the loads that have not ended, by kind and phase: those of Velero's own
	// data movers.
	Phases map[vgdp.Kind]map[vgdp.Phase]int `json:"phases"`
	// Reasons counts the waiting loads by reason.
	Reasons map[vgdp.Code]int `json:"reasons"`
	// Waiting in order, the first of them.
	Waiting []WaitingLoad `json:"waiting"`
	// ConfigMap of the node-agents, which of its settings Velero ignores, why its last
	// valid content is in force (it cannot be read, or is invalid), and how many
	// node-agents started before it changed.
	ConfigMap      string   `json:"nodeAgentConfigMap,omitempty"`
	Hints          []string `json:"hints,omitempty"`
	ConfigMapError string   `json:"configMapError,omitempty"`
	Drift          int      `json:"nodeAgentsWithOlderConfiguration,omitempty"`
	// StartedAtOnce are the kinds that its node-agents start without accepting them: they
	// are not held. OtherMovers are data movers that are none of Velero's own.
	StartedAtOnce []vgdp.Kind  `json:"startedAtOnce,omitempty"`
	OtherMovers   []OtherMover `json:"otherDataMovers,omitempty"`
	// Maintenances of its backup repositories that are due and postponed, in the order of
	// the repositories, and how many there are. MaintenanceProblem is why none can be
	// postponed; absent: they can.
	Maintenances       []vgdp.PostponedMaintenance `json:"postponedMaintenances,omitempty"`
	MaintenanceCount   int                         `json:"postponedMaintenanceCount,omitempty"`
	MaintenanceProblem string                      `json:"maintenanceProblem,omitempty"`
	// Problem is why nothing is decided about it, or why its Gates cannot be read or written:
	// it gets no tickets then, and its loads are not held once the Gate is not fresh; absent:
	// no problem.
	Problem string `json:"problem,omitempty"`
	// GateOpen is why its loads start without the tickets that they need; absent: they do
	// not, or it is unknown.
	GateOpen string `json:"gateOpen,omitempty"`
	// NotHidden is why node-agents still see the loads that wait, although these are many;
	// absent: they are hidden, or few.
	NotHidden string `json:"notHidden,omitempty"`
	// Nodes under pressure with a node-agent of this Velero.
	Nodes []Node `json:"pressedNodes"`
}

// Node under pressure.
type Node struct {
	Name string `json:"name"`
	// Budget of data mover loads of all Veleros; absent: as many as are configured.
	Budget    *int      `json:"budget,omitempty"`
	HoldUntil time.Time `json:"holdUntil,omitzero"`
	Why       string    `json:"reason"`
}

// WaitingLoad of a waiting load.
type WaitingLoad struct {
	Kind        vgdp.Kind  `json:"kind"`
	Name        string     `json:"name"`
	Phase       vgdp.Phase `json:"phase"`
	Created     time.Time  `json:"created"`
	WaitSeconds float64    `json:"waitSeconds"`
	Backup      string     `json:"backup,omitempty"`
	Reason      vgdp.Code  `json:"reason"`
	BlockedBy   string     `json:"blockedBy,omitempty"`
	Why         string     `json:"why"`
	Hidden      bool       `json:"hidden,omitempty"`
}

// maxWaiting bounds the waiting loads in a Report; Reasons counts all.
const maxWaiting = 1000

// reports are what was decided about the Veleros, and the problems of the others; of one that
// the configuration does not name, while anything of it is held.
func reports(in *vgdp.Input, d *vgdp.Decision, veleros map[string]*velero, failed map[string]string) []Report {
	list := NewReports(in, d)
	for i := range list {
		p := &list[i]
		v := veleros[p.Namespace]
		p.ConfigMap, p.Drift, p.GateOpen = v.config.name, v.config.drift, v.gateOpen
		p.StartedAtOnce, p.OtherMovers = v.startedAtOnce(), v.others
		p.NotHidden, p.Problem = v.notHidden(), failed[p.Namespace]
		for _, h := range v.config.hints {
			p.Hints = append(p.Hints, h.String())
		}
		if err := cmp.Or(v.config.unread, v.config.invalid); err != nil {
			p.ConfigMapError = err.Error()
		}
	}
	for _, v := range veleros {
		if _, decided := in.Veleros[v.Namespace]; !decided {
			list = append(list, Report{Namespace: v.Namespace, Limited: v.desired.limited, Epoch: v.keeper.epoch, Problem: cmp.Or(failed[v.Namespace], "its data mover loads are not listed yet")})
		}
	}
	list = slices.DeleteFunc(list, func(p Report) bool { return veleros[p.Namespace].unnamed && p.Hidden == 0 && p.Problem == "" })
	slices.SortFunc(list, func(a, b Report) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return list
}

// NewReports of a decision, by namespace.
func NewReports(in *vgdp.Input, d *vgdp.Decision) []Report {
	all := map[string]*Report{}
	for namespace := range in.Veleros {
		all[namespace] = newReport(in, d, namespace)
	}
	for i := range in.Loads {
		l := &in.Loads[i]
		p := all[l.Namespace]
		if !l.ByVelero() {
			continue
		}
		if p.count(l); l.Slot(in.Veleros[l.Namespace]) {
			p.Slots++
		}
		if l.Hidden && isNew(l) {
			p.Hidden++
		}
	}
	for i := range d.Waiting {
		w := &d.Waiting[i]
		p := all[w.Namespace]
		p.Reasons[w.Wait.Code]++
		if len(p.Waiting) < maxWaiting {
			p.Waiting = append(p.Waiting, NewWaitingLoad(w, in.Time))
		}
	}
	var list []Report
	for _, p := range all {
		list = append(list, *p)
	}
	return list
}

// newReport is a report without its loads.
func newReport(in *vgdp.Input, d *vgdp.Decision, namespace string) *Report {
	v := in.Veleros[namespace]
	p := &Report{
		Namespace: namespace, Limited: d.Limited[namespace], Epoch: v.Epoch, PrepareLimit: v.PrepareLimit,
		Phases: map[vgdp.Kind]map[vgdp.Phase]int{}, Reasons: map[vgdp.Code]int{}, Waiting: []WaitingLoad{}, Nodes: []Node{},
	}
	for name, of := range in.Pressure {
		if in.Topology.HasAgent(name, namespace) {
			p.Nodes = append(p.Nodes, Node{Name: name, Budget: of.Budget, HoldUntil: of.HoldUntil, Why: of.Why})
		}
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

func (p *Report) count(l *vgdp.Load) {
	phase := cmp.Or(l.Phase, vgdp.New)
	if p.Phases[l.Kind] == nil {
		p.Phases[l.Kind] = map[vgdp.Phase]int{}
	}
	p.Phases[l.Kind][phase]++
}

// NewWaitingLoad describes a waiting load.
func NewWaitingLoad(w *vgdp.Waiting, now time.Time) WaitingLoad {
	return WaitingLoad{
		Kind: w.Kind, Name: w.Load.Name, Phase: cmp.Or(w.Phase, vgdp.New), Created: w.Created, WaitSeconds: now.Sub(w.Created).Seconds(),
		Backup: w.Backup, Reason: w.Wait.Code, BlockedBy: w.Wait.BlockedBy(), Why: w.Wait.Sentence(), Hidden: w.Hidden,
	}
}
