package daemon

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
	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// backupFlags say which Backup, and how to answer.
type backupFlags struct{ config, kubeconfig, namespace, output string }

func explainBackupCommand() *cobra.Command {
	var f backupFlags
	c := &cobra.Command{
		Use:   "backup NAME",
		Short: "Why a Velero Backup waits: its place in the queue, and for whom",
		Long: "Why a Velero Backup waits: its exact place in the queue, and for whom. It reads the API server and\n" +
			"decides as the controller would; with --config by the controller's own settings.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("explain: backup: want one NAME, not %d", len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(f.output); err != nil {
				return usageError{fmt.Errorf("explain: %w", err)}
			}
			err := f.answer(c.Context(), c.OutOrStdout(), args[0])
			if errors.Is(err, errNoCluster) {
				return usageError{errors.New("explain: backup: no cluster: say --kubeconfig FILE")}
			}
			if err != nil {
				return fmt.Errorf("explain: backup: %w", err)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "velero", "`NS` of the Velero")
	fl.StringVar(&f.config, "config", "", "the controller's configuration `FILE`")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how the API server is reached (default: as a pod does)")
	outputFlag(c, &f.output)
	return c
}

func (f *backupFlags) answer(ctx context.Context, out io.Writer, name string) error {
	file, err := config.OpenOf(f.config, config.DefaultController, (&controllerFlags{kubeconfig: f.kubeconfig}).override)
	if err != nil {
		return err
	}
	how, err := reach(file.Current().Kubernetes.Kubeconfig)
	if err != nil {
		return err
	}
	clients, err := newClients(how, file.Current().Election.Duration)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	now := time.Now()
	b, err := explain.AskBackup(ctx, clients.dynamic.Resource(backup.Resource()).Namespace(f.namespace),
		clients.metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), f.namespace, name, file.Current().Backups.Config, now)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return view.WriteJSON(out, b)
	}
	return explain.WriteBackup(out, b, now)
}
