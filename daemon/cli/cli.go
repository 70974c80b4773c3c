package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/process"
)

// Exit statuses.
const (
	exitFailure = 1 // failure, or a negative answer such as doctor's
	exitUsage   = 2 // wrong usage
)

// usageError is a wrong command line.
type usageError struct{ error }

// errAlreadyPrinted: the negative answer is on stdout already, so nothing goes to stderr.
var errAlreadyPrinted = errors.New("not so")

// Main runs the program with the arguments after its name and returns its exit
// status.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := Commands()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errAlreadyPrinted):
		return exitFailure
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "plimsoll: "+line)
	}
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailure
}

// Commands is the whole command tree.
func Commands() *cobra.Command {
	root := &cobra.Command{
		Use:           "plimsoll",
		Short:         "Detect disk, network and memory pressure on Kubernetes nodes and act on it",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see plimsoll --help", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return errors.Join(c.Help(), usageError{errors.New("missing subcommand; see plimsoll --help")})
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%s: %w; see %s --help", c.Name(), err, c.CommandPath())}
	})
	root.AddCommand(agentCommand(), controllerCommand(), topCommand(), pluginsCommand(), explainCommand(), doctorCommand(), releaseCommand(), replayCommand(), adviseCommand(), configCommand(), versionCommand())
	return root
}

// asUsageError turns an error about arguments into a usageError.
func asUsageError(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{fmt.Errorf("%s: %w; see %s --help", c.Name(), err, c.CommandPath())}
		}
		return nil
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: asUsageError(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "plimsoll "+process.Version())
			return err
		},
	}
}
