package config

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/cri"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/recording"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Agent is the configuration of the agent on a node.
type Agent struct {
	Tick      time.Duration `yaml:"tick" why:"How often the host is sampled and the built-in rules are evaluated. Reaction and readiness are counted in ticks."`
	Window    time.Duration `yaml:"window" why:"The sliding window over which rates and ratios are taken. Shorter reacts faster, longer is calmer."`
	History   time.Duration `yaml:"history" why:"How long samples are kept, so how far back a rule can look. The agent's memory use grows with it."`
	Watchdog  time.Duration `yaml:"watchdog" why:"After so long without a tick the agent reports itself dead and is restarted. Much longer than a tick, because a loaded node is slow, not dead."`
	Triggers  Triggers      `yaml:"triggers" why:"PSI triggers: the kernel wakes the agent for a sample between two ticks when tasks stall on memory or IO."`
	Paths     Paths         `yaml:"paths" why:"Where the host's kernel filesystems are mounted; a container sees them elsewhere."`
	Web       Web           `yaml:"web" why:"The HTTP server for metrics, health and the status page; everything on it is read-only."`
	API       API           `yaml:"api" why:"The local API of plimsoll top, explain and plugins."`
	Log       Log           `yaml:"log" why:"The log on standard error."`
	Workloads Workloads     `yaml:"workloads" why:"Which cgroups are measured besides the node itself."`
	// Filesystems are what plugins.filesystem evaluates.
	Filesystems probes.FilesystemConfig `yaml:"filesystems" why:"Which mounts are asked how full they are; no pod is evicted for it."`
	// ContainerRuntime is what plugins.rootfsOveruse evaluates.
	ContainerRuntime cri.Config           `yaml:"containerRuntime" why:"The container runtime, which tells what the root filesystems of pods use. It is asked only while plugins.rootfsOveruse is on."`
	Network          probes.NetworkConfig `yaml:"network" why:"What is configured about the node's network devices."`
	Recording        recording.Config     `yaml:"recording" why:"The recording of samples, for plimsoll replay and advise; off until a directory is set. What cannot be written is lost and counted; the agent never waits for it."`
	State            State                `yaml:"state" why:"The state that must survive a restart of the agent."`
	// Kubernetes is ignored by a standalone agent.
	Kubernetes Kubernetes   `yaml:"kubernetes" why:"The cluster that the node belongs to; a standalone agent ignores it."`
	Lease      Lease        `yaml:"lease" why:"The heartbeat: the Lease that shows that the agent is alive; read when the agent starts."`
	Conditions Conditions   `yaml:"conditions" why:"How the Node is marked while a rule is met."`
	Eviction   evict.Config `yaml:"eviction" why:"How the agent chooses pods and evicts them."`
	// Throttle is tried before an eviction.
	Throttle throttle.Config `yaml:"throttle" why:"How pods that cause a pressure are throttled (io.max, cpu.max, memory.high), before any pod is evicted for it."`
	// VGDP is how the agent limits Velero's data movers on its node.
	VGDP    VGDP    `yaml:"vgdp" why:"How Velero's data movers on this node are limited while the node is under pressure."`
	Plugins Plugins `yaml:"plugins" why:"The rules that say when a threshold is met, and the plugins that are processes of their own."`
}

// Plugins configures inner and outer plugins.
type Plugins struct {
	Inner `yaml:",inline"`
	Outer `yaml:",inline"`
}

// Inner is the configuration of the inner plugins.
type Inner = plugins.Config

// Outer is the configuration of the outer plugins.
type Outer = outer.Config

// Triggers configures the kernel's PSI triggers.
type Triggers struct {
	Enabled bool          `yaml:"enabled" why:"Whether PSI triggers are armed, for the host and the cgroups of all pods. Without them a stall is seen at the next tick."`
	Stall   time.Duration `yaml:"stall" why:"How long tasks must stall within the window for a trigger to fire. The default is between the soft and the hard threshold of memory-stall, so that ordinary stalls do not fire it."`
	Window  time.Duration `yaml:"window" why:"The window of a trigger, and the least time from one sample that was woken to the next. Without CAP_SYS_RESOURCE the kernel accepts only multiples of 2s: the next longer one is then armed, for the same share of stall."`
}

