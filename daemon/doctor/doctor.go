// Package doctor examines whether this machine can be measured and the agent
// can work on it, row by row. It never needs a running agent.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// Result of one row.
type Result string

// The results. FAIL: a part of the agent would not work. WARN: it would measure
// or do less than it could.
const (
	Pass Result = "PASS"
	Warn Result = "WARN"
	Fail Result = "FAIL"
)

// Row is the result of one check.
type Row struct {
	Result Result `json:"result"`
	Check  string `json:"check"`
	// Finding is one sentence; with WARN and FAIL it says what to do.
	Finding string `json:"finding"`
}

// Examination is the configuration of the agent that is examined.
type Examination struct {
	Paths probes.Paths
	// Roots of workloads, as configured.
	Roots []string
	// Triggers as configured.
	Triggers probes.TriggerSettings
	// Filesystems as configured.
	Filesystems probes.FilesystemConfig
	// Disks as configured and as learned.
	Disks Disks
	// Network as configured.
	Network probes.NetworkConfig
	// ConfigFile, if any, and every mistake in it.
	ConfigFile   string
	ConfigErrors []string
	// Socket and Addresses on which the agent would listen.
	Socket    string
	Addresses []string
	// WebConfig is the file that authenticates clients there, empty for none;
	// TokenReview tells whether bearer tokens do.
	WebConfig   string
	TokenReview bool
	// PluginDirs are searched for outer plugins.
	PluginDirs []string
	// StateDir is where the agent would save its state. Disk reads it: while a read hangs,
	// no other one begins.
	StateDir string
	Disk     *state.Writer
	// StartedBy the agent would be started, in the words of package state.
	StartedBy string
	// Cluster is the client configuration, nil without a kubeconfig. ClusterErr is
	// why a kubeconfig cannot be used.
	Cluster    *rest.Config
	ClusterErr error
	// Kubeconfig is the file that Cluster was read from; empty: it is a pod's account.
	Kubeconfig string
	// Protected are the namespaces whose pods are never evicted, as configured.
	Protected []string
	// Acts are what the agent may change, as configured.
	Acts []Act
	// EvictsDirectly: the agent may evict without the controller. RequestsEvictions: it
	// makes EvictionRequests. Resizes: it throttles pods by in-place resize.
	EvictsDirectly    bool
	RequestsEvictions bool
	Resizes           bool
	// Katalyst: a rule needs the reclaimed resources of the node.
	Katalyst bool
	// MoverConcurrency is how many data mover loads may run at a time, as configured; 0: the
	// agent does not limit them.
	MoverConcurrency int
	// Lease of the agent, nil if it is switched off. NodeLease is the Node's own,
	// nil if a kubelet renews it.
	Lease, NodeLease *Lease
}

// Act is something that an agent may change.
type Act struct {
	What string
	// DryRun is the key by which it is only decided, Off the one that switches it off.
	// Without both the agent does it.
	DryRun, Off string
}

// Examine returns the rows, in a fixed order.
func (p Examination) Examine(ctx context.Context) []Row {
	rows := p.config()
	rows = append(rows, kernelRow(), userRow())
	rows = append(rows, p.kernelFiles()...)
	answers := client(p).Ping(ctx)
	rows = append(rows, p.socket(answers))
	for _, a := range p.Addresses {
		rows = append(rows, address(ctx, a, answers == nil))
	}
	rows = append(rows, p.webConfig(time.Now())...)
	rows = append(rows, p.stateDir(answers == nil)...)
	rows = append(rows, pluginDirs(p.Paths.Procfs, p.PluginDirs)...)
	return append(rows, p.cluster(ctx, answers == nil)...)
}

func client(p Examination) *web.Client { return web.NewClient(p.Socket) }

// Failed tells whether a row is a FAIL.
func Failed(rows []Row) bool {
	for _, r := range rows {
		if r.Result == Fail {
			return true
		}
	}
	return false
}

