package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/top"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

func pluginsCommand() *cobra.Command {
	var f agentFlags
	var output string
	c := &cobra.Command{
		Use: "plugins", Short: "List the agent's plugins with their levels", Args: arguments(0, 0),
		Example: `  plimsoll plugins`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			file, err := config.Open("", f.override)
			if err != nil {
				return prefixed("plugins: ", err)
			}
			list, err := web.NewClient(file.Current().API.Socket).Plugins(c.Context())
			if err != nil {
				return fmt.Errorf("plugins: %w", err)
			}
			if isObject(output) {
				return writeObject(c.OutOrStdout(), output, list)
			}
			return writePlugins(c.OutOrStdout(), list, time.Now())
		},
	}
	f.common(c)
	outputFlag(c, &output)
	c.AddCommand(pluginsTestCommand())
	return c
}

// writePlugins writes that the levels are old, if they are; a line for each plugin and
// scope; then why outer plugins are left to another process, if they are.
func writePlugins(out io.Writer, list web.Plugins, now time.Time) error {
	if list.Stale {
		fmt.Fprintln(out, top.OldText(time.Duration(list.AgeSeconds*float64(time.Second))))
	}
	rows := [][]string{{"NAME", "KIND", "UP", "SCOPE", "LEVEL", "CONDITION AND TAINT", "SINCE", "LAST CALL", "BREAKER", "NOT SEEN"}}
	for _, p := range list.Plugins {
		rows = append(rows, pluginLine(p, now))
	}
	if err := view.WriteRows(out, rows); err != nil {
		return err
	}
	for _, r := range list.Rivals {
		fmt.Fprintf(out, "%s. Its plugins: %s (plugins.beside).\n", view.Printable(r.String()), view.Printable(list.Beside))
	}
	return nil
}

func pluginLine(p web.Plugin, now time.Time) []string {
	up, since, call, breaker := "yes", "-", "-", "-"
	if !p.Up {
		up = "no"
	}
	name, level := p.Name, p.Level.String()
	if o := p.Outer; o != nil {
		name = cmp.Or(name, o.Socket)
		since, call, breaker = age(o.Since, now), age(o.LastCall, now), dash(o.Breaker)
		if !o.LastCall.IsZero() {
			call += fmt.Sprintf(" ago (%.3f s)", o.TookSeconds)
		}
		if p.Scope == "" {
			level = "-"
		}
	}
	return []string{name, p.Kind, up, dash(p.Scope), level, dash(p.Condition), since, call, breaker, dash(p.Absent)}
}

// age in whole seconds; a dash for the zero time.
func age(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return now.Sub(at).Round(time.Second).String()
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
