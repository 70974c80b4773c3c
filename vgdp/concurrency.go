package vgdp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultConcurrency is Velero's: one data mover load a node at a time.
const DefaultConcurrency = 1

// Concurrency is how many data mover loads Velero runs on each node at a time: its
// configured rules, parsed.
type Concurrency struct {
	global int
	rules  []rule
}

type rule struct {
	selector labels.Selector
	number   int
}

// Concurrency parses the configuration. otherwise is the number where it has none, for
// Velero DefaultConcurrency.
func (c *LoadConcurrency) Concurrency(otherwise int) Concurrency {
	out := Concurrency{global: otherwise}
	if c.GlobalConfig > 0 {
		out.global = c.GlobalConfig
	}
	for _, r := range c.PerNodeConfig {
		selector, err := metav1.LabelSelectorAsSelector(&r.NodeSelector)
		if err != nil || r.Number <= 0 {
			continue // a hint names it
		}
		out.rules = append(out.rules, rule{selector, r.Number})
	}
	return out
}

// Default is the number for an unknown node.
func (c *Concurrency) Default() int { return c.global }

// On is the number for a node with these labels: of several matching rules the
// smallest.
func (c *Concurrency) On(node map[string]string) int {
	number := 0
	for _, r := range c.rules {
		if (number == 0 || r.number < number) && r.selector.Matches(labels.Set(node)) {
			number = r.number
		}
	}
	if number == 0 {
		return c.global
	}
	return number
}

// InForce is the limit in force where a running node-agent still uses the one that it
// read at its start: the lower of both, where 0 means none.
func InForce(live, started int) int {
	if live == 0 || started == 0 {
		return max(live, started)
	}
	return min(live, started)
}
