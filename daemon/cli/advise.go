package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/advise"
	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

func adviseCommand() *cobra.Command {
	var file, output string
	c := &cobra.Command{
		Use:   "advise RECORDING...",
		Short: "Recommend thresholds from days of recordings",
		Long: "Recommend thresholds from days of recordings (recording.dir): how often each threshold was met, which alarms\n" +
			"were false, and what to set. Directories and files of one machine are replayed in order of time; - is standard input.",
		Args: arguments(1, -1),
		Example: `  plimsoll advise /var/lib/plimsoll/recording
  plimsoll advise /var/lib/plimsoll/recording -o config > advised.yaml
  plimsoll advise week.gz --config agent.yaml -o json`,
		RunE: func(c *cobra.Command, names []string) error {
			write, known := adviceWriters()[output]
			if !known {
				return usageError{fmt.Errorf("advise: -o %q: want text, json or config", output)}
			}
			rules, err := rulesOf(c, file, names)
			if err != nil {
				return err
			}
			var w advise.Watcher
			p := replay.Player{Config: rules, ConfigFile: file, Watch: w.Watch}
			failed := p.Files(c.Context(), names, c.InOrStdin())
			r := p.Report()
			if r.Samples > 0 {
				var a *advise.Advice
				if a, err = w.Advice(rules.Plugins.Inner, r); err == nil {
					err = write(c.OutOrStdout(), a)
				}
			}
			if err := errors.Join(failed, err); err != nil {
				return prefixed("advise: ", err)
			}
			return nil
		},
	}
	rulesFlag(c, &file)
	c.Flags().StringVarP(&output, "output", "o", "text", "output `FORMAT`: text, json, or config: what to change, as a configuration")
	return c
}

func adviceWriters() map[string]func(io.Writer, *advise.Advice) error {
	return map[string]func(io.Writer, *advise.Advice) error{
		"text": advise.WriteText, "json": func(w io.Writer, a *advise.Advice) error { return view.WriteJSON(w, a) },
		"config": func(w io.Writer, a *advise.Advice) error {
			_, err := io.WriteString(w, a.Configuration)
			return err
		},
	}
}
