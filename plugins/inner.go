package plugins

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Inner is a plugin that runs in the agent. To add one:
//
//  1. Write a file named after it with a struct whose exported fields are its
//     configuration (tags yaml, unit, why), these three methods, and Validate, which
//     says which values must not be used. The methods are pure: they read the View, do
//     no I/O, keep no state and never wait. Their state is in the Verdicts, which come
//     back with the next View.
//  2. Add its configuration to Config and Default, and list it in all, below. Its
//     condition, if it has one of its own, is in conditions.go, in the tolerations of
//     deploy/templates/controller.yaml and the list of taints in
//     docs/install-kubernetes.md. A rule about single workloads sets
//     Verdict.PerWorkload; perworkload_test.go has them all. Make a random one in
//     daemon/config/print_test.go.
//  3. A measurement that no probe reads yet: CONTRIBUTING.md, "Add a probe"; one that is
//     read only for the plugin is switched in applyConfig (daemon/agent/loops.go).
//  4. Test it by a table of hand-made Samples and against a slow, obvious version of
//     itself, and show that it is not met on a healthy busy node: there, and in a
//     labelled recording (CONTRIBUTING.md) if the machine can be made.
//  5. Run `make generate`, which documents and prints its configuration from the tags,
//     and go test ./e2e/chart -run TestPlainManifest -update. Describe it in
//     docs/reading.md, name its tests in docs/invariants.md.
//
// A plugin that lacks a measurement reports it in Verdict.Absent and names no
// workload: absent is not zero.
type Inner interface {
	// Name is the plugin's name, in kebab case.
	Name() string
	// Threshold returns one Verdict for each scope (the node, or each device),
	// always in the same order. A scope that no longer exists is left out.
	Threshold(View) []Verdict
	// Top names at most n workloads as candidates for eviction, the best first. It
	// is called only while the threshold is met.
	Top(v View, of Verdict, n int) []Candidate
}

// View is what an inner plugin sees.
type View struct {
	*snapshot.Snapshot
	// Previous are the plugin's own last verdicts; none at the first tick and
	// after its configuration changed.
	Previous []Verdict
	// Monotonic is now, on the snapshot's clock.
	Monotonic time.Duration
	// Since is when this configuration came into force, on the same clock. Older
	// samples do not count, so a changed rule starts its windows again.
	Since time.Duration
	// WarmingUp: the node booted or the agent started a short time ago, and only
	// hard memory pressure is judged.
	WarmingUp bool
	// Baselines has the baseline of each disk.
	Baselines Baselines
	// Capacities has what each disk carries, as of the previous snapshot.
	Capacities []DiskCapacity
}

// Was is the plugin's own last verdict about a scope; zero without one.
func (v View) Was(scope string) Verdict {
	i := slices.IndexFunc(v.Previous, func(w Verdict) bool { return w.Scope == scope })
	if i < 0 {
		return Verdict{}
	}
	return v.Previous[i]
}

// Inners is the complete list of inner plugins for a configuration.
func Inners(c Config) []Inner {
	var list []Inner
	for _, p := range all(c) {
		if p.enabled {
			list = append(list, p.Inner)
		}
	}
	return list
}

// Names of all inner plugins, enabled or not. They are reserved: no outer plugin may
// register one.
func Names() []string {
	var names []string
	for _, p := range all(Config{}) {
		names = append(names, p.Name())
	}
	return names
}

// plugin is a plugin with its switch.
type plugin struct {
	Inner
	enabled bool
}

// all lists all inner plugins.
func all(c Config) []plugin {
	return []plugin{
		{c.MemoryStall, c.MemoryStall.Enabled},
		{c.DiskContention, c.DiskContention.Enabled},
		{c.NetworkContention, c.NetworkContention.Enabled},
		{c.Filesystem, c.Filesystem.Enabled},
		{c.OOMStorm, c.OOMStorm.Enabled},
		{c.CPUContention, c.CPUContention.Enabled},
		{c.CPUSuppression, c.CPUSuppression.Enabled},
		{c.ReclaimedOvercommit, c.ReclaimedOvercommit.Enabled},
		{c.RSSOveruse, c.RSSOveruse.Enabled},
		{c.NUMAMemory, c.NUMAMemory.Enabled},
		{c.RootfsOveruse, c.RootfsOveruse.Enabled},
	}
}

// Config is the configuration of all inner plugins.
type Config struct {
	WarmUp      time.Duration `yaml:"warmUp" why:"How long after boot or start of the agent only hard memory pressure is judged: a starting node is busy."`
	MemoryStall MemoryStall   `yaml:"memoryStall" why:"Whether tasks of the whole node stall on memory while little is available."`

	DiskContention DiskContention `yaml:"diskContention" why:"Whether a workload waits for a disk because of others, and the disk is much slower than its baseline."`

	NetworkContention NetworkContention `yaml:"networkContention" why:"Whether a link of the node is full and TCP retransmits."`
	Filesystem        FilesystemSpace   `yaml:"filesystem" why:"Whether a watched filesystem that no kubelet monitors runs out of space or inodes."`
	OOMStorm          OOMStorm          `yaml:"oomStorm" why:"Whether the kernel OOM-kills processes of one workload again and again."`

	CPUContention CPUContention `yaml:"cpuContention" why:"Whether workloads wait for a CPU because of others. It reports, and marks nothing unless told to."`

	CPUSuppression      CPUSuppression      `yaml:"cpuSuppression" why:"Whether a low-QoS pod gets far less CPU than it requests, for long, so that it would run better elsewhere."`
	ReclaimedOvercommit ReclaimedOvercommit `yaml:"reclaimedOvercommit" why:"Whether the low-QoS pods together request more than the reclaimed resources of this node."`
	RSSOveruse          RSSOveruse          `yaml:"rssOveruse" why:"Whether a pod uses much more memory than it requests."`
	NUMAMemory          NUMAMemory          `yaml:"numaMemory" why:"Whether a workload stalls because memory of its NUMA node is short."`
	RootfsOveruse       RootfsOveruse       `yaml:"rootfsOveruse" why:"Whether a pod uses much of the container runtime's filesystem while that becomes short."`
}

// minTick is the shortest tick of an agent: nothing is seen in less.
const minTick = 100 * time.Millisecond

// alwaysMet says why a threshold must not be 0.
const alwaysMet = "0 would always be met: to turn the rule off, set enabled: false"

// Validate says which values must not be used; each rule has its own.
func (c Config) Validate(at problems.Section) {
	at.Duration("warmUp", c.WarmUp, 0, problems.MaxDuration)
}

// Default is the configuration of a fresh install.
func Default() Config {
	return Config{
		WarmUp: 5 * time.Minute, MemoryStall: DefaultMemoryStall(), DiskContention: DefaultDiskContention(),
		NetworkContention: DefaultNetworkContention(), Filesystem: DefaultFilesystemSpace(), OOMStorm: DefaultOOMStorm(),
		CPUContention: DefaultCPUContention(), CPUSuppression: DefaultCPUSuppression(), ReclaimedOvercommit: DefaultReclaimedOvercommit(), RSSOveruse: DefaultRSSOveruse(),
		NUMAMemory: DefaultNUMAMemory(), RootfsOveruse: DefaultRootfsOveruse(),
	}
}