func (p Examination) config() []Row {
	if p.ConfigFile == "" {
		return []Row{{Pass, "configuration", "defaults (no --config)"}}
	}
	if len(p.ConfigErrors) == 0 {
		return []Row{{Pass, "configuration", p.ConfigFile + " is valid"}}
	}
	var rows []Row
	for _, m := range p.ConfigErrors {
		rows = append(rows, Row{Fail, "configuration", m})
	}
	return rows
}

// The oldest kernel that is supported.
const oldestMajor, oldestMinor = 5, 4

func kernelRow() Row {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Row{Fail, "kernel", "uname: " + err.Error()}
	}
	release := unix.ByteSliceToString(u.Release[:])
	major, minor, ok := kernelVersion(release)
	switch {
	case !ok:
		return Row{Warn, "kernel", fmt.Sprintf("cannot parse version %q; %d.%d or later is needed", release, oldestMajor, oldestMinor)}
	case major < oldestMajor || major == oldestMajor && minor < oldestMinor:
		return Row{Fail, "kernel", fmt.Sprintf("%s is older than %d.%d", release, oldestMajor, oldestMinor)}
	}
	return Row{Pass, "kernel", release + " " + unix.ByteSliceToString(u.Machine[:])}
}

// kernelVersion parses the first two numbers of a release such as
// 6.1.0-28-amd64.
func kernelVersion(release string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(release, ".")
	if !found {
		return 0, 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest)
	return major, minor, err1 == nil && err2 == nil
}

func userRow() Row {
	if os.Geteuid() == 0 {
		return Row{Pass, "user", "root"}
	}
	return Row{Warn, "user", fmt.Sprintf("uid %d: values that it may not read are absent; run as root to see all", os.Geteuid())}
}

// kernelFiles takes one sample and reports on its probes.
func (p Examination) kernelFiles() []Row {
	host, err := probes.NewHost(p.Paths, p.Roots)
	if err != nil {
		return []Row{{Fail, "kernel files", err.Error()}}
	}
	host.FollowNetwork(p.Network)
	s, err := read(host, p.Filesystems)
	if err != nil {
		return []Row{{Fail, "kernel files", err.Error()}}
	}
	var rows []Row
	for _, probe := range s.Probes {
		rows = append(rows, probeRow(probe, s))
	}
	if slow := unknownSpeed(s.NICs); len(slow) > 0 {
		rows = append(rows, Row{Warn, "link speed", "unknown for " + strings.Join(slow, ", ") + ": full links are not detected (set the speed in network.devices)"})
	}
	if flavour, err := host.CgroupFlavour(); err == nil {
		rows = append(rows, Row{Pass, "cgroups", fmt.Sprintf("%s, %d workloads", flavour, len(s.Workloads))})
	}
	rows = append(rows, attribution(s)...)
	rows = append(rows, stalls(s)...)
	rows = append(rows, p.Disks.rows(s)...)
	return append(rows, triggers(p.Paths, p.Triggers, s))
}

// probeRow fails for a probe that a rule needs, and warns for the others.
func probeRow(p snapshot.Probe, s *snapshot.Sample) Row {
	name := "probe " + p.Name
	took := "read in " + p.Duration.Round(time.Microsecond).String()
	switch {
	case p.Error == "" && p.Note != "":
		return Row{Warn, name, took + ": " + p.Note}
	case p.Error == "":
		return Row{Pass, name, took}
	}
	judged := p.Name == "memory" || p.Name == "vmstat" || p.Name == "pressure" && s.Pressure.Memory.Full.IsZero()
	if judged {
		return Row{Fail, name, p.Error + " (memory-stall cannot be evaluated in full)"}
	}
	return Row{Warn, name, p.Error}
}

func unknownSpeed(nics []snapshot.NIC) []string {
	var names []string
	for _, n := range nics {
		if n.Physical && n.SpeedBytesPerSecond.IsZero() {
			names = append(names, n.Name)
		}
	}
	return names
}

