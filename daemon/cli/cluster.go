package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/remote"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// clusterFlags name a cluster as for kubectl.
type clusterFlags struct{ kubeconfig, context, namespace string }

// kubeconfigHelp is the help of --kubeconfig of a command that asks as a user.
const kubeconfigHelp = "kubeconfig `FILE` (default: $KUBECONFIG, ~/.kube/config, the service account of the pod)"

func (f *clusterFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigHelp)
	f.addContext(c)
}

func (f *clusterFlags) addContext(c *cobra.Command) {
	c.Flags().StringVar(&f.context, "context", "", "`CONTEXT` of the kubeconfig (default: the current one)")
}

func (f *clusterFlags) access() remote.Access {
	return remote.Access{Kubeconfig: f.kubeconfig, Context: f.context}
}

// open the cluster; one that is not named is wrong usage.
func (f *clusterFlags) open(c *cobra.Command) (*remote.Cluster, error) {
	cluster, err := remote.Open(f.access())
	return cluster, clusterError(c, err)
}

func clusterError(c *cobra.Command, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, remote.ErrNoCluster):
		return usageError{fmt.Errorf("%s: %w", of(c), err)}
	}
	return fmt.Errorf("%s: %w", of(c), err)
}

// Timeouts of a question to an agent, and the time between two: each goes through the
// API server and a kubelet.
const (
	askTimeout     = 15 * time.Second
	examineTimeout = 45 * time.Second
	remotePeriod   = 2 * time.Second
)

// agent of a node, asked through the API server.
func (f *clusterFlags) agent(c *cobra.Command, node string, timeout time.Duration) (*web.Client, error) {
	cluster, err := f.open(c)
	if err != nil {
		return nil, err
	}
	agent, err := cluster.Agent(c.Context(), node, timeout)
	return agent, clusterError(c, err)
}

// ofNode makes a command one that only asks about a node.
func ofNode(c *cobra.Command, short, long string) {
	c.Short, c.Long = short, long
	c.Use = strings.Replace(c.Use, "[NODE]", "NODE", 1)
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return wrong(c, "missing NODE: %s nodes lists them", c.Root().DisplayName())
		}
		return arguments(1, 1)(c, args)
	}
}

func whoCommand() *cobra.Command {
	var f clusterFlags
	var output string
	c := &cobra.Command{
		Use:   "who",
		Short: "Show which workloads of the cluster wait because of which others",
		Long: "Show which workloads of the cluster wait because of which others, on all nodes, the longest wait first. Reads the\n" +
			"agents' heartbeats from the API server: what it shows is at most some 15 s old.",
		Example: `  plimsoll who
  plimsoll who -n shop -o wide
  plimsoll who --context prod -o json`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := f.overview(c, output)
			if err != nil {
				return err
			}
			who := all.Contentions(f.namespace)
			if isObject(output) {
				return writeObject(c.OutOrStdout(), output, who)
			}
			return writeWho(c, who, f.namespace, output == asWide)
		},
	}
	f.add(c)
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only where a pod of the `NAMESPACE` is a culprit or waits")
	outputFlag(c, &output, asWide)
	return c
}

func nodesCommand() *cobra.Command {
	var f clusterFlags
	var output string
	c := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes with their agents, pressure and contention",
		Long:  "List the nodes whose agents have a heartbeat, with their pressure and contention. Reads the API server.",
		Example: `  plimsoll nodes
  plimsoll nodes -o wide`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := f.overview(c, output)
			if err != nil {
				return err
			}
			if isObject(output) {
				return writeObject(c.OutOrStdout(), output, all)
			}
			for _, lacking := range capability.Lacking(all.Capabilities) {
				warn(c.ErrOrStderr(), "this cluster does not have all parts: "+lacking.String())
			}
			return writeNodes(c, all, output == asWide)
		},
	}
	f.add(c)
	outputFlag(c, &output, asWide)
	return c
}

// overview reads it, and prints what is wrong with the controller.
func (f *clusterFlags) overview(c *cobra.Command, output string) (*remote.Overview, error) {
	if err := checkOutput(output, asWide); err != nil {
		return nil, err
	}
	cluster, err := f.open(c)
	if err != nil {
		return nil, err
	}
	all, err := cluster.Overview(c.Context())
	if err != nil {
		return nil, clusterError(c, err)
	}
	if all.Controller.Problem != "" && !isObject(output) {
		warn(c.ErrOrStderr(), all.Controller.Problem)
	}
	return all, nil
}

func writeWho(c *cobra.Command, who remote.Contentions, namespace string, wide bool) error {
	if len(who.Contentions) > 0 {
		heading := []string{"NODE", "RESOURCE", "WAITS", "OF THE TIME", "BECAUSE OF", "SHARE"}
		if wide {
			heading = append(heading, "COVERAGE", "ALSO WAIT", "ALSO USE IT")
		}
		rows := [][]string{heading}
		for i := range who.Contentions {
			rows = append(rows, whoLine(&who.Contentions[i], wide))
		}
		if err := view.WriteRows(c.OutOrStdout(), rows); err != nil {
			return err
		}
	}
	for _, line := range whoSummary(who, namespace) {
		fmt.Fprintln(c.OutOrStdout(), line)
	}
	return nil
}

