package web

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

func letting() ControllerState {
	made := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	return ControllerState{
		Version: "v1", Started: made, Identity: "a_1", Leader: "a_1", IsLeader: true, AdmissionEnabled: true,
		DataMoverLoads: []admission.Report{
			{
				Namespace: "velero", Limited: true, NotHidden: "nothing would release them", Epoch: 7, PrepareLimit: 4, Slots: 3, ConfigMap: "agents", Drift: 2, ConfigMapError: "line 3", Hints: []string{"prepareQueueLength: not here"},
				Phases:  map[vgdp.Kind]map[vgdp.Phase]int{vgdp.DataUpload: {vgdp.Accepted: 3, vgdp.New: 1}},
				Reasons: map[vgdp.Code]int{vgdp.CodePressure: 1}, StartedAtOnce: []vgdp.Kind{vgdp.PodVolumeBackup, vgdp.PodVolumeRestore},
				OtherMovers:  []admission.OtherMover{{Name: "<i>acme", Loads: 3}, {Name: "velero-tape", Loads: 2, Served: 1}},
				Nodes:        []admission.Node{{Name: "n1", Budget: new(1), HoldUntil: made, Why: "disk hard"}},
				Maintenances: []vgdp.PostponedMaintenance{{Repository: "<b>shop-default-kopia", Due: made, Until: made.Add(vgdp.MaxPostpone), Why: "Backup nightly is running"}}, MaintenanceCount: 1,
				Waiting: []admission.WaitingLoad{{Kind: vgdp.DataUpload, Name: "<b>du", WaitSeconds: 90, Backup: "Backup nightly", Reason: vgdp.CodePressure, Why: "node n1 suffers", Hidden: true}},
			},
			{Namespace: "other", Problem: "gate main: forbidden", MaintenanceProblem: "not listed"},
			{Namespace: "well"},
		},
		Capabilities: []capability.Capability{
			capability.Has(capabilities.Hold, "served"),
			capability.Lacks(capabilities.Steer, "serves <none>", "they wait there"),
			capability.Unread(capabilities.Hide, "not asked", ""),
			capability.Lacks(abilities.BackupQueue, "no phase Queued", "Velero starts them"),
		},
		DataMoverCounts: admission.Counts{
			Writes: map[admission.Kind]uint64{admission.KindAdmit: 3}, Conflicts: 2, Bypassed: map[string]uint64{"velero": 5}, Overdue: 1,
			Waits: map[vgdp.Kind]counters.Histogram{vgdp.DataUpload: {Within: []uint64{1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3}, Count: 4, Sum: 100 * time.Second}},
		},
	}
}

func TestControllerLoadMetrics(t *testing.T) {
	text := string(appendController(new(letting())))
	problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	for _, line := range []string{
		`plimsoll_capability_available{capability="hold"} 1`, `plimsoll_capability_available{capability="steer"} 0`, `plimsoll_capability_available{capability="backup-queue"} 0`,
		`plimsoll_vgdp_loads{velero="velero",kind="DataUpload",phase="Accepted"} 3`, `plimsoll_vgdp_loads{velero="velero",kind="PodVolumeBackup",phase="New"} 0`,
		`plimsoll_vgdp_held{velero="velero",reason="pressure"} 1`, `plimsoll_vgdp_held{velero="velero",reason="limit"} 0`,
		`plimsoll_vgdp_tickets_required{velero="velero"} 1`, `plimsoll_vgdp_slots{velero="velero"} 3`, `plimsoll_vgdp_prepare_limit{velero="velero"} 4`,
		`plimsoll_vgdp_gate_problem{velero="velero"} 1`, `plimsoll_vgdp_gate_problem{velero="other"} 1`, `plimsoll_vgdp_gate_problem{velero="well"} 0`, `plimsoll_vgdp_node_budget{target_node="n1"} 1`,
		`plimsoll_vgdp_gate_bypassed_total{velero="velero"} 5`, `plimsoll_vgdp_gate_bypassed_total{velero="other"} 0`, "plimsoll_vgdp_overdue_total 1",
		`plimsoll_vgdp_postponed_maintenances{velero="velero"} 1`, `plimsoll_vgdp_postponed_maintenances{velero="other"} 0`,
		`plimsoll_vgdp_unknown_mover_loads{velero="velero"} 1`, `plimsoll_vgdp_unknown_mover_loads{velero="other"} 0`,
		`plimsoll_vgdp_wait_seconds_bucket{kind="DataUpload",le="0.5"} 1`, `plimsoll_vgdp_wait_seconds_bucket{kind="DataUpload",le="15"} 3`,
		`plimsoll_vgdp_wait_seconds_bucket{kind="DataUpload",le="+Inf"} 4`, `plimsoll_vgdp_wait_seconds_sum{kind="DataUpload"} 100`, `plimsoll_vgdp_wait_seconds_count{kind="DataUpload"} 4`,
		`plimsoll_vgdp_writes_total{result="admit"} 3`, `plimsoll_vgdp_writes_total{result="conflict"} 2`, `plimsoll_vgdp_writes_total{result="note"} 0`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	assert.NotContains(t, text, `capability="hide"`, "it is unknown")
	standby := string(appendController(&ControllerState{Version: "v1", Leader: "a_1"}))
	assert.NotContains(t, standby, "plimsoll_vgdp_loads", "only the leader has them")
}

func TestControllerPageAndAPIShowLoads(t *testing.T) {
	url := served(t, letting(), "127.0.0.1:0", Exposure{}, nil)
	status, page := fetched(t, url+"/")
	assert.Equal(t, 200, status)
	for _, want := range []string{
		"velero: data mover loads need a ticket, 3 of 4 slots in use", "3 Accepted 1 New", "&lt;b&gt;du", "node n1 suffers", "hidden", "Node <b>n1</b> is under pressure: disk hard; data mover budget 1; start hold until 02:00:00 UTC",
		"2 node-agents started before ConfigMap agents changed", "its last valid content stays in force: line 3", "prepareQueueLength: not here", "No decisions: gate main: forbidden",
		"Data mover &lt;i&gt;acme is not Velero's: its loads (3) are not held", "Velero's node-agents serve data mover velero-tape, which Plimsoll does not know: its loads (1) are not held",
		`<th scope="row">&lt;b&gt;shop-default-kopia</th><td data-label="due">2026-03-01 02:00 UTC</td><td data-label="until at most">2026-03-01 08:00 UTC</td><td data-label="reason">Backup nightly is running</td>`,
		"Repository maintenance: not listed",
		"Not held, since node-agents start them at once: PodVolumeBackups, PodVolumeRestores",
		"Waiting data mover loads are not hidden: nothing would release them", `<th scope="row">steer</th><td data-label="state">missing</td><td data-label="reason">serves &lt;none&gt;</td><td data-label="consequence">they wait there</td>`,
		`<th scope="row">hide</th><td data-label="state">unknown</td>`,
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, page, `<th scope="row">hold</th>`, "what is there needs no row")
	status, body := fetched(t, url+"/api/v1/capabilities")
	assert.Equal(t, 200, status)
	var has []capability.Capability
	require.NoError(t, json.Unmarshal([]byte(body), &has))
	assert.Equal(t, letting().Capabilities, has)
	status, body = fetched(t, url+"/api/v1/loads")
	assert.Equal(t, 200, status)
	var l DataMoverLoads
	require.NoError(t, json.Unmarshal([]byte(body), &l))
	assert.Equal(t, letting().DataMoverLoads, l.Veleros)
	assert.True(t, l.Enabled && l.Leads)
}
