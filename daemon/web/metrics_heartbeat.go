package web

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// appendHeartbeat appends the renewals of the agent's Lease; nothing without
// one.
func appendHeartbeat(b []byte, h *view.Heartbeat) []byte {
	if h == nil {
		return b
	}
	b = appendCounted(b, renewals(h), "result", family[reasonCount]{
		"plimsoll_lease_renewals_total", counter, "Attempts to renew the agent's Lease, by result.", appendCounter,
	})
	b = appendFamilies(b, []view.Heartbeat{*h}, noLabels, []family[view.Heartbeat]{
		{
			"plimsoll_lease_last_renewal_timestamp_seconds", gauge, "Time of the last acknowledged renewal of the Lease; absent before the first.",
			func(b []byte, h *view.Heartbeat) []byte {
				if h.Renewed.IsZero() {
					return b
				}
				return appendFloat(b, float64(h.Renewed.UnixMicro())/1e6)
			},
		},
		{
			"plimsoll_lease_dials_total", counter, "Attempts to connect to the API server for the heartbeat.",
			func(b []byte, h *view.Heartbeat) []byte { return appendCount(b, h.Dials) },
		},
	})
	return appendRenewDurations(b, h.RenewDurations)
}

// appendNodeLease appends the renewals of the Node's own Lease; nothing where a
// kubelet renews it.
func appendNodeLease(b []byte, h *view.Heartbeat) []byte {
	if h == nil {
		return b
	}
	return appendCounted(b, renewals(h), "result", family[reasonCount]{
		"plimsoll_node_lease_renewals_total", counter, "Attempts to renew the Node's own Lease (lease.target: node), by result.", appendCounter,
	})
}

func renewals(h *view.Heartbeat) []reasonCount {
	all := map[string]uint64{}
	for _, o := range lease.Outcomes() {
		all[string(o)] = h.Outcomes[o]
	}
	return sorted(all)
}

func appendRenewDurations(b []byte, d view.Durations) []byte {
	const name = "plimsoll_lease_renew_duration_seconds"
	b = appendHeader(b, name, "histogram", "How long successful renewals of the Lease took.")
	bounds := view.RenewBuckets()
	return appendHistogram(b, name, bounds[:], histogram{nil, d.Within[:], d.Count, d.Seconds})
}
