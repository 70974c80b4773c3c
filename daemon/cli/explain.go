package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/remote"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// explainCommand asks the agent of this machine where local, unless a cluster is named.
func explainCommand(local bool) *cobra.Command {
	c := group("explain", "Explain why something was done, or was not")
	c.Example = `  plimsoll explain eviction --node worker-7
  plimsoll explain eviction shop/orders-6d4f -o json
  plimsoll explain backup nightly`
	c.RunE = func(c *cobra.Command, _ []string) error {
		var b strings.Builder
		b.WriteString("What can be explained:\n")
		for _, sub := range c.Commands() {
			fmt.Fprintf(&b, "  %s %s\n      %s\n", c.CommandPath(), sub.Use, sub.Short)
		}
		_, err := io.WriteString(c.OutOrStdout(), b.String())
		return err
	}
	c.AddCommand(explainEvictionCommand(local), explainBackupCommand(), explainLoadCommand())
	return c
}

// explainFlags select the source of the answer and its format.
type explainFlags struct {
	clusterFlags

	socket, node, output string
}

func explainEvictionCommand(local bool) *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "eviction [NAME]",
		Short: "Why a pod was evicted or skipped, and why no pod is evicted now",
		Long: "Why a pod was evicted or skipped, and why no pod is evicted now. NAME is a pod's name, with or without\n" +
			"NAMESPACE/, its UID, or the ID of a decision; without NAME the newest decisions are printed. Asks the agent of\n" +
			"this machine; with --node, --context or -n that of a node, or of the node of the pod, through the API server.\n" +
			"Where that agent does not answer the Events tell, which the API server stores for a while.",
		Args: arguments(0, 1),
		Example: `  plimsoll explain eviction shop/orders-6d4f
  plimsoll explain eviction -n shop orders-6d4f
  plimsoll explain eviction --node worker-7`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(f.output); err != nil {
				return usageError{fmt.Errorf("explain: %w", err)}
			}
			name := strings.Join(args, "")
			if local && f.node == "" && f.context == "" && f.namespace == "" {
				return explained(f.askAgent(c.Context(), c.OutOrStdout(), name))
			}
			return explained(f.askCluster(c, name))
		},
	}
	fl := c.Flags()
	if local {
		fl.StringVar(&f.socket, "api.socket", "", "`PATH` of the agent's local socket")
	} else {
		c.Use = "eviction NAME"
		c.Long = "Why a pod was evicted or skipped, and why no pod is evicted now. NAME is a pod's name, with or without\n" +
			"NAMESPACE/: the agent of its node is asked, through the API server. With --node that of the Node is asked: there\n" +
			"NAME may also be the pod's UID or the ID of a decision, and without NAME the newest decisions are printed. Where\n" +
			"the agent does not answer the Events tell, which the API server stores for a while."
	}
	fl.StringVar(&f.node, "node", "", "ask the agent of the Node `NAME`")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the pod NAME (default: that of the context)")
	f.add(c)
	outputFlag(c, &f.output)
	return c
}

// explained names what was asked.
func explained(err error) error {
	if err == nil {
		return nil
	}
	named := fmt.Errorf("explain: eviction: %w", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return usageError{named}
	}
	return named
}

// askAgent answers from the decisions that the agent of this machine stores.
func (f *explainFlags) askAgent(ctx context.Context, out io.Writer, name string) error {
	if f.kubeconfig != "" {
		return usageError{errors.New("--kubeconfig needs --node, --context or -n")}
	}
	file, err := config.Open("", (&agentFlags{socket: f.socket}).override)
	if err != nil {
		return err
	}
	s, err := storedBy(ctx, web.NewClient(file.Current().API.Socket))
	if err != nil {
		return err
	}
	return f.write(out, s, name)
}

// stored is what an agent stores: its decisions, and its state now.
type stored struct {
	decisions []evict.Decision
	now       *view.State
}

func storedBy(ctx context.Context, agent *web.Client) (s stored, err error) {
	if s.decisions, err = agent.Decisions(ctx); err != nil {
		return stored{}, err
	}
	s.now, err = agent.State(ctx)
	return s, err
}

func (f *explainFlags) write(out io.Writer, s stored, name string) (err error) {
	list := s.decisions
	if name != "" {
		if list, err = explain.About(list, name); err != nil {
			return err
		}
	}
	switch {
	case isObject(f.output):
		return writeObject(out, f.output, web.Decisions{Decisions: append([]evict.Decision{}, list...)})
	case name == "":
		return explain.WriteNewest(out, list, s.now, time.Now())
	}
	return explain.WriteAbout(out, list, name, s.now, time.Now())
}

// askCluster answers from the decisions of a node's agent; where that cannot be asked,
// or does not know the name any more, from the Events that the API server stores.
func (f *explainFlags) askCluster(c *cobra.Command, name string) error {
	ctx := c.Context()
	cluster, err := remote.Open(f.access())
	switch {
	case errors.Is(err, remote.ErrNoCluster):
		return usageError{err}
	case err != nil:
		return err
	}
	if name != "" && !strings.Contains(name, "/") && (f.node == "" || f.namespace != "") {
		name = cmp.Or(f.namespace, f.access().Namespace()) + "/" + name
	}
	node, err := f.nodeOf(c, cluster, name)
	if err != nil {
		return err
	}
	list, asked := f.decisions(ctx, cluster, node)
	if asked != nil {
		return f.askEvents(c, cluster, node, name, asked)
	}
	answer := f.write(c.OutOrStdout(), list, name)
	if name == "" || !errors.Is(answer, explain.ErrNotInDecisions) {
		return answer
	}
	return f.askEvents(c, cluster, node, name, answer)
}

// askEvents answers from the Events; asked is why the agent's decisions do not tell.
func (f *explainFlags) askEvents(c *cobra.Command, cluster *remote.Cluster, node, name string, asked error) error {
	answered := errors.Is(asked, explain.ErrNotInDecisions)
	events, err := explain.Events(c.Context(), cluster.Core, node, name)
	err = remote.Advised(err, remote.View(metav1.NamespaceDefault))
	switch {
	case err != nil && answered:
		return fmt.Errorf("%w; %w", asked, err)
	case err != nil:
		return errors.Join(err, asked)
	case isObject(f.output):
		return writeObject(c.OutOrStdout(), f.output, struct {
			Events []explain.Event `json:"events"`
		}{events})
	case !answered:
		warn(c.ErrOrStderr(), "only the Events tell: "+asked.Error())
	}
	return explain.WriteEvents(c.OutOrStdout(), events, time.Now())
}

// decisions of a node's agent.
func (f *explainFlags) decisions(ctx context.Context, cluster *remote.Cluster, node string) (stored, error) {
	agent, err := cluster.Agent(ctx, node, askTimeout)
	if err != nil {
		return stored{}, err
	}
	return storedBy(ctx, agent)
}

// nodeOf is the node that is named, or that of the pod.
func (f *explainFlags) nodeOf(c *cobra.Command, cluster *remote.Cluster, name string) (string, error) {
	if f.node != "" {
		return f.node, nil
	}
	namespace, pod, _ := strings.Cut(name, "/")
	if pod == "" {
		return "", usageError{errors.New("missing NAME of a pod, or --node NODE")}
	}
	node, note, err := cluster.NodeOf(c.Context(), namespace, pod)
	if note != "" {
		warn(c.ErrOrStderr(), note)
	}
	return node, err
}