const (
	minTrigger = 500 * time.Millisecond // minimum of kernels before 6.4
	maxTrigger = 10 * time.Second       // maximum of all kernels
)

// Validate says which values must not be used.
func (t Triggers) Validate(at problems.Section) {
	at.Duration("window", t.Window, minTrigger, maxTrigger)
	at.Duration("stall", t.Stall, time.Millisecond, t.Window)
}

// Paths are where the host's filesystems are mounted.
type Paths struct {
	Procfs   string `yaml:"procfs" unit:"path" why:"The host's /proc."`
	Sysfs    string `yaml:"sysfs" unit:"path" why:"The host's /sys."`
	Cgroupfs string `yaml:"cgroupfs" unit:"path" why:"The host's cgroup hierarchy; empty: found among the mounts."`
	Rootfs   string `yaml:"rootfs" unit:"path" why:"The host's root directory; empty: that of pid 1, which a container with hostPID and CAP_SYS_PTRACE sees too."`
}

// Validate says which values must not be used.
func (p Paths) Validate(at problems.Section) {
	at.Path("procfs", p.Procfs)
	at.Path("sysfs", p.Sysfs)
	at.PathOrNone("cgroupfs", p.Cgroupfs)
	at.PathOrNone("rootfs", p.Rootfs)
}

// Web configures the HTTP server.
type Web struct {
	ListenAddresses []string `yaml:"listenAddresses" unit:"host:port" why:"The addresses to listen on; an empty list turns the server off. Only this host can reach the default."`
	// ConfigFile is bound at startup; the file's content is not.
	ConfigFile  string `yaml:"configFile" unit:"path" why:"TLS, client certificates and passwords: a web configuration of Prometheus' exporter-toolkit, read again for each connection; empty: none."`
	TokenReview bool   `yaml:"tokenReview" why:"Whether a client needs a bearer token whose user may get the nonResourceURL /metrics, or /plimsoll and the path (TokenReview and SubjectAccessReview); a password does as well, where configFile has some."`
	Open        bool   `yaml:"open" why:"Whether an address that other hosts can reach shows every page to every client. false: clients that are not authenticated, by password, client certificate or token, get metrics and health only."`
	Pprof       bool   `yaml:"pprof" why:"Whether /debug/pprof/ is served. Off, because profiles show the inside of the process."`
	// PodSeries is bound at startup, like all of Web.
	PodSeries PodSeries `yaml:"podSeries" why:"Series of single pods and services in /metrics. Off, and bounded when they are on, because Prometheus pays for each series that ever was."`
}

// Validate says which values must not be used.
func (w Web) Validate(at problems.Section) {
	validateAddresses(at, "listenAddresses", w.ListenAddresses)
	at.PathOrNone("configFile", w.ConfigFile)
}

// PodSeries bounds the series of single workloads.
type PodSeries struct {
	Top       int `yaml:"top" unit:"workloads" why:"How many workloads have series: those that use or wait the most. A workload that has some keeps them until it is not among half as many again (hysteresis). 0: none."`
	MaxSeries int `yaml:"maxSeries" unit:"series" why:"How many series they have together at most; a workload has about 20, and 4 more for each further disk. A workload gets series only if a third of them stay unused."`
}

const (
	maxTop    = 10_000  // more than a node has pods
	minSeries = 100     // enough for a few workloads
	maxSeries = 100_000 // some 10 MB per scrape
)

// Validate says which values must not be used.
func (s PodSeries) Validate(at problems.Section) {
	at.Int("top", s.Top, 0, maxTop)
	at.Int("maxSeries", s.MaxSeries, minSeries, maxSeries)
}

// API configures the local API.
type API struct {
	Socket string `yaml:"socket" unit:"path" why:"The Unix socket; empty: /run/plimsoll/plimsoll.sock as root, else $XDG_RUNTIME_DIR/plimsoll/plimsoll.sock."`
}

// maxSocketPath is sun_path of unix(7) without the final zero.
const maxSocketPath = 107

