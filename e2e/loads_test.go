package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

func TestLoadsOfDataMovers(t *testing.T) {
	t.Parallel()
	onOneControlPlane(t, map[string]func(*testing.T, *cluster.Cluster){
		"are never more prepared than may be, also of two controllers":                 preparedWithinLimit,
		"are not touched where nothing is limited, and all go when it is switched off": unlimitedIsNotTouched,
		"wait on a node that suffers, and a restore goes all the same":                 aNodeThatSuffersHoldsLoads,
		"are in the forecast of the night":                                             foreseenLoads,
	})
}

func TestHeldLoadsGoOn(t *testing.T) {
	t.Parallel()
	onOneControlPlane(t, map[string]func(*testing.T, *cluster.Cluster){
		"when the controller is gone for good":                                 loadsWithoutController,
		"despite pressure in time for Velero, which would cancel them":         pressureWithinVeleroTimeout,
		"in order from a queue that is longer than one is held at most":        aLongQueueStaysInOrder,
		"beside those whose node is dead, which are named":                     deadNodeStopsOwnLoads,
		"when the backup window opens until which their Backup postpones them": postponedLoads,
	})
}

// onOneControlPlane runs tests in turn: one controller leads in it. It has no kubelets, and
// nobody who taints Nodes for that.
func onOneControlPlane(t *testing.T, tests map[string]func(*testing.T, *cluster.Cluster)) {
	t.Helper()
	c := cluster.New(t, withoutKubelets())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// The node-agents are stand-ins without a limit of their own: what holds is the
// gate alone.
func preparedWithinLimit(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 3, `{"loadConcurrency":{"globalConfig":10,"prepareQueueLength":4}}`, ", leaseDuration: 15s")
	h.agents.Concurrency = 10
	h.backup("nightly", map[string]any{"velero.io/schedule-name": "nightly"}, map[string]any{})
	h.backup("by-hand", nil, map[string]any{})
	h.backup("hooked", nil, map[string]any{"hooks": map[string]any{"resources": []any{map[string]any{"name": "freeze", "pre": []any{map[string]any{"exec": map[string]any{"command": []any{"fsfreeze"}}}}}}}})
	h.see()
	const each = 11
	for i := range each {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), []string{"nightly", "by-hand"}[i%2], nil)
		h.load(vgdp.DataDownload, fmt.Sprintf("dd-%d", i), "back", nil)
		h.load(vgdp.PodVolumeBackup, fmt.Sprintf("pvb-%d", i), []string{"nightly", "hooked"}[i%2], nil)
		h.load(vgdp.PodVolumeRestore, fmt.Sprintf("pvr-%d", i), "back", nil)
	}
	a := h.controller().start()
	h.holds()
	h.runAgents()
	eventually(t, "some of them are done", func() error {
		if is := h.phases(); is[vgdp.Completed] < each {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
	// It stands still until another one leads, and then goes on for a moment.
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	again := h.controller().start()
	within(t, 4*patience, "the other one decides", func() error {
		if l := loadsOf(again); !l.Leads || len(l.Veleros) != 1 || l.Veleros[0].Problem != "" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
	h.allEnd(4*each, 4*patience)
	eventually(t, "it does not lead any more", func() error { return wanted(loadsOf(a).Leads, false) })
	a.end(syscall.SIGTERM)
	most, order := h.most()
	assert.Equal(t, 4, most, "accepted and prepared, in every event of the watch in etcd's order")
	require.Len(t, order, 4*each, "each had a ticket")
	sameOrder(t, order)
	assert.Contains(t, again.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
	again.end(syscall.SIGTERM)
}

// sameOrder: tickets were given by rank. The first are given while some targets
// are not looked up yet, and those of the killed controller that nobody had used
// were given again.
func sameOrder(t *testing.T, order []*admission.Object) {
	t.Helper()
	rank := func(o *admission.Object) int {
		switch {
		case o.Backup == "":
			return 0
		case o.Backup == "by-hand", o.Backup == "hooked": // of which a few at once are urgent
			return 1
		}
		return 2
	}
	var ranks []int
	for _, o := range order {
		ranks = append(ranks, rank(o))
	}
	assert.True(t, slices.IsSorted(ranks[4:]), "%v", ranks)
}

func loadsWithoutController(t *testing.T, c *cluster.Cluster) {
	lease := deadline.Scale(8 * time.Second)
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"prepareQueueLength":1}}`, fmt.Sprint(", leaseDuration: ", lease))
	h.agents.Prepares = time.Hour
	a := h.controller().start()
	h.load(vgdp.DataUpload, "first", "b", nil)
	h.holds()
	stop := h.runAgents()
	h.become(1, vgdp.Accepted)
	h.load(vgdp.DataUpload, "second", "b", nil)
	h.load(vgdp.PodVolumeBackup, "third", "b", nil)
	var waiting []admission.WaitingLoad
	eventually(t, "it waits", func() error {
		waiting = veleroOf(a).Waiting
		return wanted(len(waiting), 2)
	})
	assert.Equal(t, vgdp.CodeLimit, waiting[0].Reason)
	assert.Equal(t, map[vgdp.Phase]int{vgdp.Accepted: 1, vgdp.New: 2}, h.phases())
	status, said, stderr := run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "pvb/third")
	assert.Zero(t, status, stderr)
	assert.Contains(t, said, ": all 1 slots of prepareQueueLength are taken; DataUpload "+h.namespace+"/first has had one for longest.\n")
	assert.Contains(t, said, "The Gate is in force, renewed ")
	status, _, stderr = run(t, "explain", "load", "-n", h.namespace, "--kubeconfig", h.c.Kubeconfig, "nobody")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "no such data mover load")
	require.NoError(t, a.cmd.Process.Kill())
	killed := deadline.Start()
	<-a.ended
	h.become(3, vgdp.Accepted)
	took := killed.Passed()
	t.Logf("accepted %s after the controller was killed; the lease is %s", took.Round(10*time.Millisecond), lease)
	assert.Less(t, took, killed.Stretch(2*(lease+5*time.Second)), "promised: the lease and 5 s, twice for a busy machine")
	h.load(vgdp.DataUpload, "fourth", "b", nil)
	h.become(4, vgdp.Accepted)

	// One that is not to hold any more hands back what was hidden, from its start on.
	h.configure("enabled: true, leaseDuration: 10m, hideAbove: 0")
	stop()
	a = h.controller().start()
	h.load(vgdp.DataUpload, "fifth", "b", nil)
	within(t, 4*patience, "it is hidden", func() error {
		return wanted(text(h.get(vgdp.DataUpload, "fifth"), "spec", "datamover"), gate.HiddenMover)
	})
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	h.configure("enabled: false")
	h.runAgents()
	a = h.controller().start()
	h.become(5, vgdp.Accepted)
	a.end(syscall.SIGTERM)
}

func pressureWithinVeleroTimeout(t *testing.T, c *cluster.Cluster) {
	const timeout = 40 * time.Second
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"globalConfig":2}}`, "")
	h.backup("short", nil, map[string]any{"itemOperationTimeout": timeout.String()})
	until := lease.Micro(time.Now().Add(time.Hour))
	h.report(h.nodes[0], lease.NodeReport{Pressure: map[string]string{"disk": "hard"}, DataMoverBudget: new(1), HoldUntil: &until})
	a := h.controller().start()
	h.holds()
	h.runAgents()
	made := time.Now()
	h.patch(velero.Resource(), h.namespace+"/short", `{"metadata":{"annotations":{"velero.io/pod-volume-timeout":"`+timeout.String()+`"}}}`)
	h.load(vgdp.DataUpload, "held", "short", nil)
	h.load(vgdp.PodVolumeBackup, "held-0", "short", nil)
	assert.Contains(t, h.said("held", admission.ReasonPressure), "pressure on node ")
	h.allEnd(2, timeout)
	t.Logf("done after %s of hard pressure; Velero would have canceled it after %s", time.Since(made).Round(10*time.Millisecond), timeout)
	assert.Contains(t, h.said("held", admission.ReasonOverdue), "itemOperationTimeout "+timeout.String())
	assert.Contains(t, h.said("held-0", admission.ReasonOverdue), "velero.io/pod-volume-timeout "+timeout.String()+" of its Backup")
	a.end(syscall.SIGTERM)
}

// The policies' 30 minutes are 6 s here, and more on a busy machine.
func aLongQueueStaysInOrder(t *testing.T, c *cluster.Cluster) {
	const loads, limit = 14, 2 // of three slots one is kept for restores
	held, lease := deadline.Scale(6*time.Second), deadline.Scale(8*time.Second)
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"prepareQueueLength":3}}`, fmt.Sprint(", leaseDuration: ", lease))
	t.Cleanup(func() { require.NoError(t, c.Apply(contextWithoutCancel(t), deploy.Gate)) })
	require.NoError(t, c.Apply(t.Context(), []byte(strings.ReplaceAll(string(deploy.Gate), "duration('30m')", fmt.Sprintf("duration('%.0fs')", held.Seconds())))))
	h.agents.Concurrency, h.agents.Prepares = loads, held/3
	h.see()
	h.backup("seen", nil, nil)
	a := h.controller().start()
	h.holds() // before there are loads: when the controller leads late they would be older
	for i := range loads {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	began := time.Now()
	h.runAgents()
	h.allEnd(loads, 4*patience)
	most, order := h.most()
	t.Logf("%d loads in %s, %d at once at most", loads, time.Since(began).Round(10*time.Millisecond), most)
	assert.Greater(t, time.Since(began), 2*held)
	assert.Equal(t, limit, most)
	require.Len(t, order, loads, "each had a ticket")
	// The first are given while loads are made.
	inOrder(t, order[limit:], limit)
	assert.Contains(t, a.mustGet("/metrics"), `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"} 0`)
	a.end(syscall.SIGTERM)
}

