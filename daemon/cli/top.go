package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/plimsoll-dev/plimsoll/daemon/agent"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/top"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func topCommand() *cobra.Command {
	var f agentFlags
	var once bool
	var output string
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the pressure on this node, live",
		Long:  "Show the pressure on this node, live. Asks the agent; if none answers, top samples by itself.",
		Args:  arguments(0, 0),
		Example: `  plimsoll top
  plimsoll top --once -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			file, err := config.Open("", f.override)
			if err != nil {
				return prefixed("top: ", err)
			}
			look, err := newStateSource(c.Context(), file)
			if err != nil {
				return fmt.Errorf("top: %w", err)
			}
			if once {
				return look.once(c.Context(), c.OutOrStdout(), output)
			}
			return look.live(c.Context(), c.OutOrStdout(), output)
		},
	}
	f.common(c)
	c.Flags().BoolVar(&once, "once", false, "print one state and exit")
	outputFlag(c, &output)
	return c
}

func outputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "output", "o", "text", "output `FORMAT`: text or json")
}

func checkOutput(o string) error {
	if o != "text" && o != "json" {
		return usageError{fmt.Errorf("-o %q: want text or json", o)}
	}
	return nil
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
	a, err := agent.New(file, discard(), "")
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
	if output == "json" {
		return view.WriteJSON(out, topState{s.Pressure(), s.Snapshot})
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
	live := &top.Live{Out: out, Color: color(out)}
	if fd, ok := terminal(out); ok {
		live.Size = func() (int, int, error) { return term.GetSize(fd) }
	}
	defer live.Close()
	ticker := time.NewTicker(l.period)
	defer ticker.Stop()
	for {
		s, err := l.state(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("top: %w", err)
		case output == "json":
			if err := view.WriteJSON(out, topState{s.Pressure(), s.Snapshot}); err != nil {
				return err
			}
		default:
			live.Show(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
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
