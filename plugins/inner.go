package plugins

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// Inner is a plugin that runs in the agent. To add one:
//
//  1. Write a file named after it with a struct whose exported fields are its
//     configuration (tags yaml, unit, why) and these three methods. The
//     methods are pure: they read the View, do no I/O, keep nothing and never
//     wait. What they must remember stands in the Verdict, which comes back
//     with the next View.
//  2. Name its configuration in Config and list it in Inners, both below.
//     Documentation and `config print` follow from the tags.
//  3. Test it by a table over hand-made Samples, and show that it says nothing
//     on a healthy busy node.
//
// A plugin that lacks a measurement says so in Verdict.Absent and names
// nobody: absent is not zero.
type Inner interface {
	// Name is the plugin's name, in kebab case.
	Name() string
	// Threshold says whether and how hard the threshold is met.
	Threshold(View) Verdict
	// Top names at most n workloads that should go, the most deserving first.
	// It is asked only while the threshold is met.
	Top(v View, n int) []Candidate
}

// View is what an inner plugin sees.
type View struct {
	*probes.Snapshot
	// Previous is the plugin's own last verdict; zero at the first tick and
	// after its configuration changed.
	Previous Verdict
	// Monotonic now, on the snapshot's clock.
	Monotonic time.Duration
	// Since is when the plugin began to watch, on the same clock: what is
	// older does not count, so a new rule starts its windows anew.
	Since time.Duration
	// WarmingUp: the node booted or the agent started a short while ago, and
	// only memory-hard is judged.
	WarmingUp bool
}

// Inners is the complete list of inner plugins for a configuration.
func Inners(c Config) []Inner {
	var list []Inner
	if c.MemoryStall.Enabled {
		list = append(list, c.MemoryStall)
	}
	return list
}

// Config is the configuration of all inner plugins.
type Config struct {
	WarmUp      time.Duration `yaml:"warmUp" why:"How long after boot or start soft levels do not count: a starting node is busy, and nothing is known of its usual day."`
	MemoryStall MemoryStall   `yaml:"memoryStall" why:"Whether the whole node stands still for memory while little is available."`
}

// Default is the configuration of a fresh install.
func Default() Config {
	return Config{WarmUp: 5 * time.Minute, MemoryStall: DefaultMemoryStall()}
}
