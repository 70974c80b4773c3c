package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Of two API servers the controller uses the first and the node-agents the
// second, over a line to etcd that is slow. It is a stand-in, as they are.
func TestLoadsBehindLateAPIServer(t *testing.T) {
	t.Parallel()
	options := withoutKubelets()
	options.APIServers, options.Lines = 2, true
	c := cluster.New(t, options)
	for _, row := range []struct {
		name string
		test func(*testing.T, *cluster.Cluster)
	}{
		{"are held when it hears within the lease, else they go and are counted", lateThroughTheGate},
		{"take no slot of another's when it stores late what it judged before the leader changed", judgedBeforeNewLeader},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.test(t, c)
			late := c.Lines[1]
			late.Events.Set(0)
			late.Writes.Set(0)
		})
	}
}

// probe is a load that never gets a ticket: what it restores to is not there.
func (h *veleroWorld) probe(name string) {
	h.t.Helper()
	h.load(vgdp.DataDownload, name, "nobody", func(o map[string]any) {
		o["spec"].(map[string]any)["targetVolume"] = map[string]any{"namespace": h.namespace, "pv": "", "pvc": "nowhere"}
	})
}

// heldAt waits until an API server accepts no load without a ticket.
func (h *veleroWorld) heldAt(i int, name string) {
	h.t.Helper()
	at := h.clientAt(i)
	eventually(h.t, "that API server knows the Gate", func() error {
		err := h.accept(at, vgdp.DataDownload, name, metav1.DryRunAll)
		if err == nil {
			return errors.New("it passes")
		}
		require.True(h.t, refused(err), "%v", err)
		return nil
	})
}

// accept as a node-agent.
func (h *veleroWorld) accept(at dynamic.Interface, kind vgdp.Kind, name string, dry ...string) error {
	_, err := at.Resource(admission.Resource(kind)).Namespace(h.namespace).Patch(h.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","acceptedByNode":%q}}`, h.nodes[0]), metav1.PatchOptions{DryRun: dry})
	return err
}

// refused by the gate.
func refused(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "plimsoll-admit")
}

// bypassed are the loads that were accepted without a ticket, as a watch saw them.
func (h *veleroWorld) bypassed() (n int) {
	was := map[string]vgdp.Phase{}
	for _, e := range h.history() {
		l := &e.Load
		if l.Phase == vgdp.Accepted && was[l.UID] != vgdp.Accepted && l.Ticket == nil {
			n++
		}
		was[l.UID] = l.Phase
	}
	return n
}

func lateThroughTheGate(t *testing.T, c *cluster.Cluster) {
	const limit, each = 2, 1
	lease := deadline.Scale(6 * time.Second)
	h := newVeleroWorld(t, c, 3, `{"loadConcurrency":{"globalConfig":10,"prepareQueueLength":2}}`, fmt.Sprintf(", leaseDuration: %s", lease))
	h.agents.Concurrency = 10
	h.through(1)
	h.see()
	h.probe("probe")
	a := h.controller().start()
	h.holds()
	h.heldAt(1, "probe")
	counted := func() string { return metric(a, `plimsoll_vgdp_gate_bypassed_total{velero="`+h.namespace+`"}`) }

	// It hears of the Gate within the lease.
	const late = 500 * time.Millisecond
	c.Lines[1].Events.Set(late)
	stop := h.runAgents()
	for i := range each {
		for _, kind := range admission.Kinds() {
			h.load(kind, fmt.Sprintf("%s-%d", strings.ToLower(string(kind)), i), "b", nil)
		}
	}
	h.allEnd(4*each, 4*patience)
	stop()
	most, order := h.most()
	afterTicket, _ := h.accepted(limit)
	t.Logf("events come %s late, the lease is %s: %d loads, %d accepted and prepared at once; ticket -> Accepted: %s", late, lease, 4*each, most, quantiles(afterTicket))
	assert.Equal(t, limit, most)
	assert.Len(t, order, 4*each, "each had a ticket")
	assert.Equal(t, "0", counted())

	// It hears nothing, and goes by what it knows until that is too old.
	const more = 5
	for i := range more {
		h.load(vgdp.DataUpload, fmt.Sprintf("du-%d", each+i), "b", nil)
	}
	eventually(t, "the slots of backups are given", func() error { return wanted(veleroOf(a).Slots, limit-1) })
	c.Lines[1].Events.Set(time.Hour)
	behind := h.clientAt(1)
	passed := 0
	took := within(t, 2*(lease+5*time.Second), "nothing is held", func() error {
		for passed < more {
			if err := h.accept(behind, vgdp.DataUpload, fmt.Sprintf("du-%d", each+passed)); err != nil {
				return err
			}
			passed++
		}
		return nil
	})
	eventually(t, "all are seen", func() error { most, _ = h.most(); return wanted(most, more) })
	eventually(t, "those without a ticket are counted", func() error { return wanted(counted(), fmt.Sprint(h.bypassed())) })
	t.Logf("no events come, the lease is %s: nothing is held after %s, %d accepted and prepared at once, %s counted", lease, took.Round(10*time.Millisecond), most, counted())
	assert.GreaterOrEqual(t, h.bypassed(), more-limit)

	if os.Getenv("PLIMSOLL_LONG") != "" {
		h.howOpen(c, lease)
	}

	// It hears again.
	c.Lines[1].Events.Set(0)
	h.heldAt(1, "probe")
	h.load(vgdp.DataUpload, "last", "b", nil)
	h.runAgents()
	h.allEnd(4*each+more+1, 4*patience)
	assert.Equal(t, fmt.Sprint(h.bypassed()), counted())
	a.end(syscall.SIGTERM)
}

