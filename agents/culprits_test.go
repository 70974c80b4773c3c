package agents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// reporting is an agent that reports a contention.
func reporting(node string, culprit, sufferer lease.Workload) Judged {
	return Judged{Agent: &Agent{Name: node, Contention: &lease.NodeContention{Resources: []lease.ResourceContention{{
		Resource: "disk", Device: "sda", Culprits: []lease.Workload{culprit}, Sufferers: []lease.Workload{sufferer},
	}}}}, State: Alive}
}

func TestCulprits(t *testing.T) {
	db := func(waited float64) lease.Workload {
		return lease.Workload{Kind: "pod", Name: "shop/db-0", Ratio: waited}
	}
	t.Run("one Deployment on twelve nodes is one row", func(t *testing.T) {
		var list []Judged
		for i := range 12 {
			list = append(list, reporting(fmt.Sprintf("n%02d", i), lease.Workload{Kind: "pod", Name: fmt.Sprintf("batch/du-5d4f8-%02d", i), Owner: "batch/ReplicaSet/du", Ratio: 0.5}, db(0.1+float64(i)/100)))
		}
		list = append(list, reporting("alone", lease.Workload{Kind: "service", Name: "copy.service", Ratio: 0.9}, db(0.99)))
		c := culpritsOf(list)
		require.Len(t, c.List, 2)
		first := c.List[0]
		assert.Equal(t, "batch/ReplicaSet/du", first.Owner)
		assert.Equal(t, 12, first.Nodes)
		assert.InDelta(t, 0.21, first.WaitedRatio, 1e-9)
		assert.Equal(t, CulpritNode{Node: "n11", Device: "sda", Workload: "batch/du-5d4f8-11", ShareRatio: 0.5, Sufferer: "shop/db-0", WaitedRatio: first.WaitedRatio}, first.On[0], "the longest wait first")
		assert.Equal(t, "copy.service", c.List[1].Owner)
	})
	t.Run("silent agents, and those that report none, are no all-clear", func(t *testing.T) {
		silent := reporting("silent", lease.Workload{Name: "x", Ratio: 1}, db(1))
		silent.State = Silent
		unknown := reporting("unknown", lease.Workload{}, db(1))
		unknown.Contention.Resources[0].Culprits = nil
		c := culpritsOf([]Judged{silent, unknown, {Agent: &Agent{Name: "old"}, State: Alive}, {Agent: &Agent{Name: "calm", Contention: &lease.NodeContention{}}, State: Alive}})
		assert.Equal(t, &Culprits{UnknownNodes: 1, Unreported: 1, Silent: 1}, c)
		assert.False(t, c.AllSeen())
	})
	t.Run("what the kernel does not report is no all-clear, except for the network", func(t *testing.T) {
		of := func(n lease.NodeContention) *Culprits {
			return culpritsOf([]Judged{{Agent: &Agent{Name: "n", Contention: &n}, State: Alive}})
		}
		c := of(lease.NodeContention{Unknown: []string{"Network", "Network eth0"}})
		assert.Equal(t, &Culprits{}, c)
		assert.True(t, c.AllSeen())
		c = of(lease.NodeContention{Unknown: []string{"Disk sda", "Network", "Memory"}})
		assert.Equal(t, &Culprits{UnseenNodes: 1}, c)
		assert.False(t, c.AllSeen())
		c = of(lease.NodeContention{More: 1})
		assert.Equal(t, &Culprits{UnknownNodes: 1}, c, "left out of the heartbeat")
		assert.False(t, c.AllSeen())
	})
	t.Run("a small share, or little coverage, names no culprit", func(t *testing.T) {
		small, uncovered := reporting("a", lease.Workload{Name: "x", Ratio: 0.19}, db(0.9)), reporting("b", lease.Workload{Name: "x", Ratio: 0.9}, db(0.9))
		uncovered.Contention.Resources[0].Coverage = new(0.69)
		assert.Equal(t, &Culprits{UnknownNodes: 2}, culpritsOf([]Judged{small, uncovered}))
	})
	t.Run("the main sufferer is not its own culprit", func(t *testing.T) {
		a := reporting("n", lease.Workload{Kind: "pod", Name: "shop/db-0", Ratio: 0.9}, db(0.3))
		assert.Equal(t, &Culprits{UnknownNodes: 1}, culpritsOf([]Judged{a}))
		a.Contention.Resources[0].Culprits = append(a.Contention.Resources[0].Culprits, lease.Workload{Kind: "pod", Name: "batch/du", Ratio: 0.2})
		c := culpritsOf([]Judged{a})
		require.Len(t, c.List, 1)
		assert.Equal(t, "batch/du", c.List[0].Owner, "the next one is, if it is large enough")
	})
	t.Run("a node counts once for a culprit on several of its devices", func(t *testing.T) {
		a := reporting("n", lease.Workload{Name: "x", Ratio: 0.4}, db(0.3))
		r := a.Contention.Resources[0]
		r.Device = "sdb"
		a.Contention.Resources = append(a.Contention.Resources, r)
		c := culpritsOf([]Judged{a})
		require.Len(t, c.List, 1)
		assert.Equal(t, 1, c.List[0].Nodes)
		assert.Len(t, c.List[0].On, 2)
	})
	t.Run("a stolen token fills eight rows and no more", func(t *testing.T) {
		var resources []string
		for i := range 60 {
			resources = append(resources, fmt.Sprintf(`{"resource":"r%d","culprits":[{"name":"%s","ratio":1}]}`, i, strings.Repeat("x", 10)))
		}
		a := Judged{Agent: &Agent{Name: "evil", Contention: contentionOf(map[string]string{lease.ContentionAnnotation: `{"resources":[` + strings.Join(resources, ",") + `]}`})}, State: Alive}
		require.NotNil(t, a.Contention)
		assert.Len(t, culpritsOf([]Judged{a}).List, 8)
		long := contentionOf(map[string]string{lease.ContentionAnnotation: `{"resources":[{"culprits":[{"name":"` + strings.Repeat("x", 3000) + `","owner":"` + strings.Repeat("y", 500) + `"}]}]}`})
		require.NotNil(t, long)
		assert.LessOrEqual(t, len(long.Resources[0].Culprits[0].Name)+len(long.Resources[0].Culprits[0].Owner), 320)
	})
	t.Run("the list is bounded, and the rest is counted", func(t *testing.T) {
		var list []Judged
		for i := range 150 {
			list = append(list, reporting("n", lease.Workload{Name: fmt.Sprint(i), Ratio: 1}, db(0.5)), reporting(fmt.Sprintf("m%d", i), lease.Workload{Name: "everywhere", Ratio: 0.2}, db(0.5)))
		}
		c := culpritsOf(list)
		assert.Len(t, c.List, maxCulprits)
		assert.Equal(t, 51, c.More)
		assert.Equal(t, 150, c.List[0].Nodes)
		assert.Len(t, c.List[0].On, maxCulpritNodes)
	})
}

func TestAgentCacheContention(t *testing.T) {
	s := newAgentCache()
	s.setNode("n", made("n", 0).Node, time.Now())
	set := func(text string) *lease.NodeContention {
		raw := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}, Spec: coordinationv1.LeaseSpec{RenewTime: new(lease.Micro(noon))}}
		if text != "" {
			raw.Annotations[lease.ContentionAnnotation] = text
		}
		l, err := trimLease(raw)
		require.NoError(t, err)
		s.setLease("n", l, time.Now())
		return s.list()[0].Contention
	}
	assert.Nil(t, set(""))
	require.NotNil(t, set(`{"version":"v1","resources":[{"resource":"disk"}]}`))
	assert.Len(t, s.list()[0].Contention.Resources, 1)
	assert.Empty(t, set(`{"version":"v1"}`).Resources, "the newest one")
	assert.Nil(t, set("["+strings.Repeat(" ", 5000)), "what cannot be read is none")
	s.setLease("n", nil, time.Now())
	assert.Nil(t, s.list()[0].Contention)
}
