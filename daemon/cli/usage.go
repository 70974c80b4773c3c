package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a wrong command line.
type usageError struct{ error }

// of is the command without the program's name: "config check".
func of(c *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), c.Root().DisplayName()), " ")
}

// wrong is a usageError that names the command and where its help is.
func wrong(c *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format+"; see "+c.CommandPath()+" --help", args...)
	if at := of(c); at != "" {
		err = fmt.Errorf("%s: %w", at, err)
	}
	return usageError{err}
}

// unchanged is the error of the first of the flags that is set, and why it may not be.
func unchanged(c *cobra.Command, why string, flags ...string) error {
	for _, name := range flags {
		if c.Flags().Changed(name) {
			return wrong(c, "--%s %s", name, why)
		}
	}
	return nil
}

// group is a command that only has subcommands.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return errors.Join(c.Help(), wrong(c, "missing subcommand"))
		},
	}
}

// unknownCommand is the error of a subcommand that c does not have.
func unknownCommand(c *cobra.Command, name string) error {
	return wrong(c, "unknown command %q%s", name, suggestion(c, name, ""))
}

// suggestion is a question for each subcommand that looks or means like name; empty
// if there is none.
func suggestion(c *cobra.Command, name, prefix string) string {
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2
	}
	near := c.SuggestionsFor(name)
	if name == "" || len(near) == 0 {
		return ""
	}
	return ": did you mean " + prefix + strings.Join(near, " or "+prefix) + "?"
}

// unknownFlag is the error of flags that cannot be parsed.
func unknownFlag(c *cobra.Command, err error) error {
	hint := ""
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is && len(unknown.GetSpecifiedName()) > 1 {
		hint = suggestion(flagsAsCommands(c), unknown.GetSpecifiedName(), "--")
	}
	return wrong(c, "%w%s", err, hint)
}

// flagsAsCommands lets cobra look for flags as it looks for commands.
func flagsAsCommands(c *cobra.Command) *cobra.Command {
	names := &cobra.Command{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return names
}

// arguments requires from least to most arguments; most < 0 is any number.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return wrong(c, "missing argument: %s", c.UseLine())
		case most >= 0 && n > most && most == 0:
			return wrong(c, "it takes no argument, got %q%s", args[0], cmp.Or(suggestion(c, args[0], ""), suggestion(flagsAsCommands(c), args[0], "--")))
		case most >= 0 && n > most:
			return wrong(c, "too many arguments, from %q on: %s", args[most], c.UseLine())
		}
		return nil
	}
}

func helpCommand(display string) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]...", Short: "Show the help of a command",
		Example: "  " + display + " help explain eviction",
		RunE: func(c *cobra.Command, names []string) error {
			at := c.Root()
			for _, name := range names {
				next, _, err := at.Find([]string{name})
				if err != nil || next == at {
					return unknownCommand(at, name)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// completionCommand is cobra's own, which takes any word for a shell.
func completionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		g := group(c.Use, c.Short)
		c.Args, c.RunE, c.Example = g.Args, g.RunE, "  plimsoll completion bash > /etc/bash_completion.d/plimsoll"
		for _, shell := range c.Commands() {
			shell.Args, shell.Example = arguments(0, 0), "  plimsoll completion "+shell.Name()
		}
	}
}