// inOrder: tickets were given by creation. A write that is refused comes after the next ones,
// as many as there are slots.
func inOrder(t *testing.T, order []*admission.Object, slots int) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(order), func(a, b *admission.Object) int {
		return cmp.Or(a.Load.Created.Compare(b.Load.Created), cmp.Compare(a.Load.UID, b.Load.UID))
	})
	for i, o := range order {
		assert.InDelta(t, slices.Index(sorted, o), i, float64(slots)-1, "%s", o.Name)
	}
}

func deadNodeStopsOwnLoads(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"prepareQueueLength":3}}`, ", diagnoseAfter: 1s")
	dies, lives := h.nodes[0], h.nodes[1]
	a := h.controller().start()
	h.load(vgdp.PodVolumeBackup, "dies-0", "b", nil)
	h.holds()
	h.agents.Prepares = time.Hour
	stop := h.runAgents()
	h.become(1, vgdp.Accepted)
	stop()
	require.NoError(t, c.Client.CoreV1().Pods(h.namespace).Delete(t.Context(), "node-agent-"+dies, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	h.agents.Prepares, h.nodes = 200*time.Millisecond, []string{lives}
	h.runAgents()
	for i := range 6 {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	h.load(vgdp.PodVolumeBackup, "lives-0", "b", nil)
	h.become(7, vgdp.Completed)
	within(t, 4*patience, "it is named", func() error {
		if said := h.get(vgdp.PodVolumeBackup, "dies-0").GetAnnotations()[gate.Diagnosis]; !strings.Contains(said, "stuck: no node-agent is ready on node "+dies) {
			return errors.New(said)
		}
		return nil
	})
	assert.Contains(t, h.said("dies-0", admission.ReasonStuck), "no node-agent is ready on node "+dies)
	a.end(syscall.SIGTERM)
}

// Velero makes a load once: where that is refused its volume is not in the backup.
// So new ones are made all the while, as a dry run, also while others are hidden.
func loadsAfterAPIServerOutage(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"prepareQueueLength":1}}`, ", leaseDuration: 8s, hideAbove: 1") // a longer one is not renewed before its leader has lost its own
	a := h.controller().start()
	for i := range 3 {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	h.holds()
	starts := 1
	if os.Getenv("PLIMSOLL_LONG") != "" {
		starts = 10
	}
	for range starts {
		within(t, 4*patience, "two are hidden", func() error {
			if l := loadsOf(a); len(l.Veleros) != 1 || l.Veleros[0].Hidden != 2 {
				return fmt.Errorf("%+v", l)
			}
			return nil
		})
		said := strings.Count(a.stderr.String(), "gate renewal failed; retrying")
		made, end := h.makeLoads()
		require.NoError(t, c.APIServers[0].Stop(t.Context()))
		stopped := time.Now()
		eventually(t, "the Gate cannot be written, which is tried each second and said once", func() error {
			if n := strings.Count(a.stderr.String(), "gate renewal failed; retrying"); n == said || time.Since(stopped) < 3*time.Second {
				return fmt.Errorf("said %d times", n-said)
			}
			return nil
		})
		require.NoError(t, c.APIServers[0].Start())
		require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
		began, before := time.Now(), made()
		eventually(t, "it knows the kinds of loads, for which it looks every 5 s", func() error {
			if time.Since(began) < 6*time.Second {
				return errors.New("not yet")
			}
			return nil
		})
		assert.Greater(t, made(), before, "it answers again")
		end()
	}
	h.runAgents()
	h.allEnd(3, 2*patience)
	a.end(syscall.SIGTERM)
}