func (p Examination) socket(answers error) Row {
	switch {
	case answers == nil:
		return Row{Pass, "local socket", "an agent answers on " + p.Socket}
	case !errors.Is(answers, web.ErrNoAgent):
		return Row{Fail, "local socket", p.Socket + ": " + answers.Error()}
	}
	if dir, err := creatable(filepath.Dir(p.Socket)); err != nil {
		return Row{Fail, "local socket", fmt.Sprintf("cannot create %s: %s: %v (choose another with --api.socket)", p.Socket, dir, err)}
	}
	return Row{Pass, "local socket", p.Socket + " is free"}
}

// diskTimeout is how long an examination waits for the disk of the state directory, as long as
// the start of an agent does.
const diskTimeout = 3 * time.Second

// stateDir has the rows about the state directory, or one where its disk hangs.
func (p Examination) stateDir(agentRuns bool) []Row {
	rows, err := state.Read(p.Disk, diskTimeout, func() ([]Row, error) {
		return []Row{p.state(), p.singleAgent(agentRuns)}, nil
	})
	if err != nil {
		return []Row{{Fail, "state directory", fmt.Sprintf("%s: its disk does not answer within %s; an agent that starts now begins with no state, and a pod is evicted only after a minute, or at once where memory is below its floor (repair the disk, or choose another with --state.dir)", p.StateDir, diskTimeout)}}
	}
	return rows
}

// state: without a writable state directory each eviction waits, and a restart may evict
// one pod more.
func (p Examination) state() Row {
	const check = "state directory"
	if dir, err := creatable(p.StateDir); err != nil {
		return Row{Fail, check, fmt.Sprintf("%s: %s: %v; without it a pod is evicted only after a minute, or at once where memory is below its floor, and each restart begins with no state (choose another with --state.dir)", p.StateDir, dir, err)}
	}
	if !exists(p.StateDir) {
		return Row{Pass, check, p.StateDir + " can be created"}
	}
	return Row{Pass, check, p.StateDir + " is writable"}
}

// singleAgent: one agent of a node may use the state directory. An agent that answers
// here, or was started the way this one would be, is the one examined.
func (p Examination) singleAgent(agentRuns bool) Row {
	const check = "one agent"
	holder, locked, err := state.Peek(p.StateDir)
	switch {
	case err != nil:
		return Row{Warn, check, err.Error() + " (run as the agent's user to see whether an agent uses it)"}
	case !locked:
		return Row{Pass, check, "no agent uses " + p.StateDir}
	case agentRuns || holder.How == p.StartedBy:
		return Row{Pass, check, fmt.Sprintf("the agent uses %s (%s)", p.StateDir, holder)}
	}
	return Row{Fail, check, fmt.Sprintf("another agent uses %s (%s), so one that is started here exits: two would double every rate limit. Keep one (systemctl disable --now plimsoll-agent; or exclude this node by the chart's agent.affinity)", p.StateDir, holder)}
}

// creatable tells whether a directory is writable, or can be created; dir is the
// nearest one that exists.
func creatable(path string) (dir string, err error) {
	dir = path
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return dir, errors.Unwrap(err)
	case !info.IsDir():
		return dir, unix.ENOTDIR
	}
	return dir, unix.Access(dir, unix.W_OK|unix.X_OK)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func address(ctx context.Context, a string, agentRuns bool) Row {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a)
	switch {
	case err == nil:
		return Row{Pass, "web address", a + " is free"}.closing(l)
	case errors.Is(err, unix.EADDRINUSE) && agentRuns:
		return Row{Pass, "web address", a + " is in use, and an agent runs"}
	case errors.Is(err, unix.EADDRINUSE):
		return Row{Fail, "web address", a + " is in use by another program (choose another with --web.listen-address)"}
	}
	return Row{Fail, "web address", err.Error()}
}

func (r Row) closing(l net.Listener) Row {
	if err := l.Close(); err != nil {
		return Row{Warn, r.Check, err.Error()}
	}
	return r
}
