package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/doctor"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/state"
)

// doctorCommand examines this machine where local, unless a NODE is named.
func doctorCommand(local bool) *cobra.Command {
	var f agentFlags
	var cluster clusterFlags
	var output string
	c := &cobra.Command{
		Use:   "doctor [NODE]",
		Short: "Check that a machine can be measured and that its agent can work",
		Long: "Check that this machine can be measured and that the agent can work. Needs no running agent. With NODE the agent of\n" +
			"that node examines its machine, asked through the API server. Exit status 1 if a row is FAIL.",
		Args: arguments(0, 1),
		Example: `  plimsoll doctor
  plimsoll doctor --config /etc/plimsoll/agent.yaml -o json
  plimsoll doctor worker-7`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			rows, err := f.examine(c, &cluster, args)
			if err != nil {
				return err
			}
			if err := printRows(c, rows, output); err != nil {
				return err
			}
			if doctor.Failed(rows) {
				return errAlreadyPrinted
			}
			return nil
		},
	}
	if local {
		c.Flags().StringVar(&f.config, "config", "", "configuration `FILE` to check")
		c.Flags().StringVar(&f.node, "node", "", "`NAME` of the Node (default: the host's name)")
		c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the agent (default: the service account of the pod); with NODE yours, as of kubectl")
		c.Flags().StringVar(&f.state, "state.dir", "", "`DIR` for the state that must survive a restart")
		c.Flags().StringArrayVar(&f.addresses, "web.listen-address", nil, "`ADDR` on which the agent would listen; may be repeated")
		c.Flags().StringVar(&f.web, "web.config.file", "", "web configuration `FILE` of the agent: TLS, client certificates, passwords")
		c.Flags().StringArrayVar(&f.plugins, "plugins.dir", nil, "`DIR` with the sockets of outer plugins; may be repeated")
		f.common(c)
		cluster.addContext(c)
	} else {
		ofNode(c, "Check that a node can be measured and that its agent can work",
			"Check that a node can be measured and that its agent can work: the agent examines its machine, asked through the API\n"+
				"server. Exit status 1 if a row is FAIL.")
		cluster.add(c)
	}
	outputFlag(c, &output)
	return c
}

// examine the node that is named, or this machine.
func (f *agentFlags) examine(c *cobra.Command, cluster *clusterFlags, args []string) ([]doctor.Row, error) {
	if len(args) == 0 {
		if err := unchanged(c, "needs NODE", "context"); err != nil {
			return nil, err
		}
		rows := f.examination(new(state.Writer)).Examine(c.Context())
		return rows, c.Context().Err() // the rows of an interrupted one are about that
	}
	if err := unchanged(c, "describes this machine, and NODE is another", "config", "node", "state.dir", "web.listen-address", "web.config.file",
		"plugins.dir", "api.socket", "path.procfs", "path.sysfs", "path.cgroupfs", "path.rootfs"); err != nil {
		return nil, err
	}
	cluster.kubeconfig = cmp.Or(cluster.kubeconfig, f.kubeconfig)
	agent, err := cluster.agent(c, args[0], examineTimeout)
	if err != nil {
		return nil, err
	}
	var rows []doctor.Row
	if err := agent.Examination(c.Context(), &rows); err != nil {
		return nil, clusterError(c, err)
	}
	return rows, nil
}

