package web

import (
	"maps"
	"net/http"
	"slices"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

func (c *Controller) metrics(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(appendController(&s)) // the client may be gone
}

// appendController is all series of a controller. Those of queues are only on
// the leader.
func appendController(s *ControllerState) []byte {
	b := appendAgent(nil, &view.Agent{Version: s.Version, Started: s.Started, ConfigError: s.ConfigError})
	b = appendFamilies(b, []ControllerState{*s}, noLabels, []family[ControllerState]{
		{
			"plimsoll_leader", gauge, "1 when this replica of the controller is the leader, else 0.",
			func(b []byte, s *ControllerState) []byte { return appendBool(b, s.IsLeader) },
		},
		{
			"plimsoll_backup_queue_enabled", gauge, "1 when the controller starts Backups in order, else 0: backups.enabled is false, or the installed Velero cannot queue them. Then Velero does, if its server runs without --disable-controllers=backup-queue.",
			func(b []byte, s *ControllerState) []byte { return appendBool(b, s.runsQueue()) },
		},
	})
	b = appendFamilies(b, APIProblemKinds(), func(b []byte, k *APIProblemKind) []byte { return appendLabel(b, "problem", string(*k)) }, []family[APIProblemKind]{
		{
			"plimsoll_api_server_problem", gauge, "1 while the controller cannot work because of this problem with the API server, else 0; the page and the log have the cause.",
			func(b []byte, k *APIProblemKind) []byte {
				return appendBool(b, slices.ContainsFunc(s.Problems, func(p APIProblem) bool { return p.Kind == *k }))
			},
		},
	})
	b = appendCapabilities(b, s.Capabilities)
	b = appendAgents(b, s)
	b = appendDataMoverLoads(b, s)
	b = appendQueues(b, s.Queues)
	b = appendOldestWaits(b, oldestWaits(s))
	b = appendWaits(b, s.Counts.Waits)
	b = appendNights(b, s.Nights)
	return appendCounted(b, backupWrites(s.Counts), "result", family[reasonCount]{
		"plimsoll_backup_writes_total", counter, "Writes of Backups by purpose; conflict: another client wrote first, failed: the API server did not accept the write, or its answer did not come.", appendCounter,
	})
}

func appendQueues(b []byte, queues []backup.Report) []byte {
	return appendFamilies(b, queues, func(b []byte, r *backup.Report) []byte { return appendLabel(b, "velero", r.Namespace) }, []family[backup.Report]{
		{
			"plimsoll_backup_queue_length", gauge, "Queued Backups, by the namespace of their Velero.",
			func(b []byte, r *backup.Report) []byte { return appendCount(b, uint64(len(r.Waiting))) },
		},
		{
			"plimsoll_backup_running", gauge, "Backups that hold a slot: ReadyToStart and InProgress.",
			func(b []byte, r *backup.Report) []byte { return appendCount(b, uint64(r.Running)) },
		},
		{
			"plimsoll_backup_limit", gauge, "How many Backups may run at once.",
			func(b []byte, r *backup.Report) []byte { return appendCount(b, uint64(r.Limit)) },
		},
		{
			"plimsoll_backup_stuck", gauge, "Stuck Backups: ReadyToStart, but not started by Velero; as many as the limit hold no slot.",
			func(b []byte, r *backup.Report) []byte {
				n := uint64(0)
				for _, a := range r.Active {
					if a.Stuck {
						n++
					}
				}
				return appendCount(b, n)
			},
		},
	})
}

// oldestWait is for how long a Backup of a Velero has waited at most, not counting until its window
// opened.
type oldestWait struct {
	velero  string
	seconds float64
}

func oldestWaits(s *ControllerState) (list []oldestWait) {
	for i := range s.Queues {
		w := oldestWait{velero: s.Queues[i].Namespace}
		for _, p := range s.Queues[i].Waiting {
			w.seconds = max(w.seconds, p.CouldStartSeconds())
		}
		list = append(list, w)
	}
	for _, velero := range slices.Sorted(maps.Keys(s.Unqueued)) {
		list = append(list, oldestWait{velero, s.Unqueued[velero].Seconds()})
	}
	return list
}

func appendOldestWaits(b []byte, list []oldestWait) []byte {
	return appendFamilies(b, list, func(b []byte, w *oldestWait) []byte { return appendLabel(b, "velero", w.velero) }, []family[oldestWait]{{
		"plimsoll_backup_oldest_wait_seconds", gauge, "How long the queued Backup that could have started for longest has waited, from its creation or the last opening of its backup window; 0 without one. While backups.enabled is false: the oldest New one, which Velero has not queued either.",
		func(b []byte, w *oldestWait) []byte { return appendFloat(b, w.seconds) },
	}})
}

func appendWaits(b []byte, of counters.Histograms[string]) []byte {
	const name = "plimsoll_backup_queue_wait_seconds"
	if len(of) == 0 {
		return b
	}
	b = appendHeader(b, name, "histogram", "Time from a Backup's creation to ReadyToStart, for Backups started by this replica.")
	for _, velero := range slices.Sorted(maps.Keys(of)) {
		w := of[velero]
		b = appendHistogram(b, name, backup.Buckets(), histogram{[]string{"velero", velero}, w.Within, w.Count, w.Sum.Seconds()})
	}
	return b
}

// backupWrites has every kind, with 0 for those that never occurred.
func backupWrites(c backup.Counts) []reasonCount {
	all := map[string]uint64{"conflict": c.Conflicts, "failed": c.Failures}
	for _, kind := range backup.Kinds() {
		all[kind] = c.Writes[kind]
	}
	return sorted(all)
}
