package web

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// appendCluster appends the series of an agent in a cluster; nothing for a
// standalone one.
func appendCluster(b []byte, s *view.State) []byte {
	if s.Cluster == nil {
		return b
	}
	b = appendPods(b, s)
	b = appendConditions(b, s.Cluster.Conditions)
	b = appendCounted(b, writes(s.Cluster.StatusWrites), "reason", family[reasonCount]{
		"plimsoll_node_status_writes_total", counter, "Writes of the Node's conditions by reason; failed: the API server did not accept the write.", appendCounter,
	})
	b = appendHeartbeat(b, s.Cluster.Heartbeat)
	b = appendNodeLease(b, s.Cluster.NodeLease)
	b = appendThrottles(appendDataMovers(b, s), s)
	b = appendEvictions(b, results(s))
	return appendCounted(b, suppressed(s.Cluster.Suppressed), "reason", family[reasonCount]{
		"plimsoll_evictions_suppressed_total", counter,
		"Candidates skipped without an eviction request, by reason, counted once for each stored decision.", appendCounter,
	})
}

// appendPods appends the series about the list of pods.
func appendPods(b []byte, s *view.State) []byte {
	return appendFamilies(b, []view.State{*s}, noLabels, []family[view.State]{
		{
			"plimsoll_pods", gauge, "Pods of this node; absent before they were listed for the first time.",
			func(b []byte, s *view.State) []byte {
				if !s.Cluster.PodsSynced {
					return b
				}
				return appendCount(b, uint64(s.Cluster.Pods))
			},
		},
		{
			"plimsoll_pods_synced", gauge, "1 when the pods of this node were listed at least once, else 0; no pod is evicted before.",
			func(b []byte, s *view.State) []byte { return appendBool(b, s.Cluster.PodsSynced) },
		},
		{
			"plimsoll_api_server_stale_seconds", gauge, "How long the API server has been unreachable, at the last tick; 0 while it is reachable, absent before its first answer. No pod is evicted meanwhile.",
			appendStale,
		},
		{
			"plimsoll_rounds_stuck_seconds", gauge, "How long no round has ended, where that is too long; 0 while rounds end in time. No pod is evicted meanwhile, and conditions and the data mover budget are as old.",
			func(b []byte, s *view.State) []byte { return appendFloat(b, s.Cluster.RoundsStuckSeconds) },
		},
		{
			"plimsoll_eviction_state_unsaved_seconds", gauge, "How long the eviction state could not be saved; 0 while it is saved. A pod is evicted only after a minute of it, or at once where memory is below its floor, and a restarted agent may evict one more.",
			func(b []byte, s *view.State) []byte { return appendFloat(b, s.Cluster.UnsavedSeconds) },
		},
		{
			"plimsoll_eviction_dry_run", gauge, "1 in a dry run of evictions: no condition or taint is written and no pod is evicted, else 0. Throttling has dry runs of its own.",
			func(b []byte, s *view.State) []byte { return appendBool(b, s.Cluster.DryRun) },
		},
	})
}

func appendStale(b []byte, s *view.State) []byte {
	since := s.Cluster.StaleSince
	switch {
	case since.IsZero() && s.Cluster.PodsSynced:
		return append(b, '0')
	case since.IsZero(), s.Snapshot == nil:
		return b
	}
	return appendFloat(b, max(0, s.Age(since).Seconds()))
}

// appendConditions appends no value for Unknown: the absence of pressure is
// unknown.
func appendConditions(b []byte, list []evict.Condition) []byte {
	return appendFamilies(b, list, func(b []byte, c *evict.Condition) []byte {
		return appendLabel(b, "condition", c.Type)
	}, []family[evict.Condition]{
		{
			"plimsoll_node_condition", gauge, "Desired condition of the Node: 1 True, 0 False; absent while it is Unknown, and in a dry run.",
			func(b []byte, c *evict.Condition) []byte {
				switch c.Status {
				case corev1.ConditionTrue, corev1.ConditionFalse:
					return appendBool(b, c.Status == corev1.ConditionTrue)
				case corev1.ConditionUnknown:
				}
				return b
			},
		},
	})
}

