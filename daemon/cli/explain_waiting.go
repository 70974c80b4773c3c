package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/remote"
)

func explainBackupCommand() *cobra.Command {
	return explainWaitingCommand("backup", "NAME", &cobra.Command{
		Short:   "Why a Velero Backup waits, and its place in the queue",
		Example: `  plimsoll explain backup nightly-20261123`,
		Long: "Why a Velero Backup waits, and its place in the queue. Reads the API server and decides as a controller with\n" +
			"the configuration of --config would; without it, with a limit of 1, first in, first out and no deadlines.\n" +
			"Where deadlines are tight, the leader's place may be another one: it may have seen more Backups end.",
	}, askBackup, explain.WriteBackup)
}

func askBackup(ctx context.Context, file *config.FileOf[config.Controller], clients *controller.Clients, namespace, name string, now time.Time) (*explain.Backup, error) {
	of := explain.Of{
		Backups: clients.Dynamic.Resource(backup.Resource()).Namespace(namespace), Schedules: clients.Dynamic.Resource(backup.ScheduleResource()).Namespace(namespace),
		Namespaces: clients.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), Events: clients.Core,
	}
	s := file.Current().Backups
	b, err := explain.AskBackup(ctx, of, namespace, name, s, now)
	if err != nil {
		return nil, err
	}
	b.Disabled = file.Given() && !s.Enabled
	return b, nil
}

func explainLoadCommand() *cobra.Command {
	return explainWaitingCommand("load", "[KIND/]NAME", &cobra.Command{
		Short:   "Why a Velero data mover load waits: for a slot, a node or its turn",
		Example: `  plimsoll explain load du/nightly-20261123-x7k2p`,
		Long: "Why a DataUpload, DataDownload, PodVolumeBackup or PodVolumeRestore waits: for a slot, a node or its turn.\n" +
			"Reads the API server and decides as a controller with the configuration of --config would (default: a fresh install).\n" +
			"KIND is one of du, dd, pvb, pvr, or the kind's name.",
	}, askLoad, explain.WriteMoverLoad)
}

func askLoad(ctx context.Context, file *config.FileOf[config.Controller], clients *controller.Clients, namespace, name string, _ time.Time) (*explain.MoverLoad, error) {
	return explain.AskMoverLoad(ctx, controller.NewLoads(file, clients), namespace, name)
}

// waitingFlags select the Velero installation and the format of the answer.
type waitingFlags struct {
	clusterFlags

	config, output string
}

// explainWaitingCommand completes a command that explains, from the objects in
// the API server, why one object of Velero waits.
func explainWaitingCommand[T any](what, argument string, c *cobra.Command,
	ask func(context.Context, *config.FileOf[config.Controller], *controller.Clients, string, string, time.Time) (T, error),
	write func(io.Writer, T, time.Time) error,
) *cobra.Command {
	var f waitingFlags
	c.Use = what + " " + argument
	c.Args = arguments(1, 1)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkOutput(f.output); err != nil {
			return usageError{fmt.Errorf("explain: %w", err)}
		}
		now := time.Now()
		file, clients, err := f.open()
		if errors.Is(err, remote.ErrNoCluster) {
			return usageError{fmt.Errorf("explain: %s: %w", what, err)}
		}
		var answer T
		if err == nil {
			answer, err = ask(c.Context(), file, clients, f.namespace, args[0], now)
		}
		if err == nil && what == "backup" && f.config == "" {
			warn(c.ErrOrStderr(), "decided with a limit of 1, first in, first out and no deadlines: name the controller's configuration by --config")
		}
		switch {
		case err != nil:
		case isObject(f.output):
			err = writeObject(c.OutOrStdout(), f.output, answer)
		default:
			err = write(c.OutOrStdout(), answer, now)
		}
		if err != nil {
			return fmt.Errorf("explain: %s: %w", what, err)
		}
		return nil
	}
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "velero", "`NAMESPACE` of Velero")
	fl.StringVar(&f.config, "config", "", "configuration `FILE` of the controller")
	f.add(c)
	outputFlag(c, &f.output)
	return c
}

// open reads the controller's configuration and creates the clients.
func (f *waitingFlags) open() (*config.FileOf[config.Controller], *controller.Clients, error) {
	file, err := config.OpenOf(f.config, config.DefaultController, (&controllerFlags{kubeconfig: f.kubeconfig}).override)
	if err != nil {
		return nil, nil, err
	}
	access := f.access()
	access.Kubeconfig = file.Current().Kubernetes.Kubeconfig
	how, err := access.Rest()
	if err != nil {
		return nil, nil, err
	}
	clients, err := controller.NewClients(how, file.Current().Election.Duration)
	if err != nil {
		return nil, nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return file, clients, nil
}
