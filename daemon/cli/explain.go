package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/explain"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict"
)

func explainCommand() *cobra.Command {
	c := group("explain", "Explain why something was done, or was not")
	c.Example = `  plimsoll explain eviction
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
	c.AddCommand(explainEvictionCommand(), explainBackupCommand(), explainLoadCommand())
	return c
}

// explainFlags select the source of the answer and its format.
type explainFlags struct{ socket, node, kubeconfig, output string }

func explainEvictionCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "eviction [NAME]",
		Short: "Why a pod was evicted or skipped, and why no pod is evicted now",
		Long: "Why a pod was evicted or skipped, and why no pod is evicted now. NAME is a pod's name, with or without\n" +
			"NAMESPACE/, its UID, or the ID of a decision; without NAME the newest decisions are printed. Asks the agent of\n" +
			"this machine; with --node the API server, which keeps an agent's Events for a while.",
		Args: arguments(0, 1),
		Example: `  plimsoll explain eviction
  plimsoll explain eviction shop/orders-6d4f
  plimsoll explain eviction --node worker-7 --kubeconfig admin.kubeconfig`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(f.output); err != nil {
				return usageError{fmt.Errorf("explain: %w", err)}
			}
			name := strings.Join(args, "")
			answer := f.askAgent
			if f.node != "" {
				answer = f.askCluster
			}
			if err := answer(c.Context(), c.OutOrStdout(), name); err != nil {
				if _, wrong := errors.AsType[usageError](err); wrong {
					return usageError{fmt.Errorf("explain: eviction: %w", err)}
				}
				return fmt.Errorf("explain: eviction: %w", err)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.socket, "api.socket", "", "`PATH` of the agent's local socket")
	fl.StringVar(&f.node, "node", "", "ask the API server for the Events of the agent on the Node `NAME`")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` for --node (default: the service account of the pod)")
	outputFlag(c, &f.output)
	return c
}

// askAgent answers from the decisions that the agent of this machine stores.
func (f *explainFlags) askAgent(ctx context.Context, out io.Writer, name string) error {
	if f.kubeconfig != "" {
		return usageError{errors.New("--kubeconfig needs --node")}
	}
	file, err := config.Open("", (&agentFlags{socket: f.socket}).override)
	if err != nil {
		return err
	}
	list, err := web.NewClient(file.Current().API.Socket).Decisions(ctx)
	if err != nil {
		return err
	}
	if name != "" {
		if list, err = explain.About(list, name); err != nil {
			return err
		}
	}
	switch {
	case f.output == "json":
		return view.WriteJSON(out, web.Decisions{Decisions: append([]evict.Decision{}, list...)})
	case name == "":
		return explain.WriteNewest(out, list, time.Now())
	}
	return explain.WriteAbout(out, list, name, time.Now())
}

// askCluster answers from the Events that the API server stores.
func (f *explainFlags) askCluster(ctx context.Context, out io.Writer, name string) error {
	how, err := process.RestConfig(f.kubeconfig)
	switch {
	case errors.Is(err, process.ErrNoKubeconfig):
		return usageError{errors.New("--node: no kubeconfig: set --kubeconfig")}
	case err != nil:
		return err
	}
	client, err := corev1client.NewForConfig(how)
	if err != nil {
		return fmt.Errorf("create Kubernetes client: %w", err)
	}
	list, err := explain.Events(ctx, client, f.node, name)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return view.WriteJSON(out, struct {
			Events []explain.Event `json:"events"`
		}{list})
	}
	return explain.WriteEvents(out, list, time.Now())
}
