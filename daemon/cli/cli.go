package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/files"
)

// Exit statuses.
const (
	exitFailure  = 1 // failure, or a negative answer such as doctor's
	exitUsage    = 2 // wrong usage, or a plugin that could not be tested
	exitSignaled = 128
)

// errAlreadyPrinted: the negative answer is on stdout already, so nothing goes to stderr.
var errAlreadyPrinted = errors.New("not so")

// signalPatience is how long a command may take to end after a signal. One that
// waits for the kernel, as to open a pipe, does not notice the signal.
const signalPatience = time.Second

// Main runs the program by its name and its arguments, and returns its exit status.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	klog.SetSlogLogger(discard()) // client-go's; its errors are returned as well. Services log it
	root := CommandsFor(name)
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
		warn(stderr, line)
	}
	for _, line := range files.Permitted(err) {
		warn(stderr, line)
	}
	_, wrong := errors.AsType[usageError](err)
	_, untested := errors.AsType[untestedError](err)
	if wrong || untested {
		return exitUsage
	}
	return exitFailure
}

// warn prints one line. Names and answers in it are chosen by others.
func warn(stderr io.Writer, line string) { fmt.Fprintln(stderr, "plimsoll: "+view.Printable(line)) }

// pluginName is the program's name as a plugin of kubectl, which runs it for
// kubectl plimsoll.
const pluginName = "kubectl-plimsoll"

// CommandsFor is the command tree of the program under a name: all of it, or what
// kubectl plimsoll has.
func CommandsFor(program string) *cobra.Command {
	if filepath.Base(program) != pluginName {
		return Commands()
	}
	const display = "kubectl plimsoll"
	root := newRoot(pluginName, "Show which workloads of a cluster wait because of which others, and why pods are evicted")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: display}
	root.Example = `  plimsoll who                 # which workloads wait, and because of which others
  plimsoll top worker-7        # the pressure on a node, live
  plimsoll explain eviction -n shop orders-6d4f`
	root.SetHelpCommand(helpCommand(display))
	root.CompletionOptions.DisableDefaultCmd = true // it would complete another name
	root.AddCommand(whoCommand(), nodesCommand(), backupsCommand(), topCommand(false), explainCommand(false), doctorCommand(false), versionCommand())
	inExamples(root, display)
	return root
}

// inExamples puts the name by which the program is run into all examples. Those about
// this machine are left out.
func inExamples(c *cobra.Command, display string) {
	var lines []string
	for line := range strings.Lines(c.Example) {
		if strings.Contains(c.Use, "NODE") && !strings.Contains(line, "worker-7") {
			continue
		}
		lines = append(lines, strings.Replace(strings.TrimRight(line, "\n"), "plimsoll ", display+" ", 1))
	}
	c.Example = strings.Join(lines, "\n")
	for _, sub := range c.Commands() {
		inExamples(sub, display)
	}
}

// Commands is the whole command tree.
func Commands() *cobra.Command {
	root := newRoot("plimsoll", "Detect disk, network and memory pressure on Kubernetes nodes and act on it")
	root.Example = `  plimsoll agent --standalone     # watch this machine: http://127.0.0.1:9773/
  plimsoll top                    # its pressure, live
  plimsoll doctor                 # can this machine be measured and judged?`
	root.AddCommand(agentCommand(), controllerCommand(), topCommand(true), pluginsCommand(), explainCommand(true), doctorCommand(true), whoCommand(), nodesCommand(), backupsCommand(),
		releaseCommand(), replayCommand(), judgeCommand(), adviseCommand(), configCommand(), versionCommand())
	completionCommand(root)
	return root
}

func newRoot(name, short string) *cobra.Command {
	root := group(name, short)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = process.Version()
	root.SetVersionTemplate("plimsoll {{.Version}}\n")
	root.SetFlagErrorFunc(unknownFlag)
	root.SetHelpCommand(helpCommand(name))
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
