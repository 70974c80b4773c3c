package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/release"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/state"
)

func releaseCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "release",
		Short: "Hand back everything held, and take every mark of ours away",
		Long: "Hand back everything held, and take every mark of ours away: Gates, hidden loads, tickets and reasons,\n" +
			"taints and conditions, Leases. It is what an uninstaller runs, once agents and controller have ended, and\n" +
			"may be run again. With --node it takes away what the agent of that node has left, on the Node and on this\n" +
			"machine, and reads an agent's configuration; without, a controller's.",
		Args: wrongUse(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			do := f.releaseAll
			if f.node != "" {
				do = f.releaseNode
			}
			err := do(c.Context(), c.OutOrStdout(), slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
			switch {
			case errors.Is(err, errNoCluster):
				return usageError{errors.New("release: no cluster: say --kubeconfig FILE")}
			case err != nil:
				return prefixed("release: ", err)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE` of the controller, or with --node of the agent")
	fl.StringVar(&f.node, "node", "", "`NAME` of the node whose agent has ended for good: nothing else is touched")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how the API server is reached (default: as a pod does)")
	fl.StringVar(&f.state, "state.dir", "", "`DIR` of what the node's agent has kept")
	fl.StringVar(&f.procfs, "path.procfs", "", "where the host's proc is mounted")
	fl.StringVar(&f.sysfs, "path.sysfs", "", "where the host's sys is mounted")
	fl.StringVar(&f.cgroupfs, "path.cgroupfs", "", "where the host's cgroups are mounted (default: found)")
	fl.StringVar(&f.rootfs, "path.rootfs", "", "where the host's root is mounted (default: found)")
	return c
}

func (f *agentFlags) releaseAll(ctx context.Context, out io.Writer, log *slog.Logger) error {
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

// releaseNode begins with this machine: it needs no cluster for that.
func (f *agentFlags) releaseNode(ctx context.Context, out io.Writer, log *slog.Logger) error {
	file, err := config.Open(f.config, f.override)
	if err != nil {
		return err
	}
	c := file.Current()
	here := liftMovers(c, out, log)
	if c.Kubernetes.Standalone {
		return here
	}
	r, err := newRelease(c.Kubernetes.Kubeconfig, config.DefaultController().Election, out, log)
	if err != nil {
		return errors.Join(here, err)
	}
	return errors.Join(here, r.Node(ctx, f.node))
}

func newRelease(kubeconfig string, election config.Election, out io.Writer, log *slog.Logger) (*release.Release, error) {
	how, err := reach(kubeconfig)
	if err != nil {
		return nil, err
	}
	clients, err := newClients(how, election.Duration)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return &release.Release{
		Dynamic: clients.dynamic, Core: clients.core, Leases: clients.coordination,
		Election: types.NamespacedName{Namespace: election.Namespace, Name: leaseName}, Out: out, Log: log,
	}, nil
}

// liftMovers frees the data movers that this machine's agent has slowed down.
func liftMovers(c *config.Agent, out io.Writer, log *slog.Logger) error {
	file := state.File[moversKept]{Path: filepath.Join(c.State.Dir, "movers.json")}
	kept, err := file.Load()
	if errors.Is(err, state.ErrNone) || err == nil && len(kept.Limits) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("limits of data movers are not known, and stay until their pods end: %w", err)
	}
	host, err := probes.NewHost(probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}, c.Workloads.Roots)
	if err != nil {
		return err
	}
	m := newMovers(c.State.Dir, host, log)
	clear(m.curbs)
	if err := errors.Join(m.book.Set(nil), m.remember()); err != nil {
		return fmt.Errorf("limits of data movers: %w", err)
	}
	for _, l := range kept.Limits {
		fmt.Fprintf(out, "%s: its limit is lifted\n", l.Knob)
	}
	return nil
}
