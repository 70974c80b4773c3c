package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/conformance"
)

// untestedError: the plugin could not be examined.
type untestedError struct{ error }

func pluginsTestCommand() *cobra.Command {
	var o conformance.Options
	var pods, output string
	c := &cobra.Command{
		Use:   "test [flags] {SOCKET | -- COMMAND [ARG]...}",
		Short: "Test an outer plugin of any language, and report what a host may rely on",
		Long: `Test an outer plugin of any language, and report what a host may rely on. Needs no agent and no cluster.

The plugin is registered as an agent does, and asked ordinary, empty, huge, outdated and hostile questions. A COMMAND is
started, stopped for a moment, ended and restarted too: in it, or in --env, {dir} is replaced by the directory in which it
must make its socket. A plugin that runs (SOCKET) is only asked; do not use that in production, since a plugin may
fail under it.

A required check that fails means that a host cannot work with the plugin; an advisory one says what not to rely on.
Exit status: 0 no required check failed, 1 one failed, 2 the plugin could not be tested.`,
		Example: `  plimsoll plugins test -- ./myplugin --plugins.dir {dir}
  plimsoll plugins test --env PLUGIN_DIR={dir} -- python3 myplugin.py
  plimsoll plugins test --pods pods.json -o junit -- ./myplugin --dir {dir} >report.xml
  plimsoll plugins test --unmeasurable --path.procfs=/nonexistent -- ./myplugin --dir {dir}
  plimsoll plugins test /var/lib/plimsoll/plugins/myplugin.sock`,
		Args: arguments(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			write, known := map[string]func(conformance.Report, io.Writer) error{
				"text": conformance.Report.WriteText, "json": conformance.Report.WriteJSON, "junit": conformance.Report.WriteJUnit,
			}[output]
			if !known {
				return usageError{fmt.Errorf("-o %q: want text, json or junit", output)}
			}
			if err := pluginToTest(&o, args, pods); err != nil {
				return usageError{fmt.Errorf("plugins test: %w; see %s --help", err, c.CommandPath())}
			}
			report, err := conformance.Test(c.Context(), o)
			if err != nil {
				return untestedError{fmt.Errorf("plugins test: the plugin could not be tested: %w", err)}
			}
			if err := write(report, c.OutOrStdout()); err != nil {
				return err
			}
			if !report.Works {
				return errAlreadyPrinted
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&o.Env, "env", nil, "`NAME=VALUE` in the environment of COMMAND; may be repeated")
	c.Flags().StringArrayVar(&o.Unmeasurable, "unmeasurable", nil, "`ARG` added to COMMAND at the end of the test, with which it cannot measure and must return errors; may be repeated")
	c.Flags().StringVar(&pods, "pods", "", "`FILE` with the pods of the questions, as kubectl get pods -o json writes it (default: made up)")
	c.Flags().DurationVar(&o.Timeout, "timeout", conformance.DefaultTimeout, "`DURATION` that a call may take, as plugins.callTimeout of the agent")
	c.Flags().DurationVar(&o.StartTimeout, "start-timeout", conformance.DefaultStartTimeout, "`DURATION` that COMMAND may take until it listens")
	c.Flags().StringVarP(&output, "output", "o", "text", "output `FORMAT`: text, json or junit")
	return c
}

// pluginToTest sets the socket or the command, and the pods.
func pluginToTest(o *conformance.Options, args []string, pods string) error {
	if info, err := os.Stat(args[0]); len(args) == 1 && err == nil && info.Mode().Type() == os.ModeSocket {
		o.Socket = args[0]
	} else {
		o.Command = args
		if !strings.Contains(strings.Join(append(args, o.Env...), " "), conformance.Placeholder) {
			return fmt.Errorf("%q is no socket; a command needs %s in an argument or in --env, for the directory of its socket", args[0], conformance.Placeholder)
		}
	}
	if o.Timeout <= 0 || o.StartTimeout <= 0 {
		return fmt.Errorf("timeouts %s and %s: want more than 0", o.Timeout.Round(time.Millisecond), o.StartTimeout.Round(time.Millisecond))
	}
	if pods == "" {
		return nil
	}
	content, err := os.ReadFile(pods)
	if err != nil {
		return err
	}
	var list corev1.PodList
	if err := yaml.Unmarshal(content, &list); err != nil {
		return fmt.Errorf("%s: %w", pods, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("%s: it has no pods; want a list, as kubectl get pods -o json writes it", pods)
	}
	for i := range list.Items {
		o.Pods = append(o.Pods, &list.Items[i])
	}
	return nil
}