// reasonCount is a counter and the reason it is counted for.
type reasonCount struct {
	why string
	n   uint64
}

func appendCounter(b []byte, c *reasonCount) []byte { return appendCount(b, c.n) }

// appendCounted appends one family of counters that differ in one label.
func appendCounted(b []byte, list []reasonCount, label string, f family[reasonCount]) []byte {
	return appendFamilies(b, list, func(b []byte, c *reasonCount) []byte { return appendLabel(b, label, c.why) }, []family[reasonCount]{f})
}

// resultCount is how many candidates of a plugin had one result.
type resultCount struct {
	evict.Result
	n uint64
}

func appendEvictions(b []byte, list []resultCount) []byte {
	return appendFamilies(b, list, func(b []byte, o *resultCount) []byte {
		return appendLabels(b, "plugin", o.Plugin, "result", string(o.Code))
	}, []family[resultCount]{
		{
			"plimsoll_evictions_total", counter, "Eviction requests, by the plugin that they were made for and by result.",
			func(b []byte, o *resultCount) []byte { return appendCount(b, o.n) },
		},
	})
}

// results has every result of every plugin, with 0 for those that never
// occurred.
func results(s *view.State) []resultCount {
	counts := map[evict.Result]uint64{}
	if s.Levels != nil {
		for _, plugin := range pluginNames(s.Levels.Verdicts) {
			for _, code := range requestedCodes() {
				counts[evict.Result{Plugin: plugin, Code: code}] = 0
			}
		}
	}
	maps.Copy(counts, s.Cluster.Evictions)
	list := make([]resultCount, 0, len(counts))
	for r, n := range counts {
		list = append(list, resultCount{r, n})
	}
	slices.SortFunc(list, func(a, b resultCount) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Code, b.Code))
	})
	return list
}

// requestedCodes are the codes of candidates for which an eviction was requested.
func requestedCodes() []evict.Code {
	return []evict.Code{
		evict.CodeEvicted, evict.CodeInProgress, evict.CodeWouldEvict, evict.CodePDB, evict.CodeRefused, evict.CodeTerminated, evict.CodeUnknownOutcome, evict.CodeBrake,
	}
}

// skippedCodes are the codes of candidates that were skipped.
func skippedCodes() []evict.Code {
	codes := []evict.Code{
		evict.CodeOff, evict.CodeSoft, evict.CodeLatched, evict.CodeNoCandidate, evict.CodeStale, evict.CodeKubelet, evict.CodeTaint, evict.CodeRelief,
		evict.CodeTerminating, evict.CodeCooldown, evict.CodeState, evict.CodeNotAPod, evict.CodeUnknownPod, evict.CodeFinished,
		evict.CodeOptedOut, evict.CodeTooSmall, evict.CodePDB, evict.CodeRefused, evict.CodeUnknownOutcome, evict.CodeNext, evict.CodeNotNeeded,
		evict.CodeReportOnly, evict.CodeGrace, evict.CodeRateLimit, evict.CodeRoundLimit, evict.CodeOverdue, evict.CodeNotAllowed, evict.CodeBrake,
	}
	for _, protection := range []string{
		pods.Static, pods.Critical, pods.DaemonSet, pods.NoController, pods.OnlyHere, pods.Namespace, pods.Mover, pods.Unresolved,
	} {
		codes = append(codes, evict.Code(protection))
	}
	return codes
}

func suppressed(counts map[evict.Code]uint64) []reasonCount {
	all := map[string]uint64{}
	for _, code := range skippedCodes() {
		all[string(code)] = 0
	}
	for code, n := range counts {
		all[string(code)] = n
	}
	return sorted(all)
}

func writes(counts map[string]uint64) []reasonCount {
	all := map[string]uint64{string(lease.Changed): 0, string(lease.Report): 0, string(lease.WriteFailed): 0}
	maps.Copy(all, counts)
	return sorted(all)
}

func sorted(counts map[string]uint64) []reasonCount {
	list := make([]reasonCount, 0, len(counts))
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, reasonCount{why, counts[why]})
	}
	return list
}
