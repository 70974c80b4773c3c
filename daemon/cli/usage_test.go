package cli

import (
	"bytes"
	"regexp"
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
		"replay":              `plimsoll: replay: missing argument: plimsoll replay RECORDING... [flags]; see plimsoll replay --help`,
		"completion nosuch":   `plimsoll: completion: unknown command "nosuch"; see plimsoll completion --help`,
		"-o":                  `plimsoll: unknown shorthand flag: 'o' in -o; see plimsoll --help`,
		"top -o":              `plimsoll: top: flag needs an argument: 'o' in -o; see plimsoll top --help`,
		"plugins tset":        `plimsoll: plugins: it takes no argument, got "tset": did you mean test?; see plimsoll plugins --help`,
		"completion bash zsh": `plimsoll: completion bash: it takes no argument, got "zsh"; see plimsoll completion bash --help`,

		"top --once --context prod":           `plimsoll: top: --context needs NODE; see plimsoll top --help`,
		"top --once --kubeconfig k":           `plimsoll: top: --kubeconfig needs NODE; see plimsoll top --help`,
		"doctor --context prod":               `plimsoll: doctor: --context needs NODE; see plimsoll doctor --help`,
		"doctor worker-7 --config new.yaml":   `plimsoll: doctor: --config describes this machine, and NODE is another; see plimsoll doctor --help`,
		"doctor worker-7 --path.procfs /proc": `plimsoll: doctor: --path.procfs describes this machine, and NODE is another; see plimsoll doctor --help`,
	} {
		t.Run(line, func(t *testing.T) {
			status, _, stderr := said(line, "")
			assert.Equal(t, exitUsage, status)
			assert.Equal(t, want+"\n", stderr)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Run("plimsoll", func(t *testing.T) { helps(t, "plimsoll") })
	t.Run("kubectl plimsoll", func(t *testing.T) { helps(t, "/usr/local/bin/kubectl-plimsoll") })
	status, stdout, _ := said("help config check", "")
	assert.Zero(t, status)
	assert.Contains(t, stdout, "plimsoll config check FILE")
}

// helps has the help of each command of a program.
func helps(t *testing.T, program string) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		t.Run(strings.ReplaceAll(c.CommandPath(), " ", "-"), func(t *testing.T) {
			var out bytes.Buffer
			root := CommandsFor(program)
			root.SetArgs(words(of(c) + " --help"))
			root.SetOut(&out)
			require.NoError(t, root.Execute())
			assert.Regexp(t, `Usage:\n  `+regexp.QuoteMeta(c.CommandPath())+`( [A-Z[]|\n)`, out.String())
			assert.Contains(t, out.String(), "\nExamples:\n  "+root.DisplayName()+" ")
			if program != "plimsoll" {
				assert.NotContains(t, strings.Join(strings.Fields(out.String()), " "), "agent of this machine", "it asks a cluster")
			}
			for line := range strings.Lines(c.Example) {
				name := c.Root().DisplayName() + " "
				begin := strings.LastIndex(line, name)
				require.GreaterOrEqual(t, begin, 0, "%s", line)
				at, args, err := CommandsFor(program).Find(words(line[begin+len(name):]))
				require.NoError(t, err, "%s", line)
				require.NoError(t, at.ParseFlags(args), "%s", line)
				require.NoError(t, at.ValidateArgs(at.Flags().Args()), "%s", line)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(CommandsFor(program))
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

func TestPlugin(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for line, want := range map[string]string{
		"top":                    "plimsoll: top: missing NODE: kubectl plimsoll nodes lists them; see kubectl plimsoll top --help",
		"doctor a b":             `plimsoll: doctor: too many arguments, from "b" on: kubectl plimsoll doctor NODE [flags]; see kubectl plimsoll doctor --help`,
		"controller":             `plimsoll: unknown command "controller"; see kubectl plimsoll --help`,
		"noodes":                 `plimsoll: unknown command "noodes": did you mean nodes?; see kubectl plimsoll --help`,
		"explain eviction":       "plimsoll: explain: eviction: no cluster to ask: there is no ~/.kube/config; set $KUBECONFIG or --kubeconfig",
		"who --output table":     `plimsoll: -o "table": want text, json, yaml or wide`,
		"explain backup nightly": "plimsoll: explain: backup: no cluster to ask: there is no ~/.kube/config; set $KUBECONFIG or --kubeconfig",
	} {
		t.Run(line, func(t *testing.T) {
			var out, errs strings.Builder
			assert.Equal(t, exitUsage, Main("kubectl-plimsoll", words(line), &out, &errs))
			assert.Equal(t, want+"\n", errs.String())
		})
	}
}