// howOpen an API server is that hears so late, that runs now and then, or that
// stood still.
func (h *veleroWorld) howOpen(c *cluster.Cluster, lease time.Duration) {
	behind, server := h.clientAt(1), c.APIServers[1]
	for _, late := range []float64{0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25} {
		by := time.Duration(late * float64(lease))
		c.Lines[1].Events.Set(by)
		// At first what was on its way comes as late as it did before.
		h.t.Logf("events %s late, the lease is %s: %s", by, lease, h.share(behind, lease, 3*lease))
	}
	c.Lines[1].Events.Set(0)
	h.heldAt(1, "probe")
	for _, runs := range []float64{0.3, 0.1} {
		require.NoError(h.t, server.Slow(runs))
		h.t.Logf("it runs %.0f %% of the time: %s", 100*runs, h.share(behind, 0, 3*lease))
		require.NoError(h.t, server.Resume())
	}
	for _, still := range []time.Duration{lease / 2, 2 * lease} {
		h.heldAt(1, "probe")
		h.standStill(server, behind, still)
	}
}

// share of tries to be accepted without a ticket that pass.
func (h *veleroWorld) share(at dynamic.Interface, settle, window time.Duration) string {
	passed, all := 0, 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < settle+window; <-tick.C {
		err := h.accept(at, vgdp.DataDownload, "probe", metav1.DryRunAll)
		require.True(h.t, err == nil || refused(err), "%v", err)
		if time.Since(began) < settle {
			continue
		}
		if all++; err == nil {
			passed++
		}
	}
	return fmt.Sprintf("%d of %d tries pass", passed, all)
}

// standStill an API server does while twenty wait for it.
func (h *veleroWorld) standStill(server *cluster.Process, at dynamic.Interface, long time.Duration) {
	const asked = 20
	require.NoError(h.t, server.Pause())
	paused := time.Now()
	answers := make(chan error, asked)
	for range asked {
		go func() { answers <- h.accept(at, vgdp.DataDownload, "probe", metav1.DryRunAll) }()
	}
	within(h.t, patience, "it has stood still", func() error {
		if time.Since(paused) < long {
			return errors.New("not for long enough")
		}
		return nil
	})
	require.NoError(h.t, server.Resume())
	resumed, passed := time.Now(), 0
	for range asked {
		if <-answers == nil {
			passed++
		}
	}
	h.heldAt(1, "probe")
	h.t.Logf("it stood still for %s: %d of %d that waited pass; held again after %s", long, passed, asked, time.Since(resumed).Round(time.Millisecond))
}

// A write that an API server has let pass, and that etcd gets when another leader
// has given the slot to somebody else.
func judgedBeforeNewLeader(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"prepareQueueLength":1}}`, fmt.Sprint(", leaseDuration: ", deadline.Scale(5*time.Second)))
	h.see()
	h.probe("probe")
	a := h.controller().start()
	h.holds()
	h.heldAt(1, "probe")
	h.load(vgdp.DataUpload, "first", "b", nil)
	h.hasTicket(vgdp.DataUpload, "first")
	c.Lines[1].Writes.Set(time.Hour)
	stored := make(chan error, 1)
	behind := h.clientAt(1)
	go func() { stored <- h.accept(behind, vgdp.DataUpload, "first") }()
	eventually(t, "the API server has judged it, and etcd is to store it", func() error {
		return wanted(c.Lines[1].Waits("/datauploads/"+h.namespace+"/first"), true)
	})
	a.end(syscall.SIGTERM)
	h.load(vgdp.DataDownload, "second", "r", nil) // a restore goes first
	again := h.controller().start()
	h.hasTicket(vgdp.DataDownload, "second")
	require.NoError(t, h.accept(h.client, vgdp.DataDownload, "second"))
	select {
	case err := <-stored:
		t.Fatalf("it was to be on its way still: %v", err)
	default:
	}
	c.Lines[1].Writes.Set(0)
	err := <-stored
	most, _ := h.most()
	t.Logf("what was judged before: %v", err)
	assert.True(t, refused(err), "its ticket was taken back first: %v", err)
	assert.Equal(t, 1, most)
	assert.Equal(t, map[vgdp.Phase]int{vgdp.Accepted: 1, vgdp.New: 2}, h.phases())
	again.end(syscall.SIGTERM)
}

func (h *veleroWorld) hasTicket(kind vgdp.Kind, name string) {
	h.t.Helper()
	eventually(h.t, name+" has a ticket", func() error {
		if admission.Read(kind, h.get(kind, name)).Load.Ticket == nil {
			return errors.New("none")
		}
		return nil
	})
}