// Validate says which values must not be used.
func (a API) Validate(at problems.Section) {
	at.PathOrNone("socket", a.Socket)
	at.Must(len(a.Socket) <= maxSocketPath,
		fmt.Sprintf("longer than the %d bytes a Unix socket's path can have", maxSocketPath), "socket")
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" unit:"debug, info, warn or error" why:"The least important level that is logged."`
	Format string `yaml:"format" unit:"text or json" why:"text for people, json for collectors. In the journal of systemd, text has a field for each fact."`
}

// Validate says which values must not be used.
func (l Log) Validate(at problems.Section) {
	at.OneOf("level", l.Level, "debug", "info", "warn", "error")
	at.OneOf("format", l.Format, "text", "json")
}

// Workloads configures which cgroups are measured.
type Workloads struct {
	Roots []string `yaml:"roots" unit:"cgroup paths" why:"The cgroups below which workloads are looked for, such as /kubepods.slice; empty: everywhere. Fewer cost less."`
}

// Validate says which values must not be used.
func (w Workloads) Validate(at problems.Section) { at.Paths("roots", w.Roots) }

// State configures the state that survives restarts.
type State struct {
	Dir string `yaml:"dir" unit:"path" why:"The state directory; empty: /var/lib/plimsoll/state as root, else below $XDG_STATE_HOME. Without state a restarted agent could evict a second pod for the same pressure."`
	// Decisions are bound at startup.
	Decisions     int    `yaml:"decisions" why:"How many decisions are stored, in memory and over a restart, for plimsoll explain."`
	DecisionsSize uint64 `yaml:"decisionsSize" unit:"bytes" why:"How large the files of decisions may grow, whatever their number."`
}

const (
	maxDecisions = 10_000
	minDecisions = 256 << 10
)

// Validate says which values must not be used.
func (s State) Validate(at problems.Section) {
	at.PathOrNone("dir", s.Dir)
	at.Int("decisions", s.Decisions, 1, maxDecisions)
	at.Must(s.DecisionsSize >= minDecisions, problems.Bytes(s.DecisionsSize)+" is less than 256Ki: too small for a few decisions of a full node", "decisionsSize")
}

// Kubernetes configures how the cluster is reached.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" unit:"path" why:"The kubeconfig of the API server; empty: the service account of the pod."`
	Node       string `yaml:"node" unit:"name" why:"The name of the Node that is this host; empty: the host's name."`
	Standalone bool   `yaml:"standalone" why:"Whether the host belongs to no cluster: it is measured and judged, and no pod is evicted."`
}

// Validate says which values must not be used.
func (k Kubernetes) Validate(at problems.Section) {
	at.PathOrNone("kubeconfig", k.Kubeconfig)
	at.Must(!k.Standalone || k.Kubeconfig == "", "a standalone agent has no kubeconfig", "kubeconfig", "standalone")
}

// Lease configures the heartbeat.
type Lease struct {
	Enabled  bool          `yaml:"enabled" why:"Whether the agent renews a Lease. Without it the cluster does not notice that the agent is gone."`
	Target   string        `yaml:"target" unit:"agent or node" why:"Which Lease is renewed: agent is the agent's own, in the namespace plimsoll-node-lease; node is the Node's beside it, which keeps the Node Ready, only for nodes without a kubelet. While another holder renews the Node's, the agent does not."`
	Interval time.Duration `yaml:"interval" why:"The time between two renewals, with a jitter of 4 %. As often as a kubelet's. The controller counts an agent as silent by its own agents.monitorGracePeriod: keep this a quarter of it."`
	Duration time.Duration `yaml:"duration" why:"How long a renewal is valid. Long enough that several may be lost."`
}

// The targets of lease.target.
const (
	LeaseOfAgent = "agent"
	LeaseOfNode  = "node"
)

const (
	minInterval    = 500 * time.Millisecond
	maxInterval    = 5 * time.Minute
	leaseIntervals = 2 // one renewal may be lost
)

