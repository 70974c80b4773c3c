package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// said runs a command line and returns its exit status and what it printed.
func said(line string, stdin string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := Commands()
	root.SetArgs(words(line))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	status = report(&errs, root.Execute())
	return status, out.String(), errs.String()
}

// words of a line of a shell, without quotes.
func words(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " >")
	return strings.Fields(line)
}

func TestTypo(t *testing.T) {
	for line, want := range map[string]string{
		"confg":               `plimsoll: unknown command "confg": did you mean config?; see plimsoll --help`,
		"config chek x":       `plimsoll: config: unknown command "chek": did you mean check?; see plimsoll config --help`,
		"config":              `plimsoll: config: missing subcommand; see plimsoll config --help`,
		"config check":        `plimsoll: config check: missing argument: plimsoll config check FILE [flags]; see plimsoll config check --help`,
		"config check a b":    `plimsoll: config check: too many arguments, from "b" on: plimsoll config check FILE [flags]; see plimsoll config check --help`,
		"help nosuch":         `plimsoll: unknown command "nosuch"; see plimsoll --help`,
		"help config chek":    `plimsoll: config: unknown command "chek": did you mean check?; see plimsoll config --help`,
		"explain evictoin":    `plimsoll: explain: unknown command "evictoin": did you mean eviction?; see plimsoll explain --help`,
		"explain backup":      `plimsoll: explain backup: missing argument: plimsoll explain backup NAME [flags]; see plimsoll explain backup --help`,
		"top --onec":          `plimsoll: top: unknown flag: --onec: did you mean --once?; see plimsoll top --help`,
		"agent standalone":    `plimsoll: agent: it takes no argument, got "standalone": did you mean --standalone?; see plimsoll agent --help`,
		"replay":              `plimsoll: replay: missing argument: plimsoll replay RECORDING... [flags]; see plimsoll replay --help`,
		"completion nosuch":   `plimsoll: completion: unknown command "nosuch"; see plimsoll completion --help`,
		"-o":                  `plimsoll: unknown shorthand flag: 'o' in -o; see plimsoll --help`,
		"top -o":              `plimsoll: top: flag needs an argument: 'o' in -o; see plimsoll top --help`,
		"completion bash zsh": `plimsoll: completion bash: it takes no argument, got "zsh"; see plimsoll completion bash --help`,
	} {
		t.Run(line, func(t *testing.T) {
			status, _, stderr := said(line, "")
			assert.Equal(t, exitUsage, status)
			assert.Equal(t, want+"\n", stderr)
		})
	}
}

func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		t.Run(strings.ReplaceAll(c.CommandPath(), " ", "-"), func(t *testing.T) {
			status, stdout, stderr := said(of(c)+" --help", "")
			require.Zero(t, status, stderr)
			assert.Contains(t, stdout, "\nExamples:\n  ")
			for line := range strings.Lines(c.Example) {
				name := c.Root().DisplayName() + " "
				begin := strings.LastIndex(line, name)
				require.GreaterOrEqual(t, begin, 0, "%s", line)
				at, args, err := Commands().Find(words(line[begin+len(name):]))
				require.NoError(t, err, "%s", line)
				require.NoError(t, at.ParseFlags(args), "%s", line)
				require.NoError(t, at.ValidateArgs(at.Flags().Args()), "%s", line)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(Commands())
	status, stdout, _ := said("help config check", "")
	assert.Zero(t, status)
	assert.Contains(t, stdout, "plimsoll config check FILE")
}

func TestVersion(t *testing.T) {
	_, flag, _ := said("--version", "")
	_, command, _ := said("version", "")
	assert.Equal(t, command, flag)
	assert.Regexp(t, `^plimsoll \S+\n$`, flag)
}

func TestConfigFromStdin(t *testing.T) {
	const header = "apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\n"
	t.Run("a good one is ok", func(t *testing.T) {
		status, stdout, stderr := said("config check -", header)
		assert.Zero(t, status, stderr)
		assert.Equal(t, "-: ok\n", stdout)
	})
	t.Run("a mistake has its line", func(t *testing.T) {
		status, _, stderr := said("config check -", header+"backupz: {}\n")
		assert.Equal(t, exitFailure, status)
		assert.Equal(t, "plimsoll: config: -:3: backupz: unknown key (did you mean \"backups\"?)\n", stderr)
	})
	t.Run("it is printed with its defaults", func(t *testing.T) {
		status, stdout, stderr := said("config print -", header)
		assert.Zero(t, status, stderr)
		assert.Contains(t, stdout, "kind: ControllerConfiguration\n")
	})
	t.Run("one that is too large names the bound", func(t *testing.T) {
		_, _, stderr := said("config check -", strings.Repeat("#", 300<<10))
		assert.Contains(t, stderr, "the bound is 256 KiB")
	})
}
