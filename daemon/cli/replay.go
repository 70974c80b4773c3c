package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/replay"
)

func replayCommand() *cobra.Command {
	var file, output string
	var warmUp bool
	c := &cobra.Command{
		Use:   "replay RECORDING...",
		Short: "Replay recorded samples: what would have been decided",
		Long: "Replay recorded samples (recording.dir) through the agent's own rules, with any configuration, and show what\n" +
			"would have been decided. Directories and files of one machine are replayed in order of time; - is standard input.",
		Args: arguments(1, -1),
		Example: `  plimsoll replay /var/lib/plimsoll/recording
  plimsoll replay monday.gz --config new.yaml -o svg > monday.svg
  plimsoll replay --config - /var/lib/plimsoll/recording < new.yaml`,
		RunE: func(c *cobra.Command, names []string) error {
			write, known := replayWriters()[output]
			if !known {
				return usageError{fmt.Errorf("replay: -o %q: want table, json or svg", output)}
			}
			rules, err := rulesOf(c, file, names)
			if err != nil {
				return err
			}
			p := replay.Player{Config: rules, ConfigFile: file, WarmUp: warmUp}
			failed := p.Files(c.Context(), names, c.InOrStdin())
			r := p.Report()
			if r.Samples > 0 {
				err = write(c.OutOrStdout(), r)
			}
			if err := errors.Join(failed, err); err != nil {
				return prefixed("replay: ", err)
			}
			return nil
		},
	}
	rulesFlag(c, &file)
	c.Flags().BoolVar(&warmUp, "warm-up", false, "start like an agent that has just started (plugins.warmUp)")
	c.Flags().StringVarP(&output, "output", "o", "table", "output `FORMAT`: table, json or svg")
	return c
}

func rulesFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "config", "", "configuration `FILE` with the rules, - for standard input (default: that of a fresh install)")
}

// rulesOf is the configuration by which recordings are played.
func rulesOf(c *cobra.Command, file string, recordings []string) (*config.Agent, error) {
	if file == config.Stdin && slices.Contains(recordings, config.Stdin) {
		return nil, usageError{fmt.Errorf("%s: --config - and the recording -: standard input cannot be both", c.Name())}
	}
	rules, err := config.OpenAgent(file, c.InOrStdin())
	if err != nil {
		return nil, prefixed("config: ", err)
	}
	return rules, nil
}

func replayWriters() map[string]func(io.Writer, *replay.Report) error {
	return map[string]func(io.Writer, *replay.Report) error{
		"table": replay.WriteTable, "json": replay.WriteJSON, "svg": replay.WriteSVG,
	}
}
