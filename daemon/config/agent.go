package config

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Agent is the configuration of the agent on a node.
type Agent struct {
	Tick      time.Duration `yaml:"tick" why:"How often the host is sampled and the built-in rules judge; readiness and reaction are counted in ticks."`
	Window    time.Duration `yaml:"window" why:"The sliding window over which rates and ratios are taken; shorter follows faster, longer is calmer."`
	History   time.Duration `yaml:"history" why:"How far back samples are kept, so how far back any rule can look; memory grows with it."`
	Watchdog  time.Duration `yaml:"watchdog" why:"Without a tick for so long the agent calls itself dead and is restarted; much longer than a tick, for a loaded node is slow and not dead."`
	Paths     Paths         `yaml:"paths" why:"Where the host's kernel file systems are mounted; a container sees them elsewhere."`
	Web       Web           `yaml:"web" why:"The HTTP server for metrics, health and the status page; everything on it is read-only."`
	API       API           `yaml:"api" why:"The local API for plimsoll top, explain and plugins."`
	Log       Log           `yaml:"log" why:"What is written to standard error."`
	Workloads Workloads     `yaml:"workloads" why:"Whose pressure and share are measured besides the node's."`
	Recording Recording     `yaml:"recording" why:"Samples kept in a file for plimsoll replay and advise; off until a file is named."`
	State     State         `yaml:"state" why:"What must outlive a restart of the agent."`
	// Kubernetes is not looked at by an agent that runs standalone.
	Kubernetes Kubernetes     `yaml:"kubernetes" why:"The cluster that the node belongs to; an agent that runs standalone does not look at it."`
	Conditions Conditions     `yaml:"conditions" why:"How the Node is marked while a rule is met."`
	Eviction   evict.Config   `yaml:"eviction" why:"How the agent decides about pods."`
	Plugins    plugins.Config `yaml:"plugins" why:"The rules that say when a threshold is met."`
}

// Paths says where the host is mounted.
type Paths struct {
	Procfs   string `yaml:"procfs" unit:"path" why:"The host's /proc."`
	Sysfs    string `yaml:"sysfs" unit:"path" why:"The host's /sys."`
	Cgroupfs string `yaml:"cgroupfs" unit:"path" why:"The host's cgroup hierarchy; empty: found among the mounts."`
}

// Web configures the HTTP server.
type Web struct {
	ListenAddresses []string `yaml:"listenAddresses" unit:"host:port" why:"Where it listens; none turns it off. Only this host can reach the default."`
	Open            bool     `yaml:"open" why:"Whether an address that others can reach serves every page without TLS or passwords; false serves them only metrics and health."`
	Pprof           bool     `yaml:"pprof" why:"Whether /debug/pprof/ answers; profiles show the inside of the process."`
}

// API configures the local API.
type API struct {
	Socket string `yaml:"socket" unit:"path" why:"The Unix socket; empty: /run/plimsoll/plimsoll.sock as root, else $XDG_RUNTIME_DIR/plimsoll/plimsoll.sock."`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" unit:"debug, info, warn or error" why:"The least important level that is written."`
	Format string `yaml:"format" unit:"text or json" why:"Text for people, JSON for collectors."`
}

// Workloads configures which cgroups are measured.
type Workloads struct {
	Roots []string `yaml:"roots" unit:"cgroup paths" why:"The cgroups below which workloads are looked for, such as /kubepods.slice; empty: everywhere. Fewer cost less."`
}

// Recording configures the recording of samples.
type Recording struct {
	File    string `yaml:"file" unit:"path" why:"The file to record to; empty: no recording."`
	MaxSize uint64 `yaml:"maxSize" unit:"bytes" why:"Where the recording ends growing, so that it never fills the disk."`
}

// State configures what is kept.
type State struct {
	Dir string `yaml:"dir" unit:"path" why:"Its directory; empty: /var/lib/plimsoll/state as root, else below $XDG_STATE_HOME. Without it a restarted agent could choose a second victim for the same pressure."`
}

// Kubernetes says how the cluster is reached.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" unit:"path" why:"How to reach the API server; empty: as a pod of the cluster does."`
	Node       string `yaml:"node" unit:"name" why:"The Node that is this host; empty: the host's name."`
}

// Conditions configures the marks on the Node.
type Conditions struct {
	Enabled bool `yaml:"enabled" why:"Whether conditions and taints are written; without them nobody is evicted either, for a pod would come back to the same node."`
}

// Kind is AgentConfiguration.
func (Agent) Kind() string { return "AgentConfiguration" }

// Default is the configuration of an agent without a file.
func Default() Agent {
	return Agent{
		Tick:       time.Second,
		Window:     10 * time.Second,
		History:    2 * time.Minute,
		Watchdog:   time.Minute,
		Paths:      Paths{Procfs: "/proc", Sysfs: "/sys"},
		Web:        Web{ListenAddresses: []string{"127.0.0.1:9773"}},
		Log:        Log{Level: "info", Format: "text"},
		Recording:  Recording{MaxSize: 256 << 20},
		Conditions: Conditions{Enabled: true},
		Eviction:   evict.DefaultConfig(),
		Plugins:    plugins.Default(),
	}
}
