package cli

import (
	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/judge"
)

func judgeCommand() *cobra.Command {
	var file, output string
	c := &cobra.Command{
		Use:   "judge DIRECTORY",
		Short: "Compare the rules with those of others on labelled recordings",
		Long: "Judge labelled recordings by the agent's own rules and by those of other programs (systemd-oomd, the kubelet,\n" +
			"KEP-5394, Talos, earlyoom, oomd), and show how often each is right, how soon, and which workload it names.\n" +
			"DIRECTORY has NAME.rec and its label NAME.yaml; held-out below it those that no rule was tuned by.",
		Args: arguments(1, 1),
		Example: `  plimsoll judge my-recordings
  plimsoll judge my-recordings --config new.yaml
  plimsoll judge my-recordings -o json > figures.json`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			rules, err := rulesOf(c, file, nil)
			if err != nil {
				return err
			}
			if file == "" {
				rules = judge.Judged(rules)
			}
			r, err := judge.Run(c.Context(), args[0], rules)
			if err != nil {
				return prefixed("judge: ", err)
			}
			if isObject(output) {
				return writeObject(c.OutOrStdout(), output, r)
			}
			return judge.WriteText(c.OutOrStdout(), r)
		},
	}
	rulesFlag(c, &file)
	outputFlag(c, &output)
	return c
}
