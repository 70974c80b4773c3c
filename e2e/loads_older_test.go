package e2e_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Node-agents of Velero 1.16 fail a load whose acceptance is refused, have no limit on
// prepared loads, and start PodVolumeBackups and PodVolumeRestores at once.
func loadsOfVelero116(t *testing.T, c *cluster.Cluster) {
	h := veleroWorldOf(t, c, "v1.16.2", 2, `{"loadConcurrency":{"globalConfig":3,"prepareQueueLength":2}}`, ", leaseDuration: 15s")
	h.agents.Old, h.agents.Concurrency = true, 3
	h.see()
	a := h.controller().start()
	const each = 6
	for i := range each {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
		h.load(vgdp.DataDownload, fmt.Sprintf("dd-%d", i), "r", nil)
	}
	h.holds()
	h.runAgents()
	for i := range each {
		h.load(vgdp.PodVolumeBackup, fmt.Sprintf("pvb-%d", i), "b", nil)
		h.load(vgdp.PodVolumeRestore, fmt.Sprintf("pvr-%d", i), "r", nil)
	}
	h.allEnd(4*each, 4*patience)
	most, order := h.most()
	assert.Equal(t, 2, most, "accepted and prepared, in every event of the watch in etcd's order")
	assert.Len(t, order, 2*each, "each DataUpload and DataDownload had a ticket")
	for _, o := range order {
		assert.True(t, o.Load.Kind.Facts().HasMover, "%s has no ticket to wait for", o.Load.Kind)
	}
	v := veleroOf(a)
	assert.Equal(t, []vgdp.Kind{vgdp.PodVolumeBackup, vgdp.PodVolumeRestore}, v.StartedAtOnce)
	assert.Equal(t, 2, v.PrepareLimit)
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
	t.Run("what velero is refused does not fail a load when the gate begins to hold meanwhile", func(t *testing.T) {
		// The finalizer was added before: the acceptance is the next write.
		h.load(vgdp.DataUpload, "between", "b", func(u map[string]any) {
			u["metadata"].(map[string]any)["finalizers"] = []any{"velero.io/data-upload-download-finalizer"}
		})
		h.allEnd(4*each+1, 4*patience)
	})
	a.end(syscall.SIGTERM)
}

// Last an API server that starts anew: it knows the Gate half a minute later.
func TestLoadsOfOtherMovers(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, withoutKubelets())
	t.Run("of an unknown mover", func(t *testing.T) { loadsOfUnknownMover(t, c) })
	t.Run("beside an older node-agent", func(t *testing.T) { loadsBesideOlderAgent(t, c) })
	t.Run("of Velero 1.16", func(t *testing.T) { loadsOfVelero116(t, c) })
	t.Run("behind an API server that starts anew", func(t *testing.T) { loadsAfterAPIServerOutage(t, c) })
}

// While the node-agents are upgraded one of Velero 1.16 runs a PodVolumeBackup that was never
// accepted. Those of the nodes that are upgraded already get their tickets all the same.
func loadsBesideOlderAgent(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"globalConfig":3,"prepareQueueLength":2}}`, ", leaseDuration: 15s")
	h.see()
	a := h.controller().start()
	const each = 6
	h.load(vgdp.PodVolumeBackup, "older-0", "b", func(u map[string]any) { u["status"] = map[string]any{"phase": "InProgress"} })
	h.load(vgdp.PodVolumeBackup, "newer-1", "b", nil)
	h.holds()
	h.nodes = h.nodes[1:] // the older one does no more
	h.runAgents()
	for i := range each {
		h.load(vgdp.PodVolumeBackup, fmt.Sprintf("pvb-%d", i), "b", nil)
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	h.allEnd(2*each+1, 4*patience)
	most, order := h.most()
	assert.LessOrEqual(t, most, 2, "accepted and prepared")
	assert.Len(t, order, 2*each+1, "each had a ticket but the one that needs none")
	assert.Equal(t, vgdp.InProgress, h.phaseOf(vgdp.PodVolumeBackup, "older-0"))
	a.end(syscall.SIGTERM)
}

// A data mover that Velero's node-agents serve and this program does not know is told, and
// so is, as another, one of others.
func loadsOfUnknownMover(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"prepareQueueLength":1}}`, ", leaseDuration: 15s")
	a := h.controller().start()
	mover := func(name string) func(map[string]any) {
		return func(u map[string]any) { u["spec"].(map[string]any)["datamover"] = name }
	}
	h.load(vgdp.DataUpload, "ours", "b", mover("velero-block"))
	h.holds()
	h.load(vgdp.DataUpload, "theirs", "b", mover("acme.io/mover"))
	h.load(vgdp.DataUpload, "new", "b", mover("velero-tape"))
	h.patch(admission.Resource(vgdp.DataUpload), h.namespace+"/new", fmt.Sprintf(
		`{"metadata":{"finalizers":["velero.io/data-upload-download-finalizer"],"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","acceptedByNode":%q,"acceptedTimestamp":%q}}`,
		h.nodes[0], time.Now().UTC().Format(time.RFC3339)))
	assert.Contains(t, h.said("new", "LoadUnknownDataMover"), `data mover "velero-tape"`)
	eventually(t, "the page and the metric tell it", func() error {
		if v := loadsOf(a).Veleros; len(v) != 1 || len(v[0].OtherMovers) != 2 || v[0].OtherMovers[1].Served != 1 || v[0].OtherMovers[0].Served != 0 {
			return fmt.Errorf("%+v", v)
		}
		if metric(a, `plimsoll_vgdp_unknown_mover_loads{velero="`+h.namespace+`"}`) != "1" {
			return errors.New("no metric")
		}
		return nil
	})
	assert.Contains(t, a.mustGet("/"), "velero-tape")
	status, said, stderr := run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "du/new")
	require.Zero(t, status, stderr)
	assert.Contains(t, said, "Data mover velero-tape handles it: Plimsoll neither holds nor counts it.")
	a.end(syscall.SIGTERM)
	assert.Contains(t, a.stderr.String(), `dataMover=acme.io/mover`)
}
