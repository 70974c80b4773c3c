package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/release"
	"github.com/plimsoll-dev/plimsoll/state"
)

func releaseCommand() *cobra.Command {
	var f agentFlags
	var stale bool
	c := &cobra.Command{
		Use:   "release",
		Short: "Release everything held and remove every mark of Plimsoll",
		Long: "Release everything held and remove every mark of Plimsoll: Gates, hidden data mover loads, tickets and reasons,\n" +
			"postponed maintenances, resized CPU limits, taints and conditions, EvictionRequests, Leases. Uninstallers run it once\n" +
			"agents and controller have stopped; it may be run again. With --node it removes only what the agent of that node left,\n" +
			"unless that runs, on the Node and, where no agent runs here, on this machine, and reads an agent's configuration; without --node it\n" +
			"reads a controller's. With --stale it releases only the hidden data mover loads that no controller holds any more;\n" +
			"controllers and agents may run.",
		Args: arguments(0, 0),
		Example: `  plimsoll release --kubeconfig admin.kubeconfig
  plimsoll release --node worker-7 --config /etc/plimsoll/agent.yaml
  plimsoll release --stale`,
		RunE: func(c *cobra.Command, _ []string) error {
			do := releaseAll
			switch {
			case stale && f.node != "":
				return wrong(c, "--stale and --node cannot be used together")
			case stale:
				do = releaseStale
			case f.node != "":
				do = releaseNode
			}
			err := do(c.Context(), &f, c.OutOrStdout(), slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
			switch {
			case errors.Is(err, process.ErrNoKubeconfig):
				return usageError{errors.New("release: no kubeconfig: set --kubeconfig")}
			case err != nil:
				return prefixed("release: ", err)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE` of the controller, or with --node of the agent")
	fl.StringVar(&f.node, "node", "", "`NAME` of the node whose agent was stopped for good; nothing else is touched")
	fl.BoolVar(&stale, "stale", false, "release only hidden data mover loads that no controller holds any more")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	fl.StringVar(&f.state, "state.dir", "", "`DIR` with the state of the node's agent")
	fl.StringVar(&f.procfs, "path.procfs", "", "`PATH` of the host's /proc")
	fl.StringVar(&f.sysfs, "path.sysfs", "", "`PATH` of the host's /sys")
	fl.StringVar(&f.cgroupfs, "path.cgroupfs", "", "`PATH` of the host's cgroup hierarchy (default: found among the mounts)")
	fl.StringVar(&f.rootfs, "path.rootfs", "", "`PATH` of the host's root directory (default: that of pid 1)")
	return c
}

func releaseAll(ctx context.Context, f *agentFlags, out io.Writer, log *slog.Logger) error {
	file, err := config.OpenOf(f.config, config.DefaultController, (&controllerFlags{kubeconfig: f.kubeconfig}).override)
	if err != nil {
		return err
	}
	c := file.Current()
	r, err := newRelease(c.Kubernetes.Kubeconfig, c.Election, out, log)
	if err != nil {
		return err
	}
	return r.All(ctx)
}

// releaseStale is what the CronJob plimsoll-release-hidden runs.
func releaseStale(ctx context.Context, f *agentFlags, out io.Writer, log *slog.Logger) error {
	r, err := newRelease(f.kubeconfig, config.DefaultController().Election, out, log)
	if err != nil {
		return err
	}
	return r.Stale(ctx)
}

// errRunsHere: an agent has the state directory of this machine.
var errRunsHere = errors.New("an agent runs here")

// releaseNode begins with this machine, which needs no cluster. What an agent that runs here
// has put on this machine's Node stays.
func releaseNode(ctx context.Context, f *agentFlags, out io.Writer, log *slog.Logger) error {
	unnamed := *f
	unnamed.node = "" // the configuration names this machine's
	file, err := config.Open(f.config, unnamed.override)
	if err != nil {
		return errors.Join(err, releaseHere(f.readable(), out, log))
	}
	c := file.Current()
	here := releaseHere(c, out, log)
	if c.Kubernetes.Standalone {
		return here
	}
	if errors.Is(here, errRunsHere) {
		if own, err := agent.NodeName(c); err != nil || own == f.node {
			return errors.Join(here, fmt.Errorf("node %s: taints and conditions not removed: they are that agent's", f.node), err)
		}
		fmt.Fprintln(out, here)
		here = nil
	}
	r, err := newRelease(c.Kubernetes.Kubeconfig, config.DefaultController().Election, out, log)
	if err != nil {
		return errors.Join(here, err)
	}
	return errors.Join(here, r.Node(ctx, f.node))
}

// releaseHere removes the limits that an agent left on this machine. One that runs needs
// its limits, whichever node it is: the error is [errRunsHere] then.
func releaseHere(c *config.Agent, out io.Writer, log *slog.Logger) error {
	holder, running, err := agent.Holder(new(state.Writer), c.State.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("cannot see whether an agent runs on this machine, so its limits stay: %w", err)
	case running:
		return fmt.Errorf("limits on this machine: not removed, because %w (%s, state %s): stop it first to remove them", errRunsHere, holder, c.State.Dir)
	}
	return agent.RemoveLimits(c, out, log)
}

func newRelease(kubeconfig string, election config.Election, out io.Writer, log *slog.Logger) (*release.Release, error) {
	how, err := process.RestConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	clock := &agents.Clock{}
	how.Wrap(clock.Wrap)
	clients, err := controller.NewClients(how, election.Duration)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return &release.Release{
		Dynamic: clients.Dynamic, Core: clients.Core, Leases: clients.Coordination, Now: clock.Now,
		Election: types.NamespacedName{Namespace: election.Namespace, Name: controller.LeaseName}, Out: out, Log: log,
	}, nil
}
