package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/top"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// topCommand samples this machine where local, unless a NODE is named.
func topCommand(local bool) *cobra.Command {
	var f agentFlags
	var cluster clusterFlags
	var once bool
	var output string
	c := &cobra.Command{
		Use:   "top [NODE]",
		Short: "Show the pressure on this machine or on a node, live",
		Long: "Show the pressure on this machine, live. Asks the agent; if none answers, top samples by itself. With NODE it asks\n" +
			"the agent of that node through the API server.\n\n" +
			"On a terminal, ? lists the keys and q quits. Elsewhere, and with TERM=dumb, a line is written for each change.",
		Example: `  plimsoll top
  plimsoll top --once -o json
  plimsoll top worker-7`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			look, err := f.look(c, &cluster, args)
			if err != nil {
				return err
			}
			if once {
				return look.once(c.Context(), c.OutOrStdout(), output)
			}
			return look.live(c.Context(), c.OutOrStdout(), output)
		},
	}
	if local {
		f.common(c)
	} else {
		ofNode(c, "Show the pressure on a node, live", "Show the pressure on a node, live, as its agent sees it. Asks that agent through the API server.\n\n"+
			"On a terminal, ? lists the keys and q quits. Elsewhere, and with TERM=dumb, a line is written for each change.")
	}
	cluster.add(c)
	c.Flags().BoolVar(&once, "once", false, "print one state and exit")
	outputFlag(c, &output)
	return c
}

// look at the state of the node that is named, or of this machine.
func (f *agentFlags) look(c *cobra.Command, cluster *clusterFlags, args []string) (*stateSource, error) {
	if len(args) > 0 {
		agent, err := cluster.agent(c, args[0], askTimeout)
		if err != nil {
			return nil, err
		}
		return &stateSource{state: agent.State, period: remotePeriod}, nil
	}
	if err := unchanged(c, "needs NODE", "kubeconfig", "context"); err != nil {
		return nil, err
	}
	file, err := config.Open("", f.override)
	if err != nil {
		return nil, prefixed("top: ", err)
	}
	look, err := newStateSource(c.Context(), file)
	if err != nil {
		return nil, fmt.Errorf("top: %w", err)
	}
	return look, nil
}

// stateSource is the source of the states that plimsoll top shows.
type stateSource struct {
	state  func(context.Context) (*view.State, error)
	period time.Duration
}

// newStateSource asks the agent, or samples in this process if no agent answers.
func newStateSource(ctx context.Context, file *config.File) (*stateSource, error) {
	c := file.Current()
	client := web.NewClient(c.API.Socket)
	if _, err := client.State(ctx); err == nil {
		return &stateSource{state: client.State, period: c.Tick}, nil
	} else if !errors.Is(err, web.ErrNoAgent) {
		return nil, err
	}
	a, err := agent.New(file, discard(), "", nil)
	if err != nil {
		return nil, err
	}
	a.About.Mode = "no agent answers; sampled by plimsoll top"
	return &stateSource{state: a.SampleOnce, period: c.Tick}, nil
}

func (l *stateSource) once(ctx context.Context, out io.Writer, output string) error {
	s, err := l.state(ctx)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if isObject(output) {
		return writeObject(out, output, topState{s.Pressure(), s.Snapshot})
	}
	width, height := size(out)
	top.Render(out, s, width, height, color(out))
	return nil
}

// topState is one state as JSON: what /api/v1/pressure and /api/v1/snapshot
// return.
type topState struct {
	Pressure view.Pressure      `json:"pressure"`
	Snapshot *snapshot.Snapshot `json:"snapshot"`
}

func (l *stateSource) live(ctx context.Context, out io.Writer, output string) error {
	first, err := l.state(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	if interactive(out) && !isObject(output) {
		return l.interact(ctx, first, color(out))
	}
	changes := &top.Changes{Out: out}
	ticker := time.NewTicker(l.period)
	defer ticker.Stop()
	for s := first; ; {
		if isObject(output) {
			if err := writeObject(out, output, topState{s.Pressure(), s.Snapshot}); err != nil {
				return err
			}
		} else {
			changes.Show(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if s, err = l.state(ctx); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended by an error, unless that is the command's own end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the error is the end of the context
	}
	return fmt.Errorf("top: %w", err)
}

// interact shows states until the user quits.
func (l *stateSource) interact(ctx context.Context, first *view.State, color bool) error {
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("top: this terminal cannot be drawn on: %w: try --once", err)
	}
	if err := (&top.Terminal{Screen: screen, Color: color, State: l.state, Period: l.period}).Run(ctx, first); err != nil {
		return fmt.Errorf("top: terminal: %w: try --once", err)
	}
	return nil
}

// interactive: w is a terminal that knows commands, such as to move the cursor.
func interactive(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}

// Size of a frame if the output is no terminal.
const defaultWidth, defaultHeight = 120, 1000

func size(w io.Writer) (width, height int) {
	if fd, ok := terminal(w); ok {
		if width, height, err := term.GetSize(fd); err == nil {
			return width, height
		}
	}
	return defaultWidth, defaultHeight
}
