package admission

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// configuration of one Velero's node-agents: the content of their ConfigMap now,
// and what each node-agent read at its start and still uses.
type configuration struct {
	name        string // of the ConfigMap; empty: there is none
	version     string
	changed     time.Time // the ConfigMap
	live        vgdp.NodeAgent
	hints       []vgdp.Hint
	err         error // why the last valid one is in force
	polledAt    time.Time
	concurrency vgdp.Concurrency

	// lax: node-agents do not read prepareQueueLength.
	lax bool

	started map[string]start // by node-agent
	drift   int              // node-agents that started before the last change
	places  places
}

// start is what a node-agent read at its start.
type start struct {
	known       bool
	limit       int
	concurrency vgdp.Concurrency
}

func newConfiguration() *configuration {
	c := &configuration{started: map[string]start{}}
	c.set(vgdp.NodeAgent{}, nil)
	return c
}

func (c *configuration) set(live vgdp.NodeAgent, hints []vgdp.Hint) {
	c.live, c.hints, c.places = live, hints, places{}
	c.concurrency = live.LoadConcurrency.Concurrency(vgdp.DefaultConcurrency)
}

// configPollInterval is how often the ConfigMap is polled: a watch would need the right to read
// every ConfigMap.
const configPollInterval = 5 * time.Second

// read polls the ConfigMap when due, and tells whether anything has changed.
func (c *configuration) read(ctx context.Context, maps corev1client.ConfigMapInterface, name string, now time.Time) (news bool) {
	if name == c.name && now.Sub(c.polledAt) < configPollInterval {
		return false
	}
	was := c.version
	c.polledAt = now
	if name == "" {
		if c.name != "" {
			c.set(vgdp.NodeAgent{}, nil)
		}
		c.name, c.version, c.err = "", "", nil
		return was != c.version
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	m, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		c.name, c.err = name, fmt.Errorf("read node-agent ConfigMap: %w", err)
		return false
	}
	if name == c.name && m.ResourceVersion == c.version {
		return false
	}
	c.name, c.version, c.changed = name, m.ResourceVersion, changedAt(m)
	live, hints, err := vgdp.ReadNodeAgent(name, m.Data)
	if c.err = err; err == nil {
		c.set(live, hints)
	}
	return true
}

// changedAt is the time of an object's last write.
func changedAt(m *corev1.ConfigMap) time.Time {
	last := m.CreationTimestamp.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// agent converts a node-agent to package vgdp's type. What it read at its start is
// known if the ConfigMap has not changed since, or was observed then.
func (c *configuration) agent(p *agentPod, node map[string]string) vgdp.Agent {
	key := string(p.UID) + p.Started.String()
	s, seen := c.started[key]
	if !seen && !p.Started.IsZero() && c.err == nil {
		s = start{known: !c.changed.After(p.Started), limit: c.live.PrepareLimit(), concurrency: c.concurrency}
		c.started[key] = s
	}
	a := vgdp.Agent{Ready: p.Ready, Concurrency: c.concurrency.On(node)}
	if s.known {
		a.Concurrency, a.PrepareLimit = vgdp.InForce(a.Concurrency, s.concurrency.On(node)), s.limit
	}
	if c.lax {
		a.PrepareLimit = 0
	}
	if c.changed.After(p.Started) && !p.Started.IsZero() {
		c.drift++
	}
	return a
}

// configMapOf is the name of the ConfigMap of a Velero's node-agents: as configured, else
// that of the node-agent that started last.
func configMapOf(v Velero, agents []*agentPod) (name string) {
	if v.ConfigMap != "" {
		return v.ConfigMap
	}
	var newest time.Time
	for _, a := range agents {
		if a.Namespace == v.Namespace && (name == "" || a.Started.After(newest)) && a.ConfigMap != "" {
			name, newest = a.ConfigMap, a.Started
		}
	}
	return name
}
