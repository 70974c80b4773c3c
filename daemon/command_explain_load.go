package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// loadFlags say which load, and how to answer.
type loadFlags struct{ config, kubeconfig, namespace, output string }

func explainLoadCommand() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:   "load [KIND/]NAME",
		Short: "Why a load of Velero's data movers waits: for a slot, a node or its turn",
		Long: "Why a DataUpload, DataDownload, PodVolumeBackup or PodVolumeRestore waits: for a slot, a node or its\n" +
			"turn. It reads the API server and decides as the controller would; with --config by the controller's\n" +
			"own settings. KIND is one of du, dd, pvb, pvr, or the kind's name.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("explain: load: want one [KIND/]NAME, not %d", len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(f.output); err != nil {
				return usageError{fmt.Errorf("explain: %w", err)}
			}
			err := f.answer(c.Context(), c.OutOrStdout(), args[0])
			if errors.Is(err, errNoCluster) {
				return usageError{errors.New("explain: load: no cluster: say --kubeconfig FILE")}
			}
			if err != nil {
				return fmt.Errorf("explain: load: %w", err)
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

func (f *loadFlags) answer(ctx context.Context, out io.Writer, name string) error {
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
	l, err := explain.AskLoad(ctx, newLoads(file, clients), f.namespace, name)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return view.WriteJSON(out, l)
	}
	return explain.WriteLoad(out, l, time.Now())
}