// makeLoads ten times a second, as a dry run, until it is ended: none may be
// refused by an API server that answers. made is how many were so far.
func (h *veleroWorld) makeLoads() (made func() int64, end func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	one := h.get(vgdp.DataUpload, "du-0")
	spec := one.Object["spec"].(map[string]any)
	delete(spec, "datamover")
	one.Object = map[string]any{"apiVersion": one.GetAPIVersion(), "kind": one.GetKind(), "metadata": map[string]any{"generateName": "more-"}, "spec": spec}
	var tries sync.WaitGroup
	var n atomic.Int64
	tries.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			tries.Go(func() {
				_, err := h.client.Resource(admission.Resource(vgdp.DataUpload)).Namespace(h.namespace).Create(
					context.WithoutCancel(ctx), one.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				var answer apierrors.APIStatus
				switch {
				case err == nil:
					n.Add(1)
				case errors.As(err, &answer):
					h.t.Errorf("a new load is refused: %v", err)
				}
			})
		}
	})
	return n.Load, func() {
		cancel()
		tries.Wait()
		h.t.Logf("%d loads were made meanwhile", n.Load())
	}
}

// loadsOf a controller, as its API says them.
func loadsOf(a *agent) (l struct {
	Leads, Enabled bool
	Veleros        []admission.Report
},
) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/loads")), &l))
	return l
}