// Validate says which values must not be used.
func (l Lease) Validate(at problems.Section) {
	at.OneOf("target", l.Target, LeaseOfAgent, LeaseOfNode)
	at.Duration("interval", l.Interval, minInterval, maxInterval)
	at.Duration("duration", l.Duration, time.Second, problems.MaxDuration)
	at.AtLeast(problems.Period{Key: "duration", Value: l.Duration}, problems.Period{Key: "interval", Value: l.Interval}, leaseIntervals)
}

// Conditions configures the marks on the Node.
type Conditions struct {
	Enabled bool `yaml:"enabled" why:"Whether conditions and taints are written. Without them no pod is evicted either, because it would be scheduled to the same node again."`
}

// VGDP configures how data movers are limited.
type VGDP struct {
	Enabled bool `yaml:"enabled" why:"Whether the node has a data mover budget, which shrinks under pressure, and throttles the movers that cause it."`
	DryRun  bool `yaml:"dryRun" why:"Whether to decide only: no data mover budget is published and no mover is throttled. true, so that a fresh install observes."`
	// Concurrency is Velero's setting, repeated here.
	Concurrency int `yaml:"concurrency" unit:"data mover loads" why:"How many data mover loads all Veleros together run on this node (loadConcurrency of their node-agents): so many the budget grows back to. If more run, they count as well."`
}

// Throttleable says of each pod that runs whether it may be throttled. label is that of a
// namespace.
func (a *Agent) Throttleable(s *snapshot.Snapshot, list pods.List, label func(namespace string) string) map[string]throttle.Workload {
	mover := throttle.Workload{Mover: true, DryRun: a.VGDP.DryRun}
	if !a.VGDP.Enabled {
		mover.Exempt = "vgdp.enabled is false"
	}
	all := map[string]throttle.Workload{}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.Kind != snapshot.KindPod {
			continue
		}
		switch p, listed := list.ByCgroupUID(w.PodUID); {
		case listed && (p.IsMover() || p.Maintenance), w.Pod != nil && (w.Pod.Mover || w.Pod.Maintenance):
			all[w.Cgroup] = mover.With(&p)
		case listed:
			all[w.Cgroup] = a.Throttle.Of(&p, label(p.Namespace), a.Eviction.OptOutHard)
		}
	}
	return all
}

// maxMoverLoads is more than any node runs.
const maxMoverLoads = 1000

// Validate says which values must not be used.
func (v VGDP) Validate(at problems.Section) { at.Int("concurrency", v.Concurrency, 1, maxMoverLoads) }

// gapTicks is how many ticks may pass without a sample before the window is
// dropped.
const gapTicks = 3

// MaxGap is the longest time between two samples across which rules are
// evaluated.
func (a *Agent) MaxGap() time.Duration { return gapTicks * a.Tick }

// Kind is AgentConfiguration.
func (Agent) Kind() string { return "AgentConfiguration" }

// Default is the configuration of an agent without a file.
func Default() Agent {
	return Agent{
		Tick:             time.Second,
		Window:           10 * time.Second,
		History:          2 * time.Minute,
		Watchdog:         time.Minute,
		Triggers:         Triggers{Enabled: true, Stall: 150 * time.Millisecond, Window: time.Second},
		Paths:            Paths{Procfs: "/proc", Sysfs: "/sys"},
		Web:              Web{ListenAddresses: []string{"127.0.0.1:9773"}, PodSeries: PodSeries{MaxSeries: 10_000}},
		Log:              Log{Level: "info", Format: "text"},
		Filesystems:      probes.DefaultFilesystemConfig(),
		ContainerRuntime: cri.DefaultConfig(),
		Recording:        recording.DefaultConfig(),
		State:            State{Decisions: 200, DecisionsSize: 8 << 20},
		Lease:            Lease{Enabled: true, Target: LeaseOfAgent, Interval: 10 * time.Second, Duration: 40 * time.Second},
		Conditions:       Conditions{Enabled: true},
		Eviction:         evict.DefaultConfig(),
		Throttle:         throttle.DefaultConfig(),
		VGDP:             VGDP{Enabled: true, DryRun: true, Concurrency: 1},
		Plugins:          Plugins{plugins.Default(), outer.DefaultConfig()},
	}
}
