package cli

import (
	"errors"
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
	c := &cobra.Command{
		Use: "config", Short: "Check or print a configuration", Args: asUsageError(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return errors.Join(c.Help(), usageError{errors.New("config: missing subcommand; see plimsoll config --help")})
		},
	}
	c.AddCommand(
		&cobra.Command{
			Use: "check FILE", Short: "Report every mistake in a file with its key and line", Args: asUsageError(cobra.ExactArgs(1)),
			RunE: func(c *cobra.Command, args []string) error {
				if _, err := openAny(args[0]); err != nil {
					return prefixed("config: ", err)
				}
				_, err := fmt.Fprintln(c.OutOrStdout(), args[0]+": ok")
				return err
			},
		},
		&cobra.Command{
			Use: "print [FILE]", Short: "Print the effective configuration, defaults included", Args: asUsageError(cobra.MaximumNArgs(1)),
			RunE: func(c *cobra.Command, args []string) error {
				document, err := openAny(strings.Join(args, ""))
				if err != nil {
					return prefixed("config: ", err)
				}
				return config.Print(c.OutOrStdout(), document)
			},
		},
	)
	return c
}

// openAny reads a file of either kind; without a kind it is the agent's.
func openAny(path string) (config.Document, error) {
	data, err := os.ReadFile(path)
	if err == nil && config.KindOf(data) == (config.Controller{}).Kind() {
		file, err := config.OpenOf(path, config.DefaultController, nil)
		if err != nil {
			return nil, err
		}
		return *file.Current(), nil
	}
	file, err := config.Open(path, nil) // it reports a failed read as well
	if err != nil {
		return nil, err
	}
	return *file.Current(), nil
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
func defaultSocket() string {
	const name = "plimsoll.sock"
	if os.Geteuid() == 0 {
		return filepath.Join("/run/plimsoll", name)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "plimsoll", name)
	}
	return filepath.Join(os.TempDir(), "plimsoll-"+strconv.Itoa(os.Geteuid()), name)
}

// defaultState is below /var/lib for root, else in the user's own state
// directory (XDG Base Directory Specification).
func defaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/plimsoll/state"
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		dir = filepath.Join(os.Getenv("HOME"), ".local", "state")
	}
	return filepath.Join(dir, "plimsoll", "state")
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
