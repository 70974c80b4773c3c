package web

import (
	"maps"
	"slices"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// labelled is a value with its labels: names and values in turn.
type labelled struct {
	labels []string
	value  float64
}

// appendDataMoverLoads appends the leader's series of data mover loads; a standby
// replica has only its own counters.
func appendDataMoverLoads(b []byte, s *ControllerState) []byte {
	b = appendLabelled(b, "plimsoll_vgdp_loads", gauge, "Data mover loads that have not ended, by kind and phase.", loadPhases(s.DataMoverLoads))
	b = appendLabelled(b, "plimsoll_vgdp_held", gauge, "Held data mover loads, by reason.", loadReasons(s.DataMoverLoads))
	b = appendFamilies(b, s.DataMoverLoads, func(b []byte, r *admission.Report) []byte { return appendLabel(b, "velero", r.Namespace) }, []family[admission.Report]{
		{
			"plimsoll_vgdp_tickets_required", gauge, "1 while data mover loads need a ticket, else 0.",
			func(b []byte, r *admission.Report) []byte { return appendBool(b, r.Limited) },
		},
		{
			"plimsoll_vgdp_slots", gauge, "Data mover loads that are accepted, prepared, or have a ticket: slots of the prepare queue in use.",
			func(b []byte, r *admission.Report) []byte { return appendCount(b, uint64(r.Slots)) },
		},
		{
			"plimsoll_vgdp_prepare_limit", gauge, "Slots of the prepare queue (prepareQueueLength); 0: no limit.",
			func(b []byte, r *admission.Report) []byte { return appendCount(b, uint64(r.PrepareLimit)) },
		},
		{
			"plimsoll_vgdp_gate_problem", gauge, "1 while no decision is made about a Velero's data mover loads, its Gates cannot be written, the Gate is open although they need tickets, or the ConfigMap of its node-agents cannot be read or is invalid, else 0.",
			func(b []byte, r *admission.Report) []byte {
				return appendBool(b, r.Problem != "" || r.GateOpen != "" || r.ConfigMapError != "")
			},
		},
		{
			"plimsoll_vgdp_postponed_maintenances", gauge, "Backup repositories whose maintenance is due and postponed.",
			func(b []byte, r *admission.Report) []byte { return appendCount(b, uint64(r.MaintenanceCount)) },
		},
		{
			"plimsoll_vgdp_unknown_mover_loads", gauge, "Data mover loads that are not held although Velero's own node-agents serve them: Plimsoll does not know their data mover.",
			func(b []byte, r *admission.Report) []byte { return appendCount(b, uint64(unknownMoverLoads(r))) },
		},
	})
	b = appendLabelled(b, "plimsoll_vgdp_node_budget", gauge, "Data mover budget of a node under pressure: how many data mover loads it may run, for all Veleros together.", loadBudgets(s.DataMoverLoads))
	var bypassed []labelled
	for _, r := range s.DataMoverLoads {
		bypassed = append(bypassed, labelled{[]string{"velero", r.Namespace}, float64(s.DataMoverCounts.Bypassed[r.Namespace])})
	}
	b = appendLabelled(b, "plimsoll_vgdp_gate_bypassed_total", counter, "Data mover loads accepted without the ticket that they needed.", bypassed)
	b = appendLabelled(b, "plimsoll_vgdp_overdue_total", counter, "Overdue data mover loads: tickets given in spite of pressure.", []labelled{{nil, float64(s.DataMoverCounts.Overdue)}})
	b = appendLoadWaits(b, s.DataMoverCounts.Waits)
	return appendCounted(b, loadWrites(s.DataMoverCounts), "result", family[reasonCount]{
		"plimsoll_vgdp_writes_total", counter, "Writes of data mover loads by purpose; conflict: another client wrote first, failed: the API server did not accept the write.", appendCounter,
	})
}

func unknownMoverLoads(r *admission.Report) (n int) {
	for _, m := range r.OtherMovers {
		n += m.Served
	}
	return n
}

// appendLabelled appends one family; nothing without values.
func appendLabelled(b []byte, name, kind, help string, values []labelled) []byte {
	if len(values) == 0 {
		return b
	}
	b = appendHeader(b, name, kind, help)
	for _, v := range values {
		b = append(appendAll(append(b, name...), v.labels), ' ')
		b = append(appendFloat(b, v.value), '\n')
	}
	return b
}

// appendAll appends the labels; nothing for none.
func appendAll(b []byte, labels []string) []byte {
	open := byte('{')
	for i := 0; i < len(labels); i += 2 {
		b = appendPair(append(b, open), labels[i], labels[i+1])
		open = ','
	}
	if open == ',' {
		b = append(b, '}')
	}
	return b
}

func loadPhases(list []admission.Report) (values []labelled) {
	for _, r := range list {
		for _, kind := range admission.Kinds() {
			for _, phase := range []vgdp.Phase{vgdp.New, vgdp.Accepted, vgdp.Prepared, vgdp.InProgress, vgdp.Canceling} {
				values = append(values, labelled{[]string{"velero", r.Namespace, "kind", string(kind), "phase", string(phase)}, float64(r.Phases[kind][phase])})
			}
		}
	}
	return values
}

func loadReasons(list []admission.Report) (values []labelled) {
	for _, r := range list {
		for _, code := range vgdp.Codes() {
			values = append(values, labelled{[]string{"velero", r.Namespace, "reason", string(code)}, float64(r.Reasons[code])})
		}
	}
	return values
}

// loadBudgets of the nodes that have one. A node that several Veleros share
// appears once.
func loadBudgets(list []admission.Report) (values []labelled) {
	budgets := map[string]int{}
	for _, r := range list {
		for _, n := range r.Nodes {
			if n.Budget != nil {
				budgets[n.Name] = *n.Budget
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(budgets)) {
		values = append(values, labelled{[]string{"target_node", node}, float64(budgets[node])})
	}
	return values
}

func appendLoadWaits(b []byte, of counters.Histograms[vgdp.Kind]) []byte {
	const name = "plimsoll_vgdp_wait_seconds"
	if len(of) == 0 {
		return b
	}
	b = appendHeader(b, name, "histogram", "Time from the creation of a data mover load to its ticket, for tickets of this replica.")
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		w := of[kind]
		b = appendHistogram(b, name, admission.Buckets(), histogram{[]string{"kind", string(kind)}, w.Within, w.Count, w.Sum.Seconds()})
	}
	return b
}

// loadWrites has every kind, with 0 for those that never occurred.
func loadWrites(c admission.Counts) []reasonCount {
	all := map[string]uint64{"conflict": c.Conflicts, "failed": c.Failures}
	for _, kind := range admission.EditKinds() {
		all[string(kind)] = c.Writes[kind]
	}
	return sorted(all)
}
