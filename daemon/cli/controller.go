package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/controller"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
)

// controllerFlags override the configuration file, unless they are empty.
type controllerFlags struct {
	config, kubeconfig, web, logLevel, logFormat string
	addresses                                    []string
}

func controllerCommand() *cobra.Command {
	var f controllerFlags
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller of the cluster",
		Long: "Run the controller of the cluster: it watches the agents' heartbeats, approves the evictions that they request,\n" +
			"queues Velero's Backups so that several run at a time but none that share a namespace, and admits Velero's data\n" +
			"mover loads within the capacity of nodes and cluster. Of several replicas the elected leader acts.",
		Args:        arguments(0, 0),
		Annotations: map[string]string{service: "until it is stopped"},
		Example:     `  plimsoll controller --kubeconfig /etc/plimsoll/kubeconfig --config /etc/plimsoll/controller.yaml`,
		RunE:        func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.ErrOrStderr()) },
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE`, reloaded when it changes")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the service account of the pod)")
	fl.StringArrayVar(&f.addresses, "web.listen-address", nil, "`ADDR` on which to serve status page, API and metrics; may be repeated")
	fl.StringVar(&f.web, "web.config.file", "", "web configuration `FILE` of Prometheus' exporter-toolkit: TLS, client certificates, passwords")
	fl.StringVar(&f.logLevel, "log.level", "", "least `LEVEL` that is logged: debug, info, warn or error")
	fl.StringVar(&f.logFormat, "log.format", "", "`FORMAT` of the log: text or json")
	return c
}

func (f *controllerFlags) override(c *config.Controller) {
	if f.kubeconfig != "" {
		c.Kubernetes.Kubeconfig = absolute(f.kubeconfig)
	}
	if f.web != "" {
		c.Web.ConfigFile = absolute(f.web)
	}
	if f.logLevel != "" {
		c.Log.Level = f.logLevel
	}
	if f.logFormat != "" {
		c.Log.Format = f.logFormat
	}
	if len(f.addresses) > 0 {
		c.Web.ListenAddresses = f.addresses
	}
}

func (f *controllerFlags) run(ctx context.Context, stderr io.Writer) error {
	file, err := config.OpenOf(f.config, config.DefaultController, f.override)
	if err != nil {
		return prefixed("config: ", err)
	}
	var level slog.LevelVar
	log, flush := logger(stderr, file.Current().Log, &level)
	defer flush()
	file.Logger = log
	klog.SetSlogLogger(log) // logs of client-go become part of ours
	c, err := controller.New(file, log)
	switch {
	case errors.Is(err, process.ErrNoKubeconfig):
		return usageError{errors.New("controller: no kubeconfig: set --kubeconfig")}
	case err != nil:
		return fmt.Errorf("controller: %w", err)
	}
	c.Level = &level
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}
