package web

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// appendDataMovers appends the series of data movers on this node; nothing where
// they are not managed.
func appendDataMovers(b []byte, s *view.State) []byte {
	if s.Cluster.DataMovers == nil {
		return b
	}
	b = appendFamilies(b, []view.DataMovers{*s.Cluster.DataMovers}, noLabels, []family[view.DataMovers]{
		{
			"plimsoll_vgdp_movers", gauge, "Velero's data movers whose pods are on this node, in protected namespaces.",
			func(b []byte, l *view.DataMovers) []byte { return appendCount(b, uint64(l.Running)) },
		},
		{
			"plimsoll_vgdp_budget", gauge, "Data mover budget: how many data mover loads the node may run; absent while only Velero's configuration limits them. Not published in a dry run.",
			func(b []byte, l *view.DataMovers) []byte {
				if l.Budget == nil {
					return b
				}
				return appendCount(b, uint64(*l.Budget))
			},
		},
		{
			"plimsoll_vgdp_hold_until_timestamp_seconds", gauge, "End of the start hold, before which no data mover load starts on this node; absent without one.",
			func(b []byte, l *view.DataMovers) []byte {
				if l.StartHoldUntil.IsZero() {
					return b
				}
				return appendFloat(b, float64(l.StartHoldUntil.UnixMicro())/1e6)
			},
		},
		{
			"plimsoll_vgdp_dry_run", gauge, "1 in a dry run: no data mover budget is published and no mover is throttled, else 0.",
			func(b []byte, l *view.DataMovers) []byte { return appendBool(b, l.DryRun) },
		},
	})
	return b
}

// appendThrottles appends the series of throttled pods.
func appendThrottles(b []byte, s *view.State) []byte {
	l := s.Cluster.Throttles
	if l == nil {
		return b
	}
	b = appendFamilies(b, []view.Throttles{*l}, noLabels, []family[view.Throttles]{
		{
			"plimsoll_throttle_dry_run", gauge, "1 in a dry run of throttle, or while it is disabled: pods other than data movers are not throttled, else 0.",
			func(b []byte, l *view.Throttles) []byte { return appendBool(b, l.DryRun) },
		},
		{
			"plimsoll_resized_pods", gauge, "Pods whose CPU is throttled by in-place resize.",
			func(b []byte, l *view.Throttles) []byte { return appendCount(b, l.Resized()) },
		},
		{
			"plimsoll_throttle_failed", gauge, "1 when the last change of the limits of throttled pods failed, also in part, else 0.",
			func(b []byte, l *view.Throttles) []byte { return appendBool(b, l.Problem != "") },
		},
	})
	b = appendFamilies(b, throttledCounts(l, false), throttledLabels, []family[throttledCount]{{
		"plimsoll_throttled_pods", gauge, "Throttled pods by resource, and by disk as the device; absent where none is throttled.", appendThrottled,
	}})
	return appendFamilies(b, throttledCounts(l, true), throttledLabels, []family[throttledCount]{{
		"plimsoll_would_throttle_pods", gauge, "Pods that would be throttled if it were no dry run, by resource, and by disk as the device; absent where there is none.", appendThrottled,
	}})
}

// throttledCount is how many pods are throttled on one resource.
type throttledCount struct {
	throttle.Target // without the cgroup
	n               uint64
}

func throttledLabels(b []byte, c *throttledCount) []byte {
	return appendLabels(b, "resource", string(c.Resource()), "device", c.Disk)
}

func appendThrottled(b []byte, c *throttledCount) []byte { return appendCount(b, c.n) }

func throttledCounts(l *view.Throttles, dryRun bool) (list []throttledCount) {
	for _, t := range l.Throttled {
		of := throttle.Target{Disk: t.Disk, Memory: t.Memory}
		i := slices.IndexFunc(list, func(c throttledCount) bool { return c.Target == of })
		switch {
		case t.DryRun != dryRun:
		case i < 0:
			list = append(list, throttledCount{of, 1})
		default:
			list[i].n++
		}
	}
	slices.SortFunc(list, func(a, b throttledCount) int { return a.Compare(b.Target) })
	return list
}