// examination is what the configuration describes; the defaults if the file has
// errors. disk reads the state directory.
func (f *agentFlags) examination(disk *state.Writer) doctor.Examination {
	p := doctor.Examination{ConfigFile: f.config, Disk: disk}
	c := config.Default()
	f.override(&c)
	if file, err := config.Open(f.config, f.override); err == nil {
		c = *file.Current()
	} else {
		p.ConfigErrors = strings.Split(err.Error(), "\n")
	}
	if f.config == "" && len(p.ConfigErrors) > 0 {
		p.ConfigFile = "command line"
	}
	p.Paths = probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}
	p.Triggers = agent.TriggerSettings(&c)
	p.Filesystems, p.Network = c.Filesystems, c.Network
	p.Disks = doctor.Disks{Rule: c.Plugins.DiskContention}
	p.Disks.Baselines, p.Disks.Unread = agent.SavedBaselines(disk, c.State.Dir)
	p.Roots, p.Socket, p.Addresses = c.Workloads.Roots, c.API.Socket, c.Web.ListenAddresses
	p.WebConfig, p.TokenReview = c.Web.ConfigFile, c.Web.TokenReview
	p.StartedBy = agent.StartedBy()
	p.Kubeconfig, p.Protected = c.Kubernetes.Kubeconfig, c.Eviction.Protect.Namespaces
	p.StateDir, p.Acts, p.PluginDirs = c.State.Dir, actsOf(&c), agent.PluginDirs(&c)
	p.EvictsDirectly = c.Eviction.Via == evict.ViaDirect || c.Eviction.ViaFallback
	p.RequestsEvictions = c.Eviction.Via == evict.ViaRequest
	p.Resizes = c.Throttle.Enabled && c.Throttle.Resize
	p.Katalyst = c.Plugins.ReclaimedOvercommit.Enabled
	if c.Kubernetes.Standalone {
		return p
	}
	if c.VGDP.Enabled {
		p.MoverConcurrency = c.VGDP.Concurrency
	}
	how, err := process.RestConfig(c.Kubernetes.Kubeconfig)
	if err == nil {
		err = leasesOf(&c, &p)
	}
	if !errors.Is(err, process.ErrNoKubeconfig) {
		p.Cluster, p.ClusterErr = how, err
	}
	return p
}

// actsOf are what an agent with this configuration may change.
func actsOf(c *config.Agent) []doctor.Act {
	when := func(is bool, key string) string {
		if is {
			return key
		}
		return ""
	}
	e, of := &c.Eviction, ""
	dry := cmp.Or(when(e.DryRun, "eviction.dryRun"), when(e.AllDryRun(), "eviction.dryRunPlugins"))
	unmarked := when(!c.Conditions.Enabled, "conditions.enabled") // nor is a pod evicted then
	var acts []doctor.Act
	if dry == "" && len(e.DryRunPlugins) > 0 {
		acts = append(acts, doctor.Act{What: "marks and evictions of the plugins " + strings.Join(e.DryRunPlugins, " "), DryRun: "eviction.dryRunPlugins", Off: unmarked})
		of = " of other plugins"
	}
	return append(acts,
		doctor.Act{What: "marks" + of, DryRun: dry, Off: unmarked},
		doctor.Act{What: "evictions" + of, DryRun: dry, Off: cmp.Or(unmarked, when(!e.Enabled, "eviction.enabled"))},
		doctor.Act{What: "throttles", DryRun: when(c.Throttle.DryRun, "throttle.dryRun"), Off: when(!c.Throttle.Enabled, "throttle.enabled")},
		doctor.Act{What: "data mover budget and throttles of data movers", DryRun: when(c.VGDP.DryRun, "vgdp.dryRun"), Off: when(!c.VGDP.Enabled, "vgdp.enabled")},
	)
}

// leasesOf sets the Leases that an agent with this configuration renews.
func leasesOf(c *config.Agent, p *doctor.Examination) error {
	node, err := agent.NodeName(c)
	leaseOf := func(target string) doctor.Lease {
		return doctor.Lease{Namespace: agent.NamespaceOf(target), Name: node, Holder: agent.HolderOf(target, node)}
	}
	if c.Lease.Enabled {
		p.Lease = new(leaseOf(config.LeaseOfAgent))
		if used, _, err := agent.Holder(p.Disk, c.State.Dir); err == nil {
			p.Lease.Annotation, p.Lease.Agent = lease.AgentAnnotation, used.ID
		}
		if c.Lease.Target == config.LeaseOfNode {
			p.NodeLease = new(leaseOf(config.LeaseOfNode))
		}
	}
	return err
}

func printRows(c *cobra.Command, rows []doctor.Row, output string) error {
	if isObject(output) {
		return writeObject(c.OutOrStdout(), output, rows)
	}
	var table [][]string
	for _, r := range rows {
		table = append(table, []string{string(r.Result), r.Check, r.Finding})
	}
	return view.WriteRows(c.OutOrStdout(), table)
}