// veleroOf is what a controller says of its only Velero; nothing while none leads.
func veleroOf(a *agent) (r admission.Report) {
	a.t.Helper()
	if all := loadsOf(a).Veleros; len(all) > 0 {
		r = all[0]
	}
	return r
}

func unlimitedIsNotTouched(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"globalConfig":2}}`, fmt.Sprint(", hideAbove: 2, leaseDuration: ", deadline.Scale(8*time.Second)))
	h.see()
	a := h.controller().start()
	stop := h.runAgents()
	for i := range 4 {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", i), "b", nil)
	}
	h.allEnd(4, patience)
	eventually(t, "the controller looks after them", func() error { return wanted(len(loadsOf(a).Veleros), 1) })
	assert.Nil(t, h.gate(gate.Main))
	assert.Nil(t, h.gate(gate.Holds))
	for _, e := range h.history() {
		assert.Nil(t, e.Load.Ticket)
		assert.Empty(t, e.Load.Note)
	}

	// A limit, of which the running node-agents know nothing, holds at once; when
	// many wait they are hidden.
	stop()
	h.agents.Prepares = time.Hour
	h.configMap(`{"loadConcurrency":{"globalConfig":2,"prepareQueueLength":1}}`)
	h.holds()
	eventually(t, "both node-agents started before", func() error { return wanted(veleroOf(a).Drift, 2) })
	h.runAgents()
	for i := range 3 {
		h.load(vgdp.DataUpload, fmt.Sprintf("waits-%d", i), "b", nil)
	}
	h.become(1, vgdp.Accepted)
	eventually(t, "the Gate says that one is on its way", func() error {
		if text(h.gate(gate.Main), "spec", "progressTime") == "" {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Zero(t, veleroOf(a).Hidden, "two wait, and no more")
	h.configMap(`{"loadConcurrency":{"globalConfig":2,"prepareQueueLength":"none"}}`)
	eventually(t, "a mistake in it is said", func() error {
		if bad := veleroOf(a).ConfigMapError; !strings.Contains(bad, "prepareQueueLength") {
			return errors.New(bad)
		}
		return nil
	})
	assert.Equal(t, 1, veleroOf(a).PrepareLimit, "the last good one is in force")
	h.load(vgdp.DataUpload, "waits-3", "b", nil)
	eventually(t, "all three are hidden", func() error { return wanted(veleroOf(a).Hidden, 3) })
	assert.Contains(t, h.get(vgdp.DataUpload, "waits-3").GetAnnotations()[gate.Waiting], `"reason":"limit"`)

	h.configure("enabled: true, hideAbove: 1000000")
	n := 3
	eventually(t, "a new one is not hidden", func() error {
		v := veleroOf(a)
		switch {
		case len(v.Waiting) > v.Hidden:
			return nil
		case len(v.Waiting) == n: // it is known, and was hidden before the file was read
			h.load(vgdp.DataUpload, fmt.Sprintf("late-%d", n), "b", nil)
			n++
		}
		return fmt.Errorf("%d wait, %d of them are hidden", len(v.Waiting), v.Hidden)
	})

	h.configure("enabled: false")
	eventually(t, "all are accepted", func() error {
		if is := h.phases(); is[vgdp.New] > 0 {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
	assert.False(t, yes(h.gate(gate.Main), "spec", "limited"))
}

func yes(u *unstructured.Unstructured, path ...string) bool {
	is, _, err := unstructured.NestedBool(u.Object, path...)
	return err == nil && is
}

func text(u *unstructured.Unstructured, path ...string) string {
	value, _, err := unstructured.NestedString(u.Object, path...)
	if err != nil {
		return ""
	}
	return value
}

func aNodeThatSuffersHoldsLoads(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 2, `{"loadConcurrency":{"globalConfig":2}}`, "")
	h.see()
	pressed, calm := h.nodes[0], h.nodes[1]
	until := lease.Micro(time.Now().Add(time.Hour))
	h.report(pressed, lease.NodeReport{Pressure: map[string]string{"disk": "hard"}, DataMoverBudget: new(1), HoldUntil: &until})
	a := h.controller().start()
	h.holds()
	h.runAgents()
	h.load(vgdp.PodVolumeBackup, "held-0", "b", nil)
	h.load(vgdp.PodVolumeBackup, "free-1", "b", nil)
	h.load(vgdp.PodVolumeRestore, "back-0", "r", nil)
	require.Equal(t, pressed, text(h.get(vgdp.PodVolumeBackup, "held-0"), "spec", "node"))
	require.Equal(t, calm, text(h.get(vgdp.PodVolumeBackup, "free-1"), "spec", "node"))
	h.become(2, vgdp.Completed)
	assert.Contains(t, h.said("held-0", admission.ReasonPressure), "pressure on node "+pressed+": disk hard")
	var note vgdp.Note
	require.NoError(t, json.Unmarshal([]byte(h.get(vgdp.PodVolumeBackup, "held-0").GetAnnotations()[gate.Waiting]), &note))
	assert.Equal(t, vgdp.CodePressure, note.Reason)
	assert.Equal(t, "Node "+pressed, note.BlockedBy)
	assert.False(t, note.PressureSince.IsZero())
	assert.Equal(t, "1", metric(a, `plimsoll_vgdp_held{velero="`+h.namespace+`",reason="pressure"}`))

	// Pressure is gone: it goes on, and the Gates hold nothing any more.
	h.report(pressed, lease.NodeReport{})
	h.become(3, vgdp.Completed)
	eventually(t, "the gate limits nothing", func() error {
		return wanted(yes(h.gate(gate.Main), "spec", "limited"), false)
	})
	a.end(syscall.SIGTERM)
}
