package vgdp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultConcurrency is Velero's: one load runs on a node at a time.
const DefaultConcurrency = 1

// Concurrency is how many loads Velero runs on each node at a time: its rules,
// read once.
type Concurrency struct {
	global int
	rules  []rule
}

type rule struct {
	selector labels.Selector
	number   int
}

// Concurrency of the configuration. Where it says nothing it is what is given
// here; Velero gives DefaultConcurrency.
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

// Anywhere is the number of a node of which nothing is known.
func (c *Concurrency) Anywhere() int { return c.global }

// On a node with these labels: of several rules that match, the smallest number.
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

// Binding is the limit in force where a running node-agent still has the one
// that it read at its start: the lower, and 0 is none.
func Binding(live, started int) int {
	if live == 0 || started == 0 {
		return max(live, started)
	}
	return min(live, started)
}
