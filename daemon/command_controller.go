package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

// errNotLooked: the leader does not know the Backups yet.
var errNotLooked = errors.New("backups: not listed yet")

// errNotSeen: the leader does not know the agents yet.
var errNotSeen = errors.New("fleet: nodes and leases are not listed yet")

// errNoLoads: the leader does not know the loads yet.
var errNoLoads = errors.New("vgdp: nodes, node-agents and leases are not listed yet")

// controllerFlags of the command line override the file; an empty one does not.
type controllerFlags struct {
	config, kubeconfig, web, logLevel, logFormat string
	addresses                                    []string
}

func controllerCommand() *cobra.Command {
	var f controllerFlags
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller of the cluster",
		Long: "Run the controller of the cluster: it queues Velero's Backups, so that several run at a time and\n" +
			"none that share a namespace, and lets the loads of Velero's data movers go on as nodes and cluster can\n" +
			"carry them. Of several replicas one is elected and acts.",
		Args: wrongUse(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.ErrOrStderr()) },
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE`; changes of it are followed")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how the API server is reached (default: as a pod does)")
	fl.StringArrayVar(&f.addresses, "web.listen-address", nil, "`ADDR` of the page, the API and the metrics; may be repeated")
	fl.StringVar(&f.web, "web.config.file", "", "`FILE` with TLS, client certificates and passwords, as Prometheus' exporters have it")
	fl.StringVar(&f.logLevel, "log.level", "", "debug, info, warn or error")
	fl.StringVar(&f.logFormat, "log.format", "", "text or json")
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
	log := logger(stderr, file.Current().Log, &level)
	file.Logger = log
	klog.SetSlogLogger(log) // what client-go says is a part of our log
	c, err := NewController(file, log)
	switch {
	case errors.Is(err, errNoCluster):
		return usageError{errors.New("controller: no cluster: say --kubeconfig FILE")}
	case err != nil:
		return fmt.Errorf("controller: %w", err)
	}
	c.Level = &level
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}
