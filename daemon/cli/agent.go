package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/top"
	"github.com/plimsoll-dev/plimsoll/files"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/systemd"
)

// agentFlags override the configuration file, unless they are empty.
type agentFlags struct {
	config, node, socket, logLevel, logFormat string
	procfs, sysfs, cgroupfs, rootfs           string
	kubeconfig, state, web                    string
	addresses, plugins                        []string
	standalone, dryRun                        bool
}

func agentCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this node",
		Long: "Run the agent of this node: it samples the kernel, evaluates the rules, marks the Node, throttles and evicts pods,\n" +
			"and serves the status page, metrics and API. It writes a line for each change; plimsoll top shows it live.",
		Args:        func(c *cobra.Command, args []string) error { return f.refused(c, arguments(0, 0)(c, args)) },
		Annotations: map[string]string{service: "until it is stopped"},
		Example: `  plimsoll agent --standalone
  plimsoll agent --kubeconfig /etc/plimsoll/kubeconfig --config /etc/plimsoll/agent.yaml --dry-run`,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return f.refused(c, unknownFlag(c, err)) })
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE`, reloaded when it changes")
	fl.StringVar(&f.node, "node", "", "`NAME` of the Node (default: the host's name)")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	fl.StringVar(&f.state, "state.dir", "", "`DIR` for the state that must survive a restart")
	fl.BoolVar(&f.dryRun, "dry-run", false, "decide, but write nothing: no condition, taint, eviction, data mover budget or throttle, whatever the configuration says")
	fl.BoolVar(&f.standalone, "standalone", false, "run without a cluster; nothing is evicted")
	fl.StringArrayVar(&f.plugins, "plugins.dir", nil, "`DIR` with the sockets of outer plugins; may be repeated")
	fl.StringArrayVar(&f.addresses, "web.listen-address", nil, "`ADDR` on which to serve status page, API and metrics; may be repeated")
	fl.StringVar(&f.web, "web.config.file", "", "web configuration `FILE` of Prometheus' exporter-toolkit: TLS, client certificates, passwords")
	f.common(c)
	return c
}

// common adds the flags of every command that reads the kernel.
func (f *agentFlags) common(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.socket, "api.socket", "", "`PATH` of the agent's local socket")
	fl.StringVar(&f.logLevel, "log.level", "", "least `LEVEL` that is logged: debug, info, warn or error")
	fl.StringVar(&f.logFormat, "log.format", "", "`FORMAT` of the log: text or json")
	fl.StringVar(&f.procfs, "path.procfs", "", "`PATH` of the host's /proc")
	fl.StringVar(&f.sysfs, "path.sysfs", "", "`PATH` of the host's /sys")
	fl.StringVar(&f.cgroupfs, "path.cgroupfs", "", "`PATH` of the host's cgroup hierarchy (default: found among the mounts)")
	fl.StringVar(&f.rootfs, "path.rootfs", "", "`PATH` of the host's root directory (default: that of pid 1)")
}

func (f *agentFlags) override(c *config.Agent) {
	set := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	set(&c.API.Socket, absolute(f.socket))
	set(&c.Kubernetes.Kubeconfig, absolute(f.kubeconfig))
	switch {
	case f.standalone:
		c.Kubernetes.Standalone, c.Kubernetes.Kubeconfig = true, ""
	case f.kubeconfig != "":
		c.Kubernetes.Standalone = false
	}
	set(&c.Kubernetes.Node, f.node)
	set(&c.State.Dir, absolute(f.state))
	c.Eviction.DryRun = c.Eviction.DryRun || f.dryRun
	c.VGDP.DryRun = c.VGDP.DryRun || f.dryRun
	c.Throttle.DryRun = c.Throttle.DryRun || f.dryRun
	set(&c.Web.ConfigFile, absolute(f.web))
	set(&c.Log.Level, f.logLevel)
	set(&c.Log.Format, f.logFormat)
	set(&c.Paths.Procfs, f.procfs)
	set(&c.Paths.Sysfs, f.sysfs)
	set(&c.Paths.Cgroupfs, f.cgroupfs)
	set(&c.Paths.Rootfs, f.rootfs)
	if len(f.addresses) > 0 {
		c.Web.ListenAddresses = f.addresses
	}
	if len(f.plugins) > 0 {
		c.Plugins.Dirs = nil
		for _, dir := range f.plugins {
			c.Plugins.Dirs = append(c.Plugins.Dirs, absolute(dir))
		}
	}
	if c.API.Socket == "" {
		c.API.Socket = defaultSocket(os.Geteuid(), os.Getenv)
	}
	if c.State.Dir == "" {
		c.State.Dir = defaultState(os.Geteuid(), os.Getenv)
	}
}

// absolute makes a path of the command line absolute, as a configuration
// requires.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // no working directory: the validation reports the path
}

func (f *agentFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	runs := false
	defer func() {
		if err != nil && !runs {
			err = errors.Join(err, f.removeLimits(stdout, stderr))
		}
	}()
	if f.standalone && f.kubeconfig != "" {
		return usageError{errors.New("agent: --standalone and --kubeconfig exclude each other")}
	}
	file, err := config.Open(f.config, f.override)
	if err != nil {
		return prefixed("config: ", err)
	}
	var level slog.LevelVar
	log, flush := logger(stderr, file.Current().Log, &level)
	defer flush()
	file.Logger = log
	klog.SetSlogLogger(log) // logs of client-go become part of ours
	lock, err := agent.LockStateDir(file.Current().State.Dir, log)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer lock.Release()
	a, err := agent.New(file, log, f.config, lock)
	if err == nil && !file.Current().Kubernetes.Standalone {
		err = a.Join()
	}
	switch {
	case errors.Is(err, process.ErrNoKubeconfig):
		return usageError{fmt.Errorf("agent: %w", err)}
	case err != nil:
		return fmt.Errorf("agent: %w", err)
	}
	a.Level = &level
	disk := new(state.Writer) // while a read of it hangs, no examination begins another
	a.Examine = func(ctx context.Context) any { return f.examination(disk).Examine(ctx) }
	changes := &top.Changes{Out: stdout}
	a.Show = changes.Show
	a.OnListening = func(url string) { changes.Page = cmp.Or(changes.Page, url) }
	if err = a.Open(ctx); err == nil {
		runs = true
		err = a.Run(ctx)
	}
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// refused is the error of a command line with which no agent starts, where there is one. Of its
// flags those before the first wrong one are known.
func (f *agentFlags) refused(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, f.removeLimits(c.OutOrStdout(), c.ErrOrStderr()))
}

// removeLimits removes the limits that an earlier agent left on pods, since this one does not
// start and look after them. An agent that runs needs them.
func (f *agentFlags) removeLimits(stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c := f.readable()
	switch err := releaseHere(c, stdout, log); {
	case err == nil || errors.Is(err, errRunsHere):
		return nil
	case errors.Is(err, state.ErrTimeout):
		return fmt.Errorf("agent: %w; when the disk of the state directory answers, run on this machine as root: %s", err, agent.ReleaseCommand(c))
	default:
		return fmt.Errorf("agent: %w", err)
	}
}

// readable is the configuration, as far as it can be read.
func (f *agentFlags) readable() *config.Agent {
	c := config.Default()
	if text, err := files.Read(f.config, maxConfig); err == nil {
		_ = config.Decode(f.config, text, &c) // what it cannot read keeps its default
	}
	f.override(&c)
	return &c
}

// maxConfig bounds a configuration that is read as far as it can be.
const maxConfig = 256 << 10

// terminal returns the file descriptor if w is a terminal.
func terminal(w io.Writer) (fd int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// color is on for terminals that know it, unless NO_COLOR is set (no-color.org).
func color(w io.Writer) bool { return interactive(w) && os.Getenv("NO_COLOR") == "" }

// logger writes to stderr at the configured level, which a reload changes
// through level. If stderr is the journal, text logs become journal entries. It waits for
// no reader; flush does.
func logger(w io.Writer, c config.Log, level *slog.LevelVar) (log *slog.Logger, flush func()) {
	process.SetLevel(level, c)
	queue := process.NewLogQueue(func(lines int) {
		log.Warn("lines of this log are lost: it was not read in time; see whether the disk of the container runtime or the journal hangs", "lines", lines)
	})
	o := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(queue.Writer(w), o))
	switch {
	case c.Format == "json":
		handler = slog.NewJSONHandler(queue.Writer(w), o)
	case w == os.Stderr && systemd.StderrIsJournal():
		to := systemd.NewJournal(level)
		send := to.Send
		to.Send = func(message string, priority journal.Priority, fields map[string]string) error {
			queue.Add(func() error { return send(message, priority, fields) })
			return nil
		}
		handler = to
	}
	log = slog.New(handler)
	return log, queue.Flush
}
