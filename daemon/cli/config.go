package cli

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

func configCommand() *cobra.Command {
	c := group("config", "Check or print a configuration")
	c.Example = `  plimsoll config check /etc/plimsoll/agent.yaml
  plimsoll config print`
	c.AddCommand(
		&cobra.Command{
			Use: "check FILE", Short: "Report every mistake in a file with its key and line", Args: arguments(1, 1),
			Long: "Report every mistake in a file with its key and line; - is standard input.",
			Example: `  plimsoll config check /etc/plimsoll/agent.yaml
  kubectl -n plimsoll-system get configmap plimsoll-agent -o 'jsonpath={.data.agent\.yaml}' | plimsoll config check -`,
			RunE: func(c *cobra.Command, args []string) error {
				if _, err := config.OpenAny(args[0], c.InOrStdin()); err != nil {
					return prefixed("config: ", err)
				}
				_, err := fmt.Fprintln(c.OutOrStdout(), args[0]+": ok")
				return err
			},
		},
		&cobra.Command{
			Use: "print [FILE]", Short: "Print the effective configuration, defaults included", Args: arguments(0, 1),
			Long: "Print the effective configuration, defaults included: of a file, of standard input (-), or an agent's defaults.",
			Example: `  plimsoll config print
  plimsoll config print /etc/plimsoll/agent.yaml`,
			RunE: func(c *cobra.Command, args []string) error {
				document, err := config.OpenAny(strings.Join(args, ""), c.InOrStdin())
				if err != nil {
					return prefixed("config: ", err)
				}
				return config.Print(c.OutOrStdout(), document)
			},
		},
	)
	return c
}

// prefixed prefixes each line of an error with what was tried.
func prefixed(what string, err error) error {
	return linesError{what + strings.ReplaceAll(err.Error(), "\n", "\n"+what), err}
}

type linesError struct {
	text string
	err  error
}

func (e linesError) Error() string { return e.text }
func (e linesError) Unwrap() error { return e.err }

// defaultSocket is below /run for root, else in the user's runtime directory,
// else in a directory of the user's below the temporary one.
func defaultSocket(user int, env func(string) string) string {
	const name = "plimsoll.sock"
	if user == 0 {
		return filepath.Join("/run/plimsoll", name)
	}
	if dir := env("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "plimsoll", name)
	}
	return filepath.Join(os.TempDir(), "plimsoll-"+strconv.Itoa(user), name)
}

// defaultState is below /var/lib for root, else in the user's own state
// directory (XDG Base Directory Specification).
func defaultState(user int, env func(string) string) string {
	if user == 0 {
		return "/var/lib/plimsoll/state"
	}
	dir := env("XDG_STATE_HOME")
	if dir == "" {
		dir = filepath.Join(env("HOME"), ".local", "state")
	}
	return filepath.Join(dir, "plimsoll", "state")
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