func whoLine(r *remote.Contention, wide bool) []string {
	cells := []string{r.Node, strings.TrimSpace(r.Resource + " " + r.Device), "-", "-", "-", "-"}
	others := r.Sufferers
	if len(r.Sufferers) > 0 {
		cells[2], cells[3], others = r.Sufferers[0].Name, view.Ratio(r.Sufferers[0].Ratio), r.Sufferers[1:]
	}
	culprit, some := r.MainCulprit()
	if some {
		cells[4], cells[5] = culprit.Name, usage(&culprit)
	}
	if wide {
		coverage := "-"
		if r.Coverage != nil {
			coverage = view.Ratio(*r.Coverage)
		}
		var users []lease.Workload
		for _, w := range r.Culprits {
			if w != culprit {
				users = append(users, w)
			}
		}
		cells = append(cells, coverage, workloads(others), workloads(users))
	}
	return cells
}

func workloads(list []lease.Workload) string {
	var names []string
	for _, w := range list {
		names = append(names, w.Name+" "+usage(&w))
	}
	return dash(strings.Join(names, ", "))
}

// usage is a workload's share, and how far it is throttled.
func usage(w *lease.Workload) string {
	text := view.Ratio(w.Ratio)
	switch {
	case w.Throttled == 100:
		text += ", gets no more"
	case w.Throttled > 0:
		text += ", throttled to " + view.Count(uint64(w.Throttled)) + " %" //nolint:gosec // read as 0 to 100
	}
	return text
}

// whoSummary has what was found where, and of which nodes nothing is known: the
// absence of a row there means nothing.
func whoSummary(who remote.Contentions, namespace string) []string {
	of := ""
	if namespace != "" {
		of = " of namespace " + view.Printable(namespace)
	}
	seen := who.Nodes - len(who.Silent) - len(who.Unreported)
	lines := []string{fmt.Sprintf("%s reported by %s of %s.", counted(len(who.Contentions), "contention"+of, "contentions"+of), view.Count(uint64(seen)), counted(who.Nodes, "node", "nodes"))}
	if who.More > 0 {
		lines = append(lines, fmt.Sprintf("%s further: see plimsoll top NODE.", counted(who.More, "contention is", "contentions are")))
	}
	for _, part := range []struct {
		nodes []string
		why   string
	}{
		{who.Silent, "Nothing is known of %s: the agent is silent (kubectl -n plimsoll-system get pods -o wide)"},
		{who.Unreported, "Nothing is known of %s: the agent does not report contention (an older version: upgrade it; or its rounds are stuck: plimsoll top NODE)"},
		{who.Unknown, "Not all is known of %s: the kernel does not report which workload waits for some resource (plimsoll doctor NODE)"},
		{who.Unnamed, "Not all is known of %s: the heartbeat does not name all workloads of a contention (plimsoll top NODE)"},
	} {
		if len(part.nodes) > 0 {
			lines = append(lines, fmt.Sprintf(part.why, counted(len(part.nodes), "node", "nodes"))+": "+someOf(part.nodes))
		}
	}
	return lines
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return view.Count(uint64(n)) + " " + many //nolint:gosec // a length
}

// someOf names the first few.
func someOf(names []string) string {
	const most = 5
	text := view.Printable(strings.Join(names[:min(len(names), most)], ", "))
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

func writeNodes(c *cobra.Command, all *remote.Overview, wide bool) error {
	heading := []string{"NODE", "AGENT", "HEARTBEAT", "PRESSURE", "CONTENTION"}
	if wide {
		heading = append(heading, "OUTER PLUGINS", "DATA MOVER BUDGET", "VERSION", "PROBLEM")
	}
	rows := [][]string{heading}
	for i := range all.Nodes {
		rows = append(rows, nodeLine(&all.Nodes[i], wide))
	}
	return view.WriteRows(c.OutOrStdout(), rows)
}

func nodeLine(n *remote.Node, wide bool) []string {
	agent, contention, version := "ok", "unknown", "-"
	if n.Silent {
		agent = "silent"
	}
	if n.Contention != nil {
		contention, version = contentionOf(n.Contention), n.Contention.Version
	}
	pressure := pressureOf(n)
	switch {
	case !n.Judged:
		pressure = "unknown"
	case n.Silent:
		pressure = "unknown, was " + pressure
	}
	if n.Silent && n.Contention != nil {
		contention = "unknown, was " + contention
	}
	cells := []string{n.Name, agent, heartbeatOf(n), pressure, contention}
	if wide {
		budget := "-"
		if n.DataMoverBudget != nil {
			budget = fmt.Sprint(*n.DataMoverBudget)
		}
		cells = append(cells, orNone(levels(n.Plugins)), budget, version, dash(n.Problem))
	}
	return cells
}

// heartbeatOf an agent: how long ago it was.
func heartbeatOf(n *remote.Node) string {
	if n.HeartbeatSeconds == nil {
		return "-"
	}
	age := time.Duration(*n.HeartbeatSeconds * float64(time.Second))
	if age < 0 {
		return view.Age(-age) + " ahead"
	}
	return view.Age(age) + " ago"
}

// contentionOf a node in a few words.
func contentionOf(n *lease.NodeContention) string {
	var names []string
	for _, r := range n.Resources {
		names = append(names, strings.TrimSpace(r.Resource+" "+r.Device))
	}
	if unseen := n.Unseen(); len(unseen) > 0 {
		names = append(names, "unknown: "+strings.Join(unseen, ", "))
	}
	return orNone(names)
}

// pressureOf a node: the levels, and what they do not tell about.
func pressureOf(n *remote.Node) string {
	list := levels(n.Pressure)
	for _, level := range levels(n.Reported) {
		list = append(list, level+" (reported)")
	}
	text := orNone(list)
	if len(n.NotJudged) > 0 {
		text += "; not judged: " + strings.Join(n.NotJudged, ", ")
	}
	return text
}

func levels(of map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, name+" "+of[name])
	}
	return list
}

func orNone(list []string) string { return cmp.Or(strings.Join(list, ", "), "none") }
