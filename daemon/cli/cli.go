package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/files"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
)

// Exit statuses.
const (
	exitFailure  = 1 // failure, or a negative answer such as doctor's
	exitUsage    = 2 // wrong usage
	exitSignaled = 128
)

// errAlreadyPrinted: the negative answer is on stdout already, so nothing goes to stderr.
var errAlreadyPrinted = errors.New("not so")

// signalPatience is how long a command may take to end after a signal. One that
// waits for the kernel, as to open a pipe, does not notice the signal.
const signalPatience = time.Second

// Main runs the program with the arguments after its name and returns its exit
// status.
func Main(args []string, stdout, stderr io.Writer) int {
	root := Commands()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		return report(stderr, err)
	case got := <-signals:
		signal.Stop(signals) // a second signal ends the process at once
		cancel()
		return endBySignal(root, args, got, ended, stderr)
	}
}

// service marks the commands that run until they are stopped: they take the time
// that they need to stop, and SIGTERM is no failure of them.
const service = "service"

// endBySignal waits for the command and returns the exit status of a program that
// a signal ended.
func endBySignal(root *cobra.Command, args []string, got os.Signal, ended <-chan error, stderr io.Writer) int {
	runs, _, err := root.Find(args)
	serves := err == nil && runs.Annotations[service] != ""
	var patience <-chan time.Time
	if !serves {
		patience = time.After(signalPatience)
	}
	status := 0
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			status = report(stderr, err)
		}
	case <-patience:
	}
	if number, is := got.(syscall.Signal); is && (!serves || got == syscall.SIGINT) {
		return exitSignaled + int(number)
	}
	return status
}

// report prints an error, if there is one, and returns the exit status.
func report(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errAlreadyPrinted):
		return exitFailure
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "plimsoll: "+line)
	}
	for _, line := range files.Permitted(err) {
		fmt.Fprintln(stderr, "plimsoll: "+line)
	}
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailure
}

// Commands is the whole command tree.
func Commands() *cobra.Command {
	root := group("plimsoll", "Detect disk, network and memory pressure on Kubernetes nodes and act on it")
	root.Example = `  plimsoll agent --standalone     # watch this machine: http://127.0.0.1:9773/
  plimsoll top                    # its pressure, live
  plimsoll doctor                 # can this machine be measured and judged?`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = process.Version()
	root.SetVersionTemplate("plimsoll {{.Version}}\n")
	root.SetFlagErrorFunc(unknownFlag)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(agentCommand(), controllerCommand(), topCommand(), pluginsCommand(), explainCommand(), doctorCommand(), releaseCommand(), replayCommand(), adviseCommand(), configCommand(), versionCommand())
	completionCommand(root)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: arguments(0, 0),
		Example: `  plimsoll version`,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "plimsoll "+process.Version())
			return err
		},
	}
}
