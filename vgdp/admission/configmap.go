package admission

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	unread      error // why the last poll did not read it
	invalid     error // why its last valid content is in force
	polledAt    time.Time
	concurrency vgdp.Concurrency

	// lax: node-agents do not read prepareQueueLength.
	lax bool

	started map[startKey]*start
	drift   int // node-agents that started before the last change
	places  places
}

// start of a node-agent, and what it read then. That is known once the ConfigMap was polled
// after the node-agent was first seen, unless it had changed since the start.
type start struct {
	at            time.Time
	polled, known bool
	limit         int
	concurrency   vgdp.Concurrency
}

// startKey is the key of a start: the UID of the node-agent's pod, and when.
type startKey struct {
	pod types.UID
	at  int64
}

func keyOf(p *agentPod) startKey { return startKey{p.UID, p.Started.UnixNano()} }

func newConfiguration() *configuration {
	c := &configuration{started: map[startKey]*start{}}
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

// read polls the ConfigMap when due, and tells whether anything has changed. It is due at
// once where a node-agent has started that was not seen before.
func (c *configuration) read(ctx context.Context, maps corev1client.ConfigMapInterface, of Velero, agents []*agentPod, now time.Time) (news bool) {
	name := configMapOf(of, agents)
	if !c.see(of.Namespace, agents) && name == c.name && now.Sub(c.polledAt) < configPollInterval {
		return false
	}
	c.polledAt = now
	if news, c.unread = c.poll(ctx, maps, name); c.unread != nil || c.invalid != nil {
		return news
	}
	return c.recordStarts() || news
}

// see adds the node-agents that have started, and tells whether there is a new one.
func (c *configuration) see(namespace string, agents []*agentPod) (news bool) {
	for _, p := range agents {
		if key := keyOf(p); p.Namespace == namespace && !p.Started.IsZero() && c.started[key] == nil {
			c.started[key], news = &start{at: p.Started}, true
		}
	}
	return news
}

// recordStarts records what the node-agents read that were seen before this poll, and tells
// whether anything is known of another one.
func (c *configuration) recordStarts() (news bool) {
	for _, s := range c.started {
		if !s.polled {
			*s = start{at: s.at, polled: true, known: !c.changed.After(s.at), limit: c.live.PrepareLimit(), concurrency: c.concurrency}
			news = news || s.known
		}
	}
	return news
}

// poll reads the ConfigMap, and tells whether it has changed.
func (c *configuration) poll(ctx context.Context, maps corev1client.ConfigMapInterface, name string) (news bool, err error) {
	other := name != c.name
	if other {
		c.name, c.version = name, ""
	}
	if name == "" {
		if other {
			c.invalid = nil
			c.set(vgdp.NodeAgent{}, nil)
		}
		return other, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	m, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("it cannot be read: %w", err)
	}
	if m.ResourceVersion == c.version {
		return false, nil
	}
	c.version, c.changed = m.ResourceVersion, changedAt(m)
	live, hints, err := vgdp.ReadNodeAgent(name, m.Data)
	if c.invalid = err; err == nil {
		c.set(live, hints)
	}
	return true, nil
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

// agent converts a node-agent to package vgdp's type.
func (c *configuration) agent(p *agentPod, node map[string]string) vgdp.Agent {
	a := vgdp.Agent{Ready: p.Ready, Concurrency: c.concurrency.On(node)}
	if s := c.started[keyOf(p)]; s != nil && s.known {
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
